"""The quick reader returns what the strict reader returns, also of streams that are damaged."""

from hypothesis import given, settings
from hypothesis import strategies as st

from quorate_agent.resp.reading.parser import CommandParser
from quorate_agent.resp.reading.quick_reader import WORD_BYTES_MAX, WORDS_MAX, read_quickly
from quorate_differential.raw_replies import encode_command

_word = st.one_of(
    st.binary(max_size=30),
    st.sampled_from(
        [
            b"GET",
            b"key1",
            b"\r\n*2",
            b"$3\r\n",
            b"\r",
            b"*3",
            b"%1~>|",
            b"",
            b"x" * 1023,
            b"x" * 1024,
        ]
    ),
)
_command = st.lists(_word, min_size=1, max_size=4)
# Commands of all lengths, and of one.
_stream = st.one_of(
    st.lists(_command, min_size=1, max_size=5),
    st.integers(1, 4).flatmap(
        lambda words: st.lists(st.lists(_word, min_size=words, max_size=words), max_size=5)
    ),
)
# Where, and what stands there instead; and how much of the end is missing.
_damage = st.tuples(st.integers(0, 200), st.binary(max_size=2), st.integers(0, 20))


def _strictly(data: bytes) -> list[list[bytes]] | None:
    """The commands of `data` if it ends where one does."""
    parser = CommandParser()
    commands: list[list[bytes]] = []
    for byte in data:  # a byte is never a whole command
        commands += parser.feed(bytes((byte,)))
    return None if parser.error is not None or parser.pending_bytes else commands


def _is_plain(command: list[bytes]) -> bool:
    return len(command) <= WORDS_MAX and all(
        len(word) <= WORD_BYTES_MAX and b"\r\n" not in word for word in command
    )


@settings(derandomize=True, max_examples=3000, deadline=None)
@given(_stream, st.none() | _damage)
def test_as_the_strict_reader(
    commands: list[list[bytes]], damage: tuple[int, bytes, int] | None
) -> None:
    data = b"".join(map(encode_command, commands))
    if damage is not None and data:
        at, instead, missing = damage[0] % len(data), damage[1], damage[2]
        data = (data[:at] + instead + data[at + len(instead) :])[: len(data) - missing]

    found, size = read_quickly(data)

    assert _strictly(data[:size]) == found
    if damage is None:
        plain = next((n for n, each in enumerate(commands) if not _is_plain(each)), len(commands))
        assert found == commands[:plain]


@settings(derandomize=True, max_examples=500, deadline=None)
@given(_stream, st.integers(1, 3))
def test_nothing_is_read_that_is_not_complete(commands: list[list[bytes]], missing: int) -> None:
    data = b"".join(map(encode_command, commands))[:-missing]

    found, size = read_quickly(data)

    assert found == commands[: len(found)]
    assert len(found) < len(commands) or not commands
    assert size == len(b"".join(map(encode_command, found)))
