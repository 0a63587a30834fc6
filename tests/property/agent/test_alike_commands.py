"""Commands that are short or alike are read as the strict reader reads them, also when they are
damaged."""

from hypothesis import given, settings
from hypothesis import strategies as st

from quorate_agent.resp.reading.parser import CommandParser
from quorate_agent.resp.reading.quick_reader import read_alike, read_alone
from quorate_differential.raw_replies import encode_command

_word = st.one_of(
    st.binary(min_size=4, max_size=4),
    st.sampled_from([b"key1", b"\r\n*2", b"$3\r\n", b"a" * 12, b"", b"x" * 600]),
)
_streams = st.tuples(st.sampled_from([b"GET", b"INCR"]), st.lists(_word, min_size=1, max_size=5))
# Where, and what stands there instead.
_damage = st.tuples(st.integers(0, 200), st.binary(max_size=2))


def _strictly(data: bytes) -> list[list[bytes]] | None:
    """The commands of `data` if it ends where one does."""
    parser = CommandParser()
    commands: list[list[bytes]] = []
    for byte in data:  # a byte is never a whole command
        commands += parser.feed(bytes((byte,)))
    return None if parser.error is not None or parser.pending_bytes else commands


@settings(derandomize=True, max_examples=1500, deadline=None)
@given(_streams, st.none() | _damage)
def test_alike_or_not(stream: tuple[bytes, list[bytes]], damage: tuple[int, bytes] | None) -> None:
    name, words = stream
    data = b"".join(encode_command([name, word]) for word in words)
    if damage is not None:
        at = damage[0] % len(data)
        data = data[:at] + damage[1] + data[at + len(damage[1]) :]

    commands = read_alike(data)

    assert commands is None or commands == _strictly(data)
    if damage is None and len({len(word) for word in words}) == 1 and 0 < len(words[0]) < 512:
        assert commands is not None


@settings(derandomize=True, max_examples=1500, deadline=None)
@given(st.lists(_word, min_size=1, max_size=4), st.none() | _damage, st.booleans())
def test_alone_or_not(
    words: list[bytes], damage: tuple[int, bytes] | None, is_followed: bool
) -> None:
    data = encode_command(words) + (encode_command([b"PING"]) if is_followed else b"")
    if damage is not None:
        at = damage[0] % len(data)
        data = data[:at] + damage[1] + data[at + len(damage[1]) :]

    commands = read_alone(data)

    assert commands is None or commands == _strictly(data)
    if damage is None and not is_followed and len(words) in (2, 3):
        is_short = all(len(word) < 512 and b"\r\n" not in word for word in words)
        assert (commands is not None) == is_short
