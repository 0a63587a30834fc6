"""Long values of a Persistent zone: stored in files, written before the batch that refers to them.

The engine holds the GIL while it writes a batch, and writes each value at least twice: into its log
and into a table.  So a thread writes each long update of the turn into a file (`value_files.py`)
while the loop goes on.  The turn's batch has references instead: the log to the whole file, and the
rows of the update to their parts of it.

    w number key        -> bytes of the file that the row or the update under `key` refers to
    w number            -> the same key; of a value that an earlier version wrote in pieces
    v number piece      -> such a piece

A file without references is garbage: its turn found no room or replaced it, or the process ended
before the turn's batch.
"""

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Executor, Future
from errno import EFBIG
from struct import Struct
from typing import Final

from rocksdict import WriteBatch

from quorate.facts.errors import NO_ROOM
from quorate.protocol.storage import StorageFull
from quorate_agent.folder.identity import START_ANEW
from quorate_agent.storage import DatabaseRefused, StorageBroken
from quorate_agent.storage.database import Database
from quorate_agent.storage.value_files import ValueFiles, checksum

LONG_BYTES: Final = 512 * 1024
"""A longer value or update is kept in a file.  Making and syncing a file takes as long as the
engine takes for a value of some 700 KiB."""

REFERENCE: Final = Struct(">QQQQ")
"""Number of the file; offset of the value in it; its length; its checksum."""

REFERENCE_TO_PIECES: Final = Struct(">QQ")
"""Number and length of a value."""

_NO_ROOM: Final = (*NO_ROOM, EFBIG)

_PIECE: Final = Struct(">cQI")
_OWNER: Final = Struct(">cQ")
_SIZE: Final = Struct(">Q")
_BYTES_HEAD: Final = Struct(">BI")
_BYTES_32: Final = 0xC6
"""In MessagePack, the first byte of bytes longer than 64 KiB."""


class _File:
    """A file of this turn."""

    __slots__ = ("data", "is_written", "number", "partition", "users")

    def __init__(self, number: int, data: bytes, partition: int) -> None:
        self.number = number
        self.data = data
        self.partition = partition
        self.users = 0  # how many of the turn's rows and updates refer to it
        self.is_written = False


class _Long:
    """A value of this turn: a file, or a part of one."""

    __slots__ = ("file", "offset", "summed", "value")

    def __init__(self, file: _File, offset: int, value: bytes) -> None:
        self.file = file
        self.offset = offset
        self.value = value
        self.summed: int | None = None  # its checksum, once a batch refers to it
        file.users += 1


class LongValues:
    """The long values of one database.  Opening reads which ones exist, not their content."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.files = ValueFiles(database.path.parent / "values")
        # Numbers by the key that refers to them, in one dict for each space and log.
        self._owned: dict[bytes, dict[bytes, int]] = {}
        self._users: dict[int, int] = {}  # how many keys refer to each file
        self._old_garbage: list[int] = []  # in pieces; the next batch removes them
        self._next = 1
        self._read_owners()
        # This turn's: long values by key; the update of each (partition, counter, term), of which
        # rows may be a part.
        self._turn: dict[bytes, _Long] = {}
        self._updates: dict[tuple[int, int, int], _File] = {}
        self._writing: Future[None] | None = None
        self._being_written: list[_File] = []
        self._error: OSError | None = None  # why the last files could not be written
        self._threads: Executor | None = None
        self._written: Callable[[], object] = lambda: None
        # This batch's.
        self._referred: dict[bytes, _Long] = {}
        self._removed: dict[bytes, int] = {}

    def _read_owners(self) -> None:
        sizes: dict[int, int] = {}
        for key, data in self._database.items(b"w", b"x"):
            _, number = _OWNER.unpack_from(key)
            self._next = number + 1
            if len(key) > _OWNER.size:
                owner = key[_OWNER.size :]
                (sizes[number],) = _SIZE.unpack(data)
                self._users[number] = self._users.get(number, 0) + 1
            elif data:
                owner = data
            else:
                self._old_garbage.append(number)
                continue
            self.owned(_prefix_of(owner))[owner] = number
        wrong = self.files.check(sizes)
        if wrong:
            raise DatabaseRefused(f"{wrong}. Way out: {START_ANEW}")
        self._next = max(self._next, self.files.last_number + 1)

    def write_in(self, threads: Executor, written: Callable[[], object]) -> None:
        """Write files in one of `threads` from now on, when `write_ahead` is called.

        The thread calls `written` when some are done."""
        self._threads, self._written = threads, written

    def owned(self, prefix: bytes) -> dict[bytes, int]:
        """Return the numbers of the values that a space or a log has in the database, by whole key.

        Always the same dict."""
        return self._owned.setdefault(prefix, {})

    # --- the turn

    def take_update(self, key: bytes, name: tuple[int, int, int], update: bytes) -> None:
        """Take a long update of the turn; `name` is its (partition, counter, term)."""
        file = self._updates[name] = self._new_file(update, name[0])
        self._take(key, _Long(file, 0, update))

    def take_row(self, key: bytes, name: tuple[int, int, int], value: bytes) -> None:
        """Take a row of the turn with a long value; it shares the file of update `name` if that
        contains it."""
        file = self._updates.get(name)
        offset = -1 if file is None else _find(file.data, value)
        if file is None or offset < 0:
            file, offset = self._new_file(value, name[0]), 0
        self._take(key, _Long(file, offset, value))

    def _new_file(self, data: bytes, partition: int) -> _File:
        self._next += 1
        return _File(self._next - 1, data, partition)

    def _take(self, key: bytes, long: _Long) -> None:
        self._forget(key)
        self._turn[key] = long

    def _forget(self, key: bytes) -> None:
        before = self._turn.pop(key, None)
        if before is not None:
            self._let_go(before.file)

    def _let_go(self, file: _File) -> None:
        """Count one reference of the turn less to the file."""
        file.users -= 1
        if not file.users and file.is_written and file.number not in self._users:
            self.files.unused(file.number)

    def write_ahead(self) -> Collection[int]:
        """Start writing the turn's files; return the partitions that still lack some."""
        self._look_at_thread()
        missing = self._missing()
        if not missing or self._error is not None or self._threads is None:
            return ()  # `commit` writes them, or says why it cannot
        if self._writing is None:
            try:
                self._database.use_value_files()
            except StorageFull:
                return ()  # `commit` finds that too
            self._being_written = missing
            values = {file.number: file.data for file in missing}
            self._writing = self._threads.submit(self._write, values)
        return {file.partition for file in missing}

    def _write(self, values: dict[int, bytes]) -> None:
        try:
            self.files.write(values)
        finally:
            self._written()

    def _missing(self) -> list[_File]:
        """Return the turn's files that are not written yet, each once, in order."""
        found = {
            long.file.number: long.file for long in self._turn.values() if not long.file.is_written
        }
        return list(found.values())

    def _look_at_thread(self, wait: bool = False) -> None:
        """Take over what the thread has done; `wait`: until it is done."""
        writing = self._writing
        if writing is None or not (wait or writing.done()):
            return
        error = writing.exception()
        self._writing = None
        files, self._being_written = self._being_written, []
        if isinstance(error, OSError):
            self._error = error if any(file.users for file in files) else None
            return
        if error is not None:
            raise error
        for file in files:
            file.is_written = True
            if not file.users:
                self.files.unused(file.number)

    def write_rest(self, waiting: Collection[int]) -> None:
        """Write the files that the turn's batch still lacks, except those of partitions in
        `waiting`.

        StorageFull, StorageBroken: they cannot be written."""
        missing = [file for file in self._missing() if file.partition not in waiting]
        if missing and self._writing is not None:
            self._look_at_thread(wait=True)
            missing = [file for file in missing if not file.is_written]
        if not missing:
            return
        error, self._error = self._error, None
        if error is None:
            try:
                self._database.use_value_files()
                self.files.write({file.number: file.data for file in missing})
            except OSError as failed:
                error = failed
        if error is None:
            for file in missing:
                file.is_written = True
            return
        text = f"{error.filename or self._database.path.parent}: {error.strerror or error}"
        if error.errno in _NO_ROOM:
            raise self._database.without_room(text) from error
        raise self._database.broken(f"{text}. Way out: {START_ANEW}") from error

    # --- the batch

    def begin_batch(self) -> None:
        """Begin the turn's batch, or begin it again."""
        self._referred.clear()
        self._removed.clear()

    def refer(self, key: bytes, batch: WriteBatch) -> bytes:
        """Return the reference that the batch stores in place of the value taken under `key`."""
        long = self._referred[key] = self._turn[key]
        file = long.file
        batch.put(_OWNER.pack(b"w", file.number) + key, _SIZE.pack(len(file.data)))
        if long.summed is None:  # the engine may ask for the batch again while it stalls
            long.summed = checksum(long.value)
        return REFERENCE.pack(file.number, long.offset, len(long.value), long.summed)

    def remove(self, keys: Iterable[bytes], owned: dict[bytes, int], batch: WriteBatch) -> None:
        """Remove with the batch the values stored under these keys of `owned`."""
        for key in keys:
            self._removed[key] = number = owned[key]
            if number in self._users:
                batch.delete(_OWNER.pack(b"w", number) + key)
            else:
                _remove_pieces(number, batch)

    def write_to(self, batch: WriteBatch) -> None:
        """Remove pieces without references.  Call it after the spaces and logs."""
        for number in self._old_garbage:
            _remove_pieces(number, batch)

    def end_batch(self, committed: bool, waiting: Collection[int]) -> None:
        """Take note that the batch is in the database, or was dropped.

        Values of partitions in `waiting` belong to a later batch."""
        if committed:
            for key, number in self._removed.items():
                del self._owned[_prefix_of(key)][key]
                self._forget_user(number)
            for key, long in self._referred.items():
                number = long.file.number
                self._owned[_prefix_of(key)][key] = number
                self._users[number] = self._users.get(number, 0) + 1
            self._old_garbage.clear()
        for key in [k for k, long in self._turn.items() if long.file.partition not in waiting]:
            self._forget(key)
        self._updates = {name: file for name, file in self._updates.items() if name[0] in waiting}
        self.begin_batch()

    def _forget_user(self, number: int) -> None:
        left = self._users.get(number)
        if left is None:
            return  # it was in pieces, and was removed with the batch
        if left > 1:
            self._users[number] = left - 1
        else:
            del self._users[number]
            self.files.unused(number)

    @property
    def in_turn(self) -> bool:
        """Whether the turn has long values."""
        return bool(self._turn)

    def close(self) -> None:
        """Wait for the thread."""
        self._look_at_thread(wait=True)

    # --- reading

    def read(self, reference: bytes) -> bytes:
        """Return the value; StorageBroken: some of it is missing."""
        return self.files.read(*REFERENCE.unpack(reference))

    def read_pieces(self, reference: bytes) -> bytes:
        """Return a value that an earlier version wrote; StorageBroken: some of it is missing."""
        number, length = REFERENCE_TO_PIECES.unpack(reference)
        pieces = self._database.items(
            _PIECE.pack(b"v", number, 0), _PIECE.pack(b"v", number + 1, 0)
        )
        data = b"".join([piece for _, piece in pieces])
        if len(data) != length:
            raise StorageBroken(
                f"{self._database.path}: of value {number} there are {len(data)} bytes, it had"
                f" {length}. Way out: {START_ANEW}"
            )
        return data


def _find(update: bytes, value: bytes) -> int:
    """Return the offset of the value in an encoded update; -1 if it is not there."""
    head = _BYTES_HEAD.pack(_BYTES_32, len(value))
    at = update.find(head)
    while at >= 0:
        if update.startswith(value, at + len(head)):
            return at + len(head)
        at = update.find(head, at + 1)
    return -1


def _prefix_of(key: bytes) -> bytes:
    """Return the prefix of the key's space or log in `rocks.py`."""
    return key[:7] if key[:1] == b"r" else key[:3]


def _remove_pieces(number: int, batch: WriteBatch) -> None:
    batch.delete(_OWNER.pack(b"w", number))
    batch.delete_range(_PIECE.pack(b"v", number, 0), _PIECE.pack(b"v", number + 1, 0))
