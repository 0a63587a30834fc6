"""The commands that concern hashes: HSET, HGET and similar ones."""

from collections.abc import Mapping

from quorate_agent.resp.commands.types.member_scan import scan_members
from quorate_agent.resp.reading.floats import add_floats, float_text, is_infinite, parse_float
from quorate_agent.resp.reading.integers import INTEGER_MAX, INTEGER_MIN, parse_integer
from quorate_agent.resp.replies import (
    FLOAT_OVERFLOW,
    INCREMENT_OVERFLOW,
    NOT_A_FLOAT,
    NOT_AN_INTEGER,
    OK,
    ONE,
    REPLY_BYTES_MAX,
    REPLY_TOO_LONG,
    ZERO,
    array,
    bulk,
    bulk_map,
    bulks,
    error,
    integer,
    null,
    wrong_arity,
)
from quorate_agent.resp.values.collection import Collection, hash_at, put_hash
from quorate_agent.resp.view import KeyView

_FIELD_NOT_AN_INTEGER = error(b"ERR hash value is not an integer")
_FIELD_NOT_A_FLOAT = error(b"ERR hash value is not a float")
_INCREMENT_INFINITE = error(b"ERR value is NaN or Infinity")


def set_fields(view: KeyView, args: list[bytes]) -> bytes:
    """HSET key field value [field value …]: replies how many fields are new"""
    if len(args) % 2:
        return wrong_arity(b"hset")
    return _set(view, args, None)


def set_many(view: KeyView, args: list[bytes]) -> bytes:
    """HMSET key field value [field value …]"""
    if len(args) % 2:
        return wrong_arity(b"hmset")
    return _set(view, args, OK)


def set_if_absent(view: KeyView, args: list[bytes]) -> bytes:
    """HSETNX key field value"""
    _, key, field, value = args
    found = hash_at(view, key)
    if isinstance(found, bytes):
        return found
    if field in found.items:
        return ZERO
    return put_hash(view, key, found, {**found.items, field: value}, ONE)


def get(view: KeyView, args: list[bytes]) -> bytes:
    """HGET key field"""
    found = hash_at(view, args[1])
    if isinstance(found, bytes):
        return found
    value = found.items.get(args[2])
    return null(view.resp3) if value is None else bulk(value)


def get_many(view: KeyView, args: list[bytes]) -> bytes:
    """HMGET key field [field …]"""
    found = hash_at(view, args[1])
    if isinstance(found, bytes):
        return found
    absent = null(view.resp3)
    values = [found.items.get(field) for field in args[2:]]
    if sum(map(len, filter(None, values))) > REPLY_BYTES_MAX:
        return REPLY_TOO_LONG
    return array([absent if value is None else bulk(value) for value in values])


def get_all(view: KeyView, args: list[bytes]) -> bytes:
    """HGETALL key"""
    found = hash_at(view, args[1])
    if isinstance(found, bytes):
        return found
    return bulk_map(found.items, view.resp3)


def names(view: KeyView, args: list[bytes]) -> bytes:
    """HKEYS key"""
    found = hash_at(view, args[1])
    return found if isinstance(found, bytes) else bulks(found.items)


def values(view: KeyView, args: list[bytes]) -> bytes:
    """HVALS key"""
    found = hash_at(view, args[1])
    return found if isinstance(found, bytes) else bulks(found.items.values())


def count(view: KeyView, args: list[bytes]) -> bytes:
    """HLEN key"""
    found = hash_at(view, args[1])
    return found if isinstance(found, bytes) else integer(len(found.items))


def exists(view: KeyView, args: list[bytes]) -> bytes:
    """HEXISTS key field"""
    found = hash_at(view, args[1])
    return found if isinstance(found, bytes) else integer(args[2] in found.items)


def length(view: KeyView, args: list[bytes]) -> bytes:
    """HSTRLEN key field"""
    found = hash_at(view, args[1])
    return found if isinstance(found, bytes) else integer(len(found.items.get(args[2], b"")))


def delete(view: KeyView, args: list[bytes]) -> bytes:
    """HDEL key field [field …]: replies how many existed"""
    key = args[1]
    found = hash_at(view, key)
    if isinstance(found, bytes):
        return found
    left = dict(found.items)
    for field in args[2:]:
        left.pop(field, None)
    count = len(found.items) - len(left)
    return put_hash(view, key, found, left, integer(count)) if count else ZERO


def increment_by(view: KeyView, args: list[bytes]) -> bytes:
    """HINCRBY key field integer"""
    _, key, field, amount_text = args
    amount = parse_integer(amount_text)
    if amount is None:
        return NOT_AN_INTEGER
    found = hash_at(view, key)
    if isinstance(found, bytes):
        return found
    present = parse_integer(found.items.get(field, b"0"))
    if present is None:
        return _FIELD_NOT_AN_INTEGER
    total = present + amount
    if not INTEGER_MIN <= total <= INTEGER_MAX:
        return INCREMENT_OVERFLOW
    return _put_number(view, key, found, field, b"%d" % total, integer(total))


def increment_by_float(view: KeyView, args: list[bytes]) -> bytes:
    """HINCRBYFLOAT key field number"""
    _, key, field, amount_text = args
    amount = parse_float(amount_text)
    if amount is None:
        return NOT_A_FLOAT
    if is_infinite(amount):
        return _INCREMENT_INFINITE
    found = hash_at(view, key)
    if isinstance(found, bytes):
        return found
    present = parse_float(found.items.get(field, b"0"))
    if present is None:
        return _FIELD_NOT_A_FLOAT
    total = add_floats(present, amount)
    if total is None:
        return FLOAT_OVERFLOW
    text = float_text(total)
    return _put_number(view, key, found, field, text, bulk(text))


def scan(view: KeyView, args: list[bytes]) -> bytes:
    """HSCAN key cursor [MATCH pattern] [COUNT fields]"""
    return scan_members(view, args, hash_at, lambda field, value: (field, value))


def _set(view: KeyView, args: list[bytes], reply: bytes | None) -> bytes:
    """Set fields; `reply` None: the reply is how many are new."""
    key = args[1]
    found = hash_at(view, key)
    if isinstance(found, bytes):
        return found
    given = dict(zip(args[2::2], args[3::2], strict=True))
    if reply is None:
        reply = integer(sum([field not in found.items for field in given]))
    if all(found.items.get(field) == value for field, value in given.items()):
        return reply
    return put_hash(view, key, found, {**found.items, **given}, reply)


def _put_number(
    view: KeyView,
    key: bytes,
    found: Collection[Mapping[bytes, bytes]],
    field: bytes,
    text: bytes,
    reply: bytes,
) -> bytes:
    if found.items.get(field) == text:
        return reply
    return put_hash(view, key, found, {**found.items, field: text}, reply)
