"""What the reader of traces must see, with planted disorder."""

import pytest

from quorate_cluster.system_calls import read_calls, replies_before_durable

_LOG = "23<" + "".join(f"\\x{each:02x}" for each in b"/data/000012.log") + ">"
_OTHER_LOG = "24</data/000013.log>"
_SOCKET = "31<TCP:[127.0.0.1:7000->127.0.0.1:5555]>"


def _hex(data: bytes) -> str:
    return '"' + "".join(f"\\x{each:02x}" for each in data) + '"'


def _write(value: bytes) -> str:
    return f"77 write({_LOG}, {_hex(b'..' + value + b'..')}, 9) = 9"


_REPLY = f"77 write({_SOCKET}, {_hex(b'+OK' + bytes([13, 10]))}, 5) = 5"
_SYNC = f"78 fdatasync({_LOG}) = 0"
_SYNC_BEGINS = f"78 fdatasync({_LOG} <unfinished ...>"
_SYNC_ENDS = "78 <... fdatasync resumed>) = 0"


def _judge(*lines: str, values: tuple[bytes, ...] = (b"v1",)) -> list[str]:
    return replies_before_durable(read_calls(lines), {5555: [*values]})


def test_a_reply_after_the_sync_is_in_order() -> None:
    assert _judge(_write(b"v1"), _SYNC, _REPLY) == []
    assert _judge(_write(b"v1"), _SYNC_BEGINS, _SYNC_ENDS, _REPLY) == []


@pytest.mark.parametrize(
    "lines",
    [
        (_REPLY, _write(b"v1"), _SYNC),
        (_write(b"v1"), _REPLY, _SYNC),
        (_write(b"v1"), _SYNC_BEGINS, _REPLY, _SYNC_ENDS),
        (_SYNC_BEGINS, _write(b"v1"), _SYNC_ENDS, _REPLY),
        (_SYNC, _write(b"v1"), _REPLY),
    ],
)
def test_a_reply_before_the_end_of_a_sync_that_started_after_the_write_is_found(
    lines: tuple[str, ...],
) -> None:
    assert _judge(*lines) == ["v1: answered before the log was synced"]


def test_two_replies_in_one_write_answer_two_values() -> None:
    two = _REPLY.replace(_hex(b"+OK\r\n"), _hex(b"+OK\r\n+OK\r\n"))
    lines = (_write(b"v1"), _SYNC, _write(b"v2"), two, _SYNC)

    assert _judge(*lines, values=(b"v1", b"v2")) == ["v2: answered before the log was synced"]


def test_a_sync_of_another_file_does_not_count() -> None:
    lines = (_write(b"v1"), _SYNC.replace(_LOG, _OTHER_LOG), _REPLY)

    assert _judge(*lines) == ["v1: answered before the log was synced"]


def test_a_value_that_never_reached_the_log_and_a_lost_reply_are_found() -> None:
    assert _judge(_SYNC, _REPLY) == ["v1: never written to the log"]
    assert _judge(_write(b"v1"), _SYNC) == [
        "client 5555: 0 answers traced of 1",
    ]
