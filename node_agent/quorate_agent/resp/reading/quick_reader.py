"""Parses a chunk of complete, harmless commands quickly: hiredis with safeguards.

A short command alone, and commands that differ in one word of the same length, such as GETs of
UUIDs, are parsed without hiredis.

hiredis is four times as fast as Python could be.  But it believes any array header (a few bytes
would make it reserve gigabytes), accepts types that no client may send, and cannot tell where in
the stream it stands.  So it only gets chunks that start at a command and in which no header can
cost much, and its result only counts if it proves that the chunk ended exactly at the end of a
command.  Chunks cut inside a command, values with `*` or `~` in them, long commands and garbage are
left to the strict reader (`parser.py`).
"""

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from struct import Struct

import hiredis

_RETURN, _NEWLINE = b"\r\n"
# No header has more than two digits, so hiredis reserves less than a kilobyte for each.
_LONG_HEADER = re.compile(rb"\*[0-9]{3}")
_MORE = object()
# One for the process: it holds nothing between calls.
_reader = hiredis.Reader(notEnoughData=_MORE)

_TWO = ord("2")
_ALIKE_MAX = 128
"""Larger batches are as quick one by one; this bounds what is cached for each batch size."""
# How far to look for the header of the second string, behind a command's name.
_HEAD_BYTES_MAX = 48
_SIZES = {b"%d" % size: size for size in range(1, 512)}
_HEADERS = [b"$%d" % size for size in range(512)]


def read_alone(data: bytes) -> list[list[bytes]] | None:
    """Return the command of `data` if it is a single one of two or three short words.

    The words must not contain line breaks."""
    parts = data.split(b"\r\n", 7)
    try:
        if len(parts) == 6:
            count, name_size, name, key_size, key, rest = parts
            if (
                count == b"*2"
                and not rest
                and key_size == _HEADERS[len(key)]
                and name_size == _HEADERS[len(name)]
            ):
                return [[name, key]]
        elif len(parts) == 8:
            count, name_size, name, key_size, key, value_size, value, rest = parts
            if (
                count == b"*3"
                and not rest
                and value_size == _HEADERS[len(value)]
                and key_size == _HEADERS[len(key)]
                and name_size == _HEADERS[len(name)]
            ):
                return [[name, key, value]]
    except IndexError:
        pass  # a word is too long
    return None


@lru_cache(maxsize=256)
def _first_word(head: bytes) -> bytes | None:
    """Return the first word of a two-word command; `head` is everything up to the size of the
    second."""
    parts = head.split(b"\r\n")
    if len(parts) == 4 and parts[0] == b"*2" and parts[1] == b"$%d" % len(parts[2]):
        return parts[2]
    return None


@lru_cache(maxsize=256)
def _second_words(before: int, size: int, times: int) -> Callable[[bytes], tuple[bytes, ...]]:
    return Struct(f"{before}x{size}s2x" * times).unpack


def read_alike(data: bytes) -> list[list[bytes]] | None:
    """Return the commands of `data` if all have the same name and one argument of the same length.

    Such are GETs of keys that are UUIDs or numbers with leading zeros."""
    at = data.find(b"\r\n$", 4, _HEAD_BYTES_MAX) + 3
    end = data.find(b"\r\n", at, at + 5)
    name, size = _first_word(data[:at]), _SIZES.get(data[at:end])
    if name is None or size is None or end < 0:
        return None
    start = end + 2
    times, left = divmod(len(data), start + size + 2)
    if left or times > _ALIKE_MAX:
        return None
    words = _second_words(start, size, times)(data)
    # The proof: joined again, they give the input.
    head = data[:start]
    if head + (b"\r\n" + head).join(words) + b"\r\n" != data:
        return None
    return [[name, word] for word in words]


def read_quickly(data: bytes) -> list[list[bytes]] | None:
    """Return the commands of `data`, which starts at a command; None if it is not provably
    complete."""
    if (commands := read_alone(data)) is not None:
        return commands
    if len(data) > 4 and data[1] == _TWO and (commands := read_alike(data)) is not None:
        return commands
    # Clients send no other kinds of arrays (%>|~).  Testing for integers is three times as quick as
    # testing for strings.
    if data[:1] != b"*" or 0x25 in data or 0x3E in data or 0x7C in data or 0x7E in data:
        return None
    stars = data.count(b"*")
    if _RETURN not in data[1:4] if stars == 1 else _LONG_HEADER.search(data):
        return None
    global _reader
    reader = _reader
    try:
        reader.feed(data)
        commands = list(iter(reader.gets, _MORE))
        # Every array consumed its own `*`; so if all are accounted for, no array began inside
        # another or at the end, and of what else hiredis returns only bytes have a length.  If no
        # bytes are left over, nothing else began either, except for a type byte (`$`) at the very
        # end, which hiredis consumes by itself.
        if (
            stars == len(commands)
            and data[-1] == _NEWLINE
            and not reader.has_data()
            and all(commands)
            and sum(map(len, chain.from_iterable(commands))) > 0
        ):
            return commands
    except (hiredis.HiredisError, TypeError, ValueError, MemoryError):
        pass  # not a stream of commands, or not one that a client may send
    _reader = hiredis.Reader(notEnoughData=_MORE)
    return None
