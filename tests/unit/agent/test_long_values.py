"""Values that come in several reads of the socket."""

import pytest

from quorate_agent.resp.reading.parser import CommandParser


@pytest.mark.parametrize("chunk_bytes", [1 << 18, 1 << 16, 70_001, 299_998])
@pytest.mark.parametrize("size", [100_000, 299_960, 1_000_000])
@pytest.mark.parametrize("after", [b"", b"*1\r\n$4\r\nPING\r\n"])
def test_a_command_that_ends_with_a_long_value_ends_with_its_last_byte(
    chunk_bytes: int, size: int, after: bytes
) -> None:
    value = bytes(range(256)) * (size // 256)
    sent = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%b\r\n%b" % (len(value), value, after)
    parser = CommandParser()

    commands = [
        command
        for at in range(0, len(sent), chunk_bytes)
        for command in parser.feed(sent[at : at + chunk_bytes])
    ]

    assert commands == [[b"SET", b"k", value], *([[b"PING"]] if after else [])]
    assert parser.pending_bytes == 0
