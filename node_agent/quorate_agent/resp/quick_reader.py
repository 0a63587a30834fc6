"""Which commands a chunk of bytes spells, when it is whole and harmless: hiredis, guarded.

hiredis reads four times as fast as Python could.  But it believes any array header (a few bytes
would make it reserve gigabytes), takes kinds of values that no client may send, and cannot tell
where in the stream it stands.  So it only gets chunks that start at a command and in which no
header can cost much, and its answer only counts when it shows that the chunk ended exactly at the
end of a command.  Chunks cut in a command, values with `*` or `~` in them, long commands and
garbage are left to the strict reader of `connection`.
"""

import re
from itertools import chain

import hiredis

_RETURN, _NEWLINE = b"\r\n"
# No header of more than two digits: what hiredis reserves for one stays below a kilobyte.
_LONG_HEADER = re.compile(rb"\*[0-9]{3}")
_MORE = object()
# One for the process: between two calls it holds nothing.
_reader = hiredis.Reader(notEnoughData=_MORE)


def read_quickly(data: bytes) -> list[list[bytes]] | None:
    """The commands of `data`, which starts at a command, if it consists of whole ones and that can
    be proved; None when it does not or cannot."""
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
        commands: list[list[bytes]] = list(iter(reader.gets, _MORE))
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
