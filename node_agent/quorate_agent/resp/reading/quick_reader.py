"""Which commands a chunk of bytes spells, when it is whole and harmless: hiredis, guarded.

One short command, and several that differ in one word of the same length, as GETs of UUIDs do, are
cut out without it.

hiredis reads four times as fast as Python could.  But it believes any array header (a few bytes
would make it reserve gigabytes), takes kinds of values that no client may send, and cannot tell
where in the stream it stands.  So hiredis only gets chunks that start at a command and in which no
header can cost much, and its answer only counts when it shows that the chunk ended exactly at the
end of a command.  Chunks cut in a command, values with `*` or `~` in them, long commands and
garbage are left to the strict reader of `connection`.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from struct import Struct

import hiredis

_RETURN, _NEWLINE = b"\r\n"
# No header of more than two digits: what hiredis reserves for one stays below a kilobyte.
_LONG_HEADER = re.compile(rb"\*[0-9]{3}")
_MORE = object()
# One for the process: between two calls it holds nothing.
_reader = hiredis.Reader(notEnoughData=_MORE)

_TWO = ord("2")
_ALIKE_MAX = 128
"""More are as quick one by one; what is remembered of each number of them stays small."""
# The header of the second string is looked for where the first one is a command's name.
_HEAD_BYTES_MAX = 48
_SIZES = {b"%d" % size: size for size in range(1, 512)}
_HEADERS = [b"$%d" % size for size in range(512)]


def read_alone(data: bytes) -> list[list[bytes]] | None:
    """The command of `data` when it is one of two or three short words without line breaks."""
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
        pass  # a long word
    return None


@lru_cache(maxsize=256)
def _first_word(head: bytes) -> bytes | None:
    """The first word of a command of two when `head` is all up to the size of the second."""
    parts = head.split(b"\r\n")
    if len(parts) == 4 and parts[0] == b"*2" and parts[1] == b"$%d" % len(parts[2]):
        return parts[2]
    return None


@lru_cache(maxsize=256)
def _second_words(before: int, size: int, times: int) -> Callable[[bytes], tuple[bytes, ...]]:
    return Struct(f"{before}x{size}s2x" * times).unpack


def read_alike(data: bytes) -> list[list[bytes]] | None:
    """The commands of `data` when all have two words, the first the same and the second of the
    same length: GETs of keys that are UUIDs or numbers with leading zeros."""
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
    # The proof: put together again they are what came.
    head = data[:start]
    if head + (b"\r\n" + head).join(words) + b"\r\n" != data:
        return None
    return [[name, word] for word in words]


def read_quickly(data: bytes) -> list[list[bytes]] | None:
    """The commands of `data`, which starts at a command, if it consists of whole ones and that can
    be proved; None when it does not or cannot."""
    if (commands := read_alone(data)) is not None:
        return commands
    if len(data) > 4 and data[1] == _TWO and (commands := read_alike(data)) is not None:
        return commands
    # Other kinds of arrays (%>|~) do not come from clients.  Asking for numbers, because that is
    # three times as quick as asking for strings.
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
        # Every array consumed its own `*`; so with none left over no array was begun inside another
        # or at the end, and of what else hiredis answers only bytes have a length.  With no bytes
        # left over nothing else was begun either, but for a kind (`$`) at the very end, which
        # hiredis consumes by itself.
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
