"""The embedded operator's storage: one SQLite file, one process, one thread.

All jobs run on a thread of their own, so that no fsync blocks the event loop.  Jobs that arrive
while one runs share the next transaction: a commit costs one fsync, however many shards it holds.
A job that fails is rolled back alone.
"""

import asyncio
import contextlib
import fcntl
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from quorate.facts.errors import QuorateError
from quorate.protocol.metastore import OutcomeUnknown
from quorate_operator.metastores.backups import DATABASE, back_up, way_out

FORMAT = "format"
"""The fact that tells the format of the file."""
FORMAT_VERSION = 1
LOCK = "operator.lock"
USED = "operator.json"
"""Written by each operator once it listens (__main__.py)."""
_TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS records (
    cluster TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, shard INTEGER NOT NULL,
    revision INTEGER NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (cluster, kind, name, shard)
) STRICT;
CREATE TABLE IF NOT EXISTS objects (
    kind TEXT NOT NULL, name TEXT NOT NULL, manifest BLOB NOT NULL, PRIMARY KEY (kind, name)
) STRICT;
"""

T = TypeVar("T")
Job = Callable[[sqlite3.Connection], Any]


class StoreRefused(QuorateError):
    """The folder cannot be used; the message names the file and the way out."""


class EmbeddedStore:
    """An open folder.  `run` may be called only from the event loop that opened it."""

    def __init__(self, folder: Path, lock: int, connection: sqlite3.Connection) -> None:
        self.path = folder / DATABASE
        self.folder = folder
        self._lock = lock
        self._connection = connection
        self._jobs: queue.SimpleQueue[tuple[Job, asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="metastore", daemon=True)
        self._thread.start()

    @classmethod
    def open(cls, folder: Path) -> "EmbeddedStore":
        """Lock the folder and check the file; make both if needed.

        Raises StoreRefused, also if an operator has run before and its file is gone: agents have
        data that the file knew of.
        """
        folder.mkdir(parents=True, exist_ok=True)
        lock = _take_lock(folder / LOCK)
        try:
            _check_not_lost(folder)
            connection = _connect(folder / DATABASE)
        except BaseException:
            os.close(lock)
            raise
        return cls(folder, lock, connection)

    async def run(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run a job in a transaction; return its result once that is durable.

        Raises what the job raised, including a defect of the job (it is rolled back then).  Raises
        OutcomeUnknown for all jobs of the transaction if SQLite failed.
        """
        if self._closed:
            raise OutcomeUnknown(f"{self.path} is closed")
        done: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put((job, done))
        # Cancelling a caller must not cancel the future that the thread will complete.
        return await asyncio.shield(done)

    async def back_up(self) -> Path:
        """Copy the file while jobs go on; return where to.  Raises OSError, sqlite3.Error."""
        return await asyncio.to_thread(back_up, self.folder)

    async def close(self) -> None:
        """Finish what is queued, close the file, release the folder."""
        if self._closed:
            return
        self._closed = True
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)
        try:
            self._connection.close()
        finally:
            os.close(self._lock)

    # --- the thread ------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            taken = [self._jobs.get()]
            with contextlib.suppress(queue.Empty):
                while True:
                    taken.append(self._jobs.get_nowait())
            jobs = [each for each in taken if each is not None]
            if jobs:
                self._transact(jobs)
            if len(jobs) < len(taken):
                return

    def _transact(self, jobs: list[tuple[Job, asyncio.Future[Any]]]) -> None:
        outcomes: list[tuple[asyncio.Future[Any], Any, BaseException | None]] = []
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            for job, done in jobs:
                connection.execute("SAVEPOINT job")
                try:
                    outcomes.append((done, job(connection), None))
                except sqlite3.Error:
                    raise
                except Exception as error:  # an outcome, or a defect of the job: for its caller
                    connection.execute("ROLLBACK TO job")
                    outcomes.append((done, None, error))
                connection.execute("RELEASE job")
            connection.execute("COMMIT")
        except BaseException as error:  # whatever it is, callers must not wait for ever
            if isinstance(error, sqlite3.Error):
                error = OutcomeUnknown(f"{self.path}: {error}")
            outcomes = [(done, None, error) for _, done in jobs]
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits
            self._loop.call_soon_threadsafe(_settle, outcomes)


def _settle(outcomes: list[tuple[asyncio.Future[Any], Any, BaseException | None]]) -> None:
    for done, value, error in outcomes:
        if done.cancelled():
            continue
        if error is None:
            done.set_result(value)
        elif isinstance(error, StopIteration):  # a future accepts no StopIteration
            done.set_exception(RuntimeError(f"a job raised {error!r}"))
        else:
            done.set_exception(error)


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Keep operators off the folder inside the block.  Raises StoreRefused if one has it."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = _take_lock(folder / LOCK)
    try:
        yield
    finally:
        os.close(lock)


def _take_lock(path: Path) -> int:
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(lock, 32).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise StoreRefused(
            f"{path} is held by another operator, process {holder}: stop that one first, "
            "or give --data another folder"
        ) from error
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _check_not_lost(folder: Path) -> None:
    if (folder / USED).exists() and not (folder / DATABASE).exists():
        raise StoreRefused(f"{folder / DATABASE} is missing: {way_out(folder)}")


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        _prepare(connection)
        found = _format(connection)
    except (sqlite3.Error, StoreRefused) as error:
        connection.close()
        raise StoreRefused(f"{path} cannot be used: {error}: {way_out(path.parent)}") from error
    if found != FORMAT_VERSION:
        connection.close()  # sound: neither a backup nor a recovery is needed
        raise StoreRefused(
            f"{path} has format version {found}, this operator knows {FORMAT_VERSION}:"
            " start the version of the operator that wrote it"
        )
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise StoreRefused(f"it is damaged ({found})")
    connection.executescript(_TABLES)


def _format(connection: sqlite3.Connection) -> int:
    """Return the file's format; a new file gets the present one."""
    version = connection.execute("SELECT value FROM facts WHERE name = ?", (FORMAT,)).fetchone()
    if version is None:
        connection.execute("INSERT INTO facts VALUES (?, ?)", (FORMAT, FORMAT_VERSION))
        return FORMAT_VERSION
    return int(version[0])
