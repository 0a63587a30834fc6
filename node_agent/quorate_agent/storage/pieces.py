"""How a Persistent zone keeps long values: in pieces, written before the batch that refers to them.

The engine holds the GIL while it writes a batch, and a value of 64 MiB would make it hold the GIL
for half a second.  So a long value of the turn is written in batches of its own, some of it per
call of `write_ahead`; the turn's batch then has a reference in the value's place.

    v number piece      -> some of a value
    w number            -> the key of the row or update that refers to it; empty: none does, yet

A value without a reference is garbage: its turn found no room or replaced it, or the process ended
before the turn's batch.  The next batch removes it.  The log of the engine keeps the order of
batches, so what is referred to is there.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from rocksdict import WriteBatch

from quorate_agent.data_folder import START_ANEW
from quorate_agent.storage import StorageBroken
from quorate_agent.storage.database import Database

LONG_BYTES: Final = 256 * 1024
"""A value of more bytes, or an update, is kept in pieces."""

PIECE_BYTES: Final = 1024 * 1024
"""Two milliseconds, about; twenty where the machine is busy."""

STEP_PIECES: Final = 2
"""Pieces that one call writes: more than the links of an agent bring meanwhile, so a turn ends."""

REFERENCE: Final = Struct(">QQ")
"""Number and length of a value."""

_PIECE: Final = Struct(">cQI")
_OWNER: Final = Struct(">cQ")


class _Long:
    """A value of this turn, and how much of it is in the database."""

    __slots__ = ("data", "number", "written")

    def __init__(self, data: bytes, number: int) -> None:
        self.data = data
        self.number = number
        self.written = 0


class Pieces:
    """The long values of one database.  Opening reads which there are, not what they hold."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # Numbers by the key that refers to them, in a dict for each space and log.
        self._owned: dict[bytes, dict[bytes, int]] = {}
        self._garbage: list[int] = []
        self._next = 1
        for key, owner in database.items(b"w", b"x"):
            _, number = _OWNER.unpack(key)
            self._next = number + 1
            if owner:
                self.owned(_prefix_of(owner))[owner] = number
            else:
                self._garbage.append(number)
        # This turn's: long values by key, those that a row or an update has at its end, the
        # numbers that its batch removes.
        self._turn: dict[bytes, _Long] = {}
        self._ahead: list[_Long] = []
        self._referred: dict[bytes, int] = {}
        self._removed: dict[bytes, int] = {}

    def owned(self, prefix: bytes) -> dict[bytes, int]:
        """The numbers of the values that a space, or a log, has in the database, by whole key;
        always the same dict."""
        return self._owned.setdefault(prefix, {})

    # --- the turn

    def take(self, key: bytes, data: bytes) -> None:
        """The turn has written `data`, which is long, under `key`."""
        before = self._turn.get(key)
        if before is not None:
            before.data = b""  # nothing more of it is written
            if before.written:
                self._garbage.append(before.number)
        long = self._turn[key] = _Long(data, self._next)
        self._next += 1
        self._ahead.append(long)

    def write_ahead(self) -> bool:
        """Write some of the turn's long values; whether all of them are in the database.

        StorageFull: the rest of them is not, as nothing of the turn will be."""
        left = STEP_PIECES
        ahead = self._ahead
        while ahead:
            long = ahead[-1]
            while long.written < len(long.data):
                if not left:
                    return False
                if not self._write_piece(long):
                    return False  # the engine is busy with what was written before
                left -= 1
            ahead.pop()
        return True

    def _write_piece(self, long: _Long) -> bool:
        if not long.written:
            self._database.use_pieces()
        at = long.written

        def batch() -> WriteBatch:
            made = WriteBatch(raw_mode=True)
            if not at:
                made.put(_OWNER.pack(b"w", long.number), b"")
            piece = long.data[at : at + PIECE_BYTES]
            made.put(_PIECE.pack(b"v", long.number, at // PIECE_BYTES), piece)
            return made

        if not self._database.write(batch, once=True):
            return False
        long.written = min(at + PIECE_BYTES, len(long.data))
        return True

    def refer(self, key: bytes, batch: WriteBatch) -> bytes:
        """Return the reference that the batch stores in place of the value taken under `key`."""
        long = self._turn[key]
        batch.put(_OWNER.pack(b"w", long.number), key)
        self._referred[key] = long.number
        return REFERENCE.pack(long.number, len(long.data))

    def remove(self, keys: Iterable[bytes], owned: dict[bytes, int], batch: WriteBatch) -> None:
        """Delete with the batch the values stored under these keys of `owned`."""
        for key in keys:
            self._removed[key] = number = owned[key]
            _remove(number, batch)

    def write_to(self, batch: WriteBatch) -> None:
        """Add what becomes of the values that nothing refers to.  Spaces and logs come before."""
        for number in self._garbage:
            _remove(number, batch)
        for key, long in self._turn.items():
            if long.written and key not in self._referred:
                _remove(long.number, batch)

    def begin_batch(self) -> None:
        """The turn's batch is made, perhaps anew."""
        self._referred.clear()
        self._removed.clear()

    def end_turn(self, committed: bool) -> None:
        """The batch is in the database, or gone."""
        if committed:
            for key in self._removed:
                del self._owned[_prefix_of(key)][key]
            for key, number in self._referred.items():
                self._owned[_prefix_of(key)][key] = number
            self._garbage.clear()
        else:
            self._garbage += [long.number for long in self._turn.values() if long.written]
        self._turn.clear()
        self._ahead.clear()
        self.begin_batch()

    @property
    def in_turn(self) -> bool:
        """Whether the turn has long values."""
        return bool(self._turn)

    # --- reading

    def read(self, reference: bytes) -> bytes:
        """The value; StorageBroken: some of it is missing."""
        number, length = REFERENCE.unpack(reference)
        pieces: list[bytes] = []
        for index in range(-(-length // PIECE_BYTES)):
            piece = self._database.get(_PIECE.pack(b"v", number, index))
            pieces.append(piece or b"")
        data = b"".join(pieces)
        if len(data) != length:
            raise StorageBroken(
                f"{self._database.path}: of value {number} there are {len(data)} bytes, it had"
                f" {length}. Way out: {START_ANEW}"
            )
        return data


def _prefix_of(key: bytes) -> bytes:
    """The space, or the log, of a key of `rocks.py`."""
    return key[:7] if key[:1] == b"r" else key[:3]


def _remove(number: int, batch: WriteBatch) -> None:
    batch.delete(_OWNER.pack(b"w", number))
    batch.delete_range(_PIECE.pack(b"v", number, 0), _PIECE.pack(b"v", number + 1, 0))
