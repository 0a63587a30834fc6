"""Collections of many short members: what they take unpacked is estimated, and bounded."""

import sys
from collections.abc import Callable, Collection

import pytest

from quorate_agent.resp.tables.table import resolve
from quorate_agent.resp.values import collection
from quorate_agent.resp.values.unpacked import MEMBER_BYTES, Unpacked, object_bytes
from quorate_agent.resp.values.value import (
    count_of,
    pack_elements,
    pack_fields,
    pack_members,
    unpack_fields,
    unpack_members,
)
from quorate_differential.dict_view import DictView


def _run(view: DictView, *words: bytes) -> bytes:
    command = resolve(list(words))
    assert not isinstance(command, bytes)
    reply: bytes = command.handler(view, list(words))
    return reply


def test_objects_and_keys_count(monkeypatch: pytest.MonkeyPatch) -> None:
    members = {b"%03d" % number: None for number in range(1_000)}
    value = pack_members(members)
    estimate = object_bytes(len(members), is_list=False)
    assert estimate > 15 * len(value)
    monkeypatch.setattr("quorate_agent.resp.values.unpacked.KEPT_BYTES_MAX", 3 * estimate)
    kept = Unpacked()

    for number in range(10):
        kept.keep(b"%d" % number, value, members)
    assert len(kept._entries) == 2
    kept.keep(b"k" * estimate, value, members)
    assert len(kept._entries) == 1


@pytest.mark.parametrize("kind", ["set", "hash", "list"])
def test_the_estimate_is_about_what_the_objects_take(kind: str) -> None:
    names = [b"%06d" % number for number in range(10_000)]
    hashed = unpack_fields(pack_fields({name: name for name in names}))
    items: Collection[bytes] = hashed
    if kind != "hash":
        items = unpack_members(pack_members(names)) if kind == "set" else names
    values = hashed.values() if kind == "hash" else ()
    taken = sum(map(sys.getsizeof, [items, *items, *values]))

    estimate = object_bytes(len(items), kind == "list") + 2 * len(pack_members(names))
    assert taken <= estimate <= 3 * taken


@pytest.fixture
def room_for_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for ten members, or 30 elements."""
    monkeypatch.setattr(collection, "_unpacked", Unpacked())
    collection.bound_collections(10 * 4 * MEMBER_BYTES)


_NAMES = [b"%d" % number for number in range(40)]


@pytest.mark.usefixtures("room_for_ten")
@pytest.mark.parametrize(
    ("most", "write"),
    [
        (10, lambda names: [b"SADD", b"k", *names]),
        (10, lambda names: [b"HSET", b"k", *(word for name in names for word in (name, name))]),
        (33, lambda names: [b"RPUSH", b"k", *names]),
    ],
    ids=["set", "hash", "list"],
)
def test_a_write_of_more_entries_than_the_memory_limit_allows_is_refused(
    most: int, write: Callable[[list[bytes]], list[bytes]]
) -> None:
    view = DictView()
    assert _run(view, *write(_NAMES[:most])) == b":%d\r\n" % most
    before = dict(view.rows)

    refused = _run(view, *write(_NAMES[:most] + _NAMES[most : most + 1]))

    assert b"too large for this agent's memory limit: at most 10," in refused
    assert view.rows == before


@pytest.mark.usefixtures("room_for_ten")
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (pack_members(_NAMES), b"SISMEMBER k 1"),
        (pack_fields(dict.fromkeys(_NAMES, b"v")), b"HGET k 1"),
        (pack_elements(_NAMES), b"LRANGE k 0 0"),
        (pack_members(_NAMES), b"OBJECT ENCODING k"),
    ],
)
def test_a_stored_collection_of_more_entries_is_not_unpacked(value: bytes, words: bytes) -> None:
    view = DictView()
    view.put(b"k", value, 0)

    assert b"-ERR a hash, set or list of 40 entries is too large" in _run(view, *words.split())
    assert _run(view, b"DEL", b"k") == b":1\r\n"


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 65_535, 65_536])
def test_a_value_says_how_many_entries_it_has(count: int) -> None:
    names = [b"%d" % number for number in range(count)]
    fields = dict.fromkeys(names, b"")

    assert count_of(pack_members(names)) == count_of(pack_elements(names)) == count
    assert count_of(pack_fields(fields)) == count
    assert count_of(b"\xffh") == 0
