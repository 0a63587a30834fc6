"""Sends a long message in pieces, so that short ones need not wait behind all of it.

A piece is a frame whose length has the highest bit set, the next bit with the last piece of a
message, and the third bit with pieces of bulk.  Pieces of one message follow each other; between
them may be whole frames, and of a message that is no bulk those of one that is.
"""

from collections.abc import Iterator
from typing import Final

from quorate.facts.errors import WireError

HEADER_BYTES: Final = 4
PIECE_BYTES: Final = 256 * 1024
LONG_BYTES: Final = 2 * PIECE_BYTES
"""A message whose frame would be longer is sent in pieces."""

IS_PIECE: Final = 1 << 31
_IS_LAST: Final = 1 << 30
_IS_BULK: Final = 1 << 29
_LENGTH: Final = _IS_BULK - 1


class LongFrame:
    """A message that is cut as its pieces are sent: all of them together are as long as it is, and
    new memory for them would cost more than to write it.  `body`: without a header."""

    __slots__ = ("_body", "_size")

    def __init__(self, body: bytes) -> None:
        self._body = memoryview(body)
        self._size = len(body) + HEADER_BYTES * -(-len(body) // PIECE_BYTES)

    def __len__(self) -> int:
        """Bytes of all pieces."""
        return self._size

    def pieces(self, *, bulk: bool = False) -> Iterator[bytes]:
        """Make the pieces, in order."""
        body = self._body
        kind = IS_PIECE | (_IS_BULK if bulk else 0)
        for at in range(0, len(body), PIECE_BYTES):
            some = body[at : at + PIECE_BYTES]
            last = _IS_LAST if at + PIECE_BYTES >= len(body) else 0
            yield b"".join([(kind | last | len(some)).to_bytes(HEADER_BYTES, "big"), some])


class LongFrames:
    """The long messages of which some pieces have come."""

    __slots__ = ("_bulk", "_ordinary")

    def __init__(self) -> None:
        self._ordinary = bytearray()
        self._bulk = bytearray()

    @property
    def pending_bytes(self) -> int:
        """Bytes that have come of messages that are not complete."""
        return len(self._ordinary) + len(self._bulk)

    def length(self, header: int, bytes_max: int) -> int:
        """How many bytes of a piece follow.  WireError: it is none, or its message is too long."""
        if not header & IS_PIECE:
            raise WireError(f"frame of {header} bytes: limit {bytes_max}")
        length = header & _LENGTH
        before = len(self._bulk if header & _IS_BULK else self._ordinary)
        if before + length > bytes_max:
            raise WireError(f"frame of {before + length} bytes: limit {bytes_max}")
        return length

    def take(self, header: int, some: memoryview) -> bytearray | None:
        """Add a piece; the message that it completes."""
        if not header & _IS_BULK:
            self._ordinary += some
            if not header & _IS_LAST:
                return None
            body, self._ordinary = self._ordinary, bytearray()
            return body
        self._bulk += some
        if not header & _IS_LAST:
            return None
        body, self._bulk = self._bulk, bytearray()
        return body
