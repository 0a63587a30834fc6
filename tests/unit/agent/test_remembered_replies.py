"""A request that is asked again gets the answer that it got first."""

import pytest

from quorate_agent.resp.remembered import KEPT_MS, REPLY_NOT_KEPT, remembering, request_key
from quorate_agent.resp.tables.table import COMMANDS
from quorate_differential.dict_view import DictView

KEY = request_key("ab12", 7)


def _ask(view: DictView, *words: bytes, key: bytes = KEY) -> bytes:
    command = remembering(COMMANDS[words[0].lower()], key)
    reply: bytes = command.handler(view, list(words))
    return reply


@pytest.mark.parametrize(
    ("words", "first", "value"),
    [
        ((b"INCR", b"k"), b":6\r\n", b"6"),
        ((b"APPEND", b"k", b"x"), b":2\r\n", b"5x"),
        ((b"SET", b"k", b"x", b"GET"), b"$1\r\n5\r\n", b"x"),
        ((b"GETDEL", b"k"), b"$1\r\n5\r\n", None),
    ],
)
def test_it_is_executed_once(words: tuple[bytes, ...], first: bytes, value: bytes | None) -> None:
    view = DictView()
    view.put(b"k", b"5", 0)

    assert [_ask(view, *words) for _ in range(3)] == [first] * 3
    row = view.get(b"k")
    assert (row.value if row is not None else None) == value


def test_another_request_is_another() -> None:
    view = DictView()
    assert _ask(view, b"INCR", b"k") == b":1\r\n"
    assert _ask(view, b"INCR", b"k", key=request_key("ab12", 8)) == b":2\r\n"
    assert _ask(view, b"INCR", b"k", key=request_key("ab13", 7)) == b":3\r\n"


def test_what_wrote_nothing_is_remembered_too() -> None:
    """Another attempt of it that comes later must not write what its client was told is not."""
    view = DictView()
    view.put(b"k", b"5", 0)
    assert _ask(view, b"SETNX", b"k", b"6") == b":0\r\n"
    view.delete(b"k")
    assert _ask(view, b"SETNX", b"k", b"6") == b":0\r\n"
    assert view.get(b"k") is None


def test_it_is_forgotten_when_nobody_asks_any_more() -> None:
    view = DictView(now_ms=1_000)
    assert _ask(view, b"INCR", b"k") == b":1\r\n"
    view.now_ms += KEPT_MS
    assert _ask(view, b"INCR", b"k") == b":1\r\n"
    view.now_ms += 1
    assert view.get(KEY) is None


def test_a_very_long_reply_is_not_kept_but_that_it_happened_is() -> None:
    view = DictView()
    view.put(b"k", bytes(2_000_000), 0)
    assert len(_ask(view, b"GETDEL", b"k")) > 2_000_000
    view.put(b"k", b"new", 0)
    assert _ask(view, b"GETDEL", b"k") == REPLY_NOT_KEPT
    row = view.get(b"k")
    assert row is not None
    assert row.value == b"new"
