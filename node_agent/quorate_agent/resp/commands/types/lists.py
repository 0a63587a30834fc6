"""The commands that concern lists: LPUSH, LRANGE and similar ones."""

from collections.abc import Callable, Sequence

from quorate_agent.resp.reading.integers import parse_count, parse_integer
from quorate_agent.resp.replies import (
    NO_SUCH_KEY,
    NOT_AN_INTEGER,
    NOT_POSITIVE,
    OK,
    ZERO,
    array,
    bulk,
    bulks,
    error,
    integer,
    null,
    null_array,
    wrong_arity,
)
from quorate_agent.resp.values.collection import list_at, put_list
from quorate_agent.resp.view import KeyView

_INDEX_OUT_OF_RANGE = error(b"ERR index out of range")


def push_first(view: KeyView, args: list[bytes]) -> bytes:
    """LPUSH key element [element …]: replies the new length"""
    return _push(view, args, _before, True)


def push_last(view: KeyView, args: list[bytes]) -> bytes:
    """RPUSH key element [element …]: replies the new length"""
    return _push(view, args, _behind, True)


def push_first_if_there(view: KeyView, args: list[bytes]) -> bytes:
    """LPUSHX key element [element …]: only if the list exists"""
    return _push(view, args, _before, False)


def push_last_if_there(view: KeyView, args: list[bytes]) -> bytes:
    """RPUSHX key element [element …]: only if the list exists"""
    return _push(view, args, _behind, False)


def pop_first(view: KeyView, args: list[bytes]) -> bytes:
    """LPOP key [count]"""
    return _pop(view, args, b"lpop", from_end=False)


def pop_last(view: KeyView, args: list[bytes]) -> bytes:
    """RPOP key [count]"""
    return _pop(view, args, b"rpop", from_end=True)


def count(view: KeyView, args: list[bytes]) -> bytes:
    """LLEN key"""
    found = list_at(view, args[1])
    return found if isinstance(found, bytes) else integer(len(found.items))


def get_range(view: KeyView, args: list[bytes]) -> bytes:
    """LRANGE key first last: negative indices count from the end"""
    first, last = parse_integer(args[2]), parse_integer(args[3])
    if first is None or last is None:
        return NOT_AN_INTEGER
    found = list_at(view, args[1])
    if isinstance(found, bytes):
        return found
    return bulks(found.items[_between(first, last, len(found.items))])


def get_at(view: KeyView, args: list[bytes]) -> bytes:
    """LINDEX key index"""
    found = list_at(view, args[1])
    if isinstance(found, bytes):
        return found
    if not found.exists:
        return null(view.resp3)  # whatever the index is
    index = parse_integer(args[2])
    if index is None:
        return NOT_AN_INTEGER
    at = index + len(found.items) if index < 0 else index
    return bulk(found.items[at]) if 0 <= at < len(found.items) else null(view.resp3)


def set_at(view: KeyView, args: list[bytes]) -> bytes:
    """LSET key index element"""
    key, element = args[1], args[3]
    found = list_at(view, key)
    if isinstance(found, bytes):
        return found
    if not found.exists:
        return NO_SUCH_KEY
    index = parse_integer(args[2])
    if index is None:
        return NOT_AN_INTEGER
    at = index + len(found.items) if index < 0 else index
    if not 0 <= at < len(found.items):
        return _INDEX_OUT_OF_RANGE
    if found.items[at] == element:
        return OK
    changed = list(found.items)
    changed[at] = element
    return put_list(view, key, found, changed, OK)


def remove(view: KeyView, args: list[bytes]) -> bytes:
    """LREM key count element: replies how many it removed; count < 0 begins at the end, 0 is all"""
    key, element = args[1], args[3]
    limit = parse_integer(args[2])
    if limit is None:
        return NOT_AN_INTEGER
    found = list_at(view, key)
    if isinstance(found, bytes):
        return found
    places = [at for at, present in enumerate(found.items) if present == element]
    going = set(places[limit:] if limit < 0 else places[: limit or None])
    if not going:
        return ZERO
    left = [present for at, present in enumerate(found.items) if at not in going]
    return put_list(view, key, found, left, integer(len(going)))


def trim(view: KeyView, args: list[bytes]) -> bytes:
    """LTRIM key first last: keeps these"""
    key = args[1]
    first, last = parse_integer(args[2]), parse_integer(args[3])
    if first is None or last is None:
        return NOT_AN_INTEGER
    found = list_at(view, key)
    if isinstance(found, bytes):
        return found
    kept = list(found.items[_between(first, last, len(found.items))])
    if len(kept) == len(found.items):
        return OK
    return put_list(view, key, found, kept, OK)


def _before(elements: Sequence[bytes], new: list[bytes]) -> list[bytes]:
    return [*reversed(new), *elements]


def _behind(elements: Sequence[bytes], new: list[bytes]) -> list[bytes]:
    return [*elements, *new]


def _push(
    view: KeyView,
    args: list[bytes],
    joined: Callable[[Sequence[bytes], list[bytes]], list[bytes]],
    creates: bool,
) -> bytes:
    key = args[1]
    found = list_at(view, key)
    if isinstance(found, bytes):
        return found
    if not found.exists and not creates:
        return ZERO
    elements = joined(found.items, args[2:])
    return put_list(view, key, found, elements, integer(len(elements)))


def _pop(view: KeyView, args: list[bytes], name: bytes, from_end: bool) -> bytes:
    if len(args) > 3:
        return wrong_arity(name)
    wanted = parse_count(args[2:])
    if wanted is None:
        return NOT_POSITIVE
    key = args[1]
    found = list_at(view, key)
    if isinstance(found, bytes):
        return found
    if not found.exists:
        return null_array(view.resp3) if len(args) == 3 else null(view.resp3)
    if not wanted:
        return array(())
    if from_end:
        kept = list(found.items[:-wanted])
        taken = list(found.items[: -wanted - 1 : -1])
    else:
        kept = list(found.items[wanted:])
        taken = list(found.items[:wanted])
    reply = bulks(taken) if len(args) == 3 else bulk(taken[0])
    return put_list(view, key, found, kept, reply)


def _between(first: int, last: int, length: int) -> slice:
    """Return the slice from `first` to `last`, inclusive; negative indices count from the end."""
    if first < 0:
        first = max(first + length, 0)
    if last < 0:
        last += length
    return slice(first, max(last + 1, 0))
