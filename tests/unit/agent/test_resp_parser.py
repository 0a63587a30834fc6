"""The parser cuts commands out of any stream, however it is chunked, within its limits."""

import tracemalloc
from random import Random

import pytest

from quorate_agent.resp.command import WORD_BYTES
from quorate_agent.resp.reading import parser as parser_module
from quorate_agent.resp.reading.parser import FREE_BYTES, CommandParser
from quorate_agent.resp.reading.quick_reader import WORD_BYTES_MAX, WORDS_MAX, read_quickly
from quorate_differential.byte_streams import ODD_STREAMS, random_stream
from quorate_differential.command_streams import random_command
from quorate_differential.exemptions import is_exempt_stream
from quorate_differential.raw_replies import encode_command

MUTATED = 10_000
VALUE = b"v" * 100


def _fed(stream: bytes, chunk_bytes: int) -> tuple[list[list[bytes]], bytes | None, int]:
    parser = CommandParser()
    commands = []
    for at in range(0, len(stream), chunk_bytes):
        commands += parser.feed(stream[at : at + chunk_bytes])
    return commands, parser.error, parser.pending_bytes


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 17, 1000, 1 << 20])
def test_commands_come_out_as_they_were_sent_however_they_are_chunked(chunk_bytes: int) -> None:
    random = Random(chunk_bytes)
    commands = [random_command(random) for _ in range(200)]
    commands.append([b"SET", b"big", random.randbytes(100_000)])
    commands += [[b"SET", b"k", VALUE]] * 50
    stream = b"".join(map(encode_command, commands))

    assert _fed(stream, chunk_bytes) == (commands, None, 0)


def test_inline_commands_come_out_between_others() -> None:
    stream = b"PING\r\n" + encode_command([b"GET", b"k"]) + b'set k "a b"\n\r\n'

    assert _fed(stream, 1000) == ([[b"PING"], [b"GET", b"k"], [b"set", b"k", b"a b"]], None, 0)


def test_ten_thousand_mutated_streams_give_the_same_in_any_chunks_and_never_raise() -> None:
    random = Random(5)
    for _ in range(MUTATED):
        stream = random_stream(random)
        whole = _fed(stream, len(stream) or 1)
        pieces = _fed(stream, random.randint(1, 30))

        assert pieces == whole or is_exempt_stream(stream), stream


@pytest.mark.parametrize("stream", ODD_STREAMS, ids=lambda stream: repr(stream[:30]))
def test_nothing_is_read_after_an_error(stream: bytes) -> None:
    parser = CommandParser()
    parser.feed(stream)
    if parser.error is not None:
        assert parser.feed(b"PING\r\n") == []
        assert parser.pending_bytes == 0


@pytest.mark.parametrize(
    "header",
    [
        b"*999999999\r\n",
        b"*1048577\r\n",
        b"~999999999\r\n",
        b">999999999\r\n",
        b"|999999999\r\n",
        b"%999999999\r\n",
        b"*2\r\n$1\r\na\r\n*999999999\r\n",
        b"*2\r\n$1\r\na\r\n~999999999\r\n",
        b"*2\r\n$1\r\na\r\n>999999999\r\n",
        b"*2\r\n$1\r\na\r\n|999999999\r\n",
        b"*1048576\r\n",
        b"*1\r\n$67108864\r\n",
        b"*99\r\n" * 10_000,
        b"*1\r\n" * 10_000,
    ],
    ids=lambda header: repr(header[:30]),
)
def test_a_header_reserves_no_memory(header: bytes) -> None:
    tracemalloc.start()
    try:
        CommandParser().feed(header)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 1 << 20


def test_a_long_value_is_gathered_without_copying_it_again_for_every_chunk() -> None:
    size = 8 << 20
    parser = CommandParser()
    parser.feed(b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % size)
    for _ in range(size >> 16):
        assert parser.feed(b"x" * (1 << 16)) == []

    assert parser.pending_bytes == size + 4 + 2 * WORD_BYTES
    assert parser.feed(b"\r") == []
    (command,) = parser.feed(b"\n")
    assert command == [b"ECHO", b"x" * size]
    assert parser.pending_bytes == 0


@pytest.mark.parametrize("size", [9_000, 20_000, 80_000])
@pytest.mark.parametrize("chunk_bytes", [1, 777, 40_000])
def test_a_command_above_its_limit_is_dropped_alone(
    monkeypatch: pytest.MonkeyPatch, size: int, chunk_bytes: int
) -> None:
    monkeypatch.setattr(parser_module, "QUERY_BYTES_MAX", 70_000)
    after = [b"SET", b"k", b"x" * 100]
    stream = encode_command([b"MSET", *[b"x" * size] * 9]) + encode_command(after)

    assert _fed(stream, chunk_bytes) == (
        [[b"-ERR command of more than 70000 bytes\r\n"], after],
        None,
        0,
    )


def test_the_limit_of_a_command_is_one_of_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser_module, "QUERY_BYTES_MAX", 100_000)
    words = [b"DEL", *[b"0123456789"] * 9_999]

    assert _fed(encode_command(words), 40_000) == ([words], None, 0)


def test_a_string_that_is_too_long_is_dropped_alone_and_none_of_it_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parser_module, "BULK_BYTES_MAX", 100_000)
    parser = CommandParser()
    stream = encode_command([b"SET", b"k", b"x" * 500_000])
    for at in range(0, len(stream) - 1, 50_000):
        assert parser.feed(stream[at : min(at + 50_000, len(stream) - 1)]) == []
        assert parser.reserved_bytes < 50_000

    assert parser.feed(stream[-1:]) == [
        [b"-ERR string of 500000 bytes: at most 100000 may be sent\r\n"]
    ]
    assert parser.error is None


def test_who_declares_more_than_anybody_waits_for_is_disconnected() -> None:
    parser = CommandParser()
    parser.feed(b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % (parser_module.DROPPED_BYTES_MAX + 1))

    assert parser.error == b"-ERR Protocol error: invalid bulk length\r\n"


def test_whether_there_is_memory_is_asked_before_it_is_taken() -> None:
    asked: list[int] = []

    def admit(more: int) -> bytes:
        asked.append(more)
        return b"-OOM\r\n" if sum(asked) > 3 << 20 else b""

    parser = CommandParser(admit)
    value = b"v" * (2 << 20)
    streams = [
        encode_command([b"SET", b"a", value]),
        encode_command([b"MSET", b"a", value, b"b", value]),
    ]
    commands = [
        command
        for stream in streams
        for at in range(0, len(stream), 100_000)
        for command in parser.feed(stream[at : at + 100_000])
    ]

    assert commands == [[b"SET", b"a", value], [b"-OOM\r\n"]]
    assert parser.took_large
    assert parser.pending_bytes == 0


@pytest.mark.parametrize(
    "commands",
    [
        [[b"SET", b"key", VALUE]],
        [[b"GET", b"key"]] * 16,
        [[b"GET", b"key"], [b"GET", b"longer key"]],
        [[b"SET", b"key", bytes(range(256))], [b"GET", b"key"], [b"MGET", b"a", b"bb", b"ccc"]],
        [[b"SET", b"key", VALUE * 10], [b"DEL", b"key"]],
    ],
)
def test_the_quick_reader_is_used_for_what_most_clients_send(commands: list[list[bytes]]) -> None:
    stream = b"".join(map(encode_command, commands))

    assert read_quickly(stream) == (commands, len(stream))
    assert read_quickly(stream + b"*2\r\n$3\r\nGET\r\n$4\r\nke") == (commands, len(stream))


@pytest.mark.parametrize("before", [[], [[b"GET", b"key"]], [[b"GET", b"key"], [b"PING"]]])
@pytest.mark.parametrize(
    "stream",
    [
        b"*2\r\n$3\r\nGET\r\n$4\r\nkey1xx",
        b"*2\r\n$3\r\nGET\r\n$4\r\nkey1",
        b"*2\r\n$3\r\nGET\r\n$4\r\nkey1\r",
        b"*2\r\n$03\r\nGET\r\n$4\r\nkey1\r\n",
        b"*2\r\n$3\r\nGET\r\n$+4\r\nkey1\r\n",
        b"*02\r\n$3\r\nGET\r\n$4\r\nkey1\r\n",
        b"*3\r\n$3\r\nSET\r\n$4\r\nkey1\r\n$ 1\r\nv\r\n",
        b"*3\r\n$3\r\nGET\r\n$4\r\nkey1\r\n",
        b"*2\r\n$3\r\nSET\r\n+key1\r\n",
        b"*1\r\n*1\r\n$4\r\nPING\r\n",
        b"*999999999\r\n",
        b"PING\r\n",
        b"\r\n",
    ],
)
def test_the_quick_reader_leaves_everything_else_to_the_strict_one(
    before: list[list[bytes]], stream: bytes
) -> None:
    plain = b"".join(map(encode_command, before))

    assert read_quickly(plain + stream) == (before, len(plain))


def test_a_command_that_the_quick_reader_takes_is_too_small_to_be_asked_for() -> None:
    assert WORDS_MAX * (WORD_BYTES_MAX + WORD_BYTES) <= FREE_BYTES
