"""The embedded operator's file: one process at a time, nothing lost, refusals that help."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from quorate.facts.topology import NodeRecord
from quorate.protocol.metastore import NodeKey, OutcomeUnknown, Stored
from quorate_operator.metastores.sqlite import SqliteMetastore
from quorate_operator.metastores.sqlite_file import DATABASE, LOCK, EmbeddedStore, StoreRefused

KEY = NodeKey("agent-1")
NODE = NodeRecord("agent-1", "store-1", 1, "127.0.0.1", 7100, "127.0.0.1")

_WRITER = """
import asyncio, sys
from pathlib import Path
from quorate_operator.metastores.sqlite_file import EmbeddedStore
from quorate_operator.metastores.sqlite import SqliteMetastore

async def main():
    metastore = SqliteMetastore(EmbeddedStore.open(Path(sys.argv[1])), "main")
    while True:
        print(await metastore.acquire_master_term(), flush=True)

asyncio.run(main())
"""


async def test_everything_is_there_after_the_file_was_closed_and_opened(tmp_path: Path) -> None:
    store = EmbeddedStore.open(tmp_path)
    metastore = SqliteMetastore(store, "main")
    revision = await metastore.write(KEY, NODE, None)
    term = await metastore.acquire_master_term()
    await store.close()

    store = EmbeddedStore.open(tmp_path)

    assert await SqliteMetastore(store, "main").read(KEY) == Stored(NODE, revision)
    assert await SqliteMetastore(store, "main").acquire_master_term() == term + 1
    await store.close()


async def test_clusters_do_not_see_each_other(tmp_path: Path) -> None:
    store = EmbeddedStore.open(tmp_path)
    await SqliteMetastore(store, "main").write(KEY, NODE, None)

    assert await SqliteMetastore(store, "other").load() == {}

    await store.close()


async def test_a_second_operator_on_the_folder_is_refused_by_file_and_process(
    tmp_path: Path,
) -> None:
    store = EmbeddedStore.open(tmp_path)

    with pytest.raises(StoreRefused) as refused:
        EmbeddedStore.open(tmp_path)

    assert str(tmp_path / LOCK) in str(refused.value)
    assert f"process {os.getpid()}" in str(refused.value)
    await store.close()
    await EmbeddedStore.open(tmp_path).close()


async def test_a_damaged_file_is_refused_by_name_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / DATABASE).write_bytes(b"this is no database, and never was one" * 200)

    with pytest.raises(StoreRefused, match=r"metastore\.sqlite cannot be used.*another folder"):
        EmbeddedStore.open(tmp_path)


async def test_a_file_of_another_format_version_is_refused(tmp_path: Path) -> None:
    await EmbeddedStore.open(tmp_path).close()
    connection = sqlite3.connect(tmp_path / DATABASE)
    with connection:
        connection.execute("UPDATE facts SET value = 99 WHERE name = 'format'")
    connection.close()

    with pytest.raises(StoreRefused, match=r"format version 99.*start the version") as refused:
        EmbeddedStore.open(tmp_path)
    assert "backup" not in str(refused.value)
    assert "recover" not in str(refused.value)


async def test_a_write_after_closing_has_an_unknown_outcome(tmp_path: Path) -> None:
    store = EmbeddedStore.open(tmp_path)
    await store.close()

    with pytest.raises(OutcomeUnknown):
        await SqliteMetastore(store, "main").write(KEY, NODE, None)


class _Planted(BaseException):
    """What no code should catch."""


@pytest.mark.parametrize(
    ("planted", "told"),
    [
        (ValueError("planted"), ValueError),
        (OverflowError("planted"), OverflowError),
        (MemoryError("planted"), MemoryError),
        (StopIteration("planted"), RuntimeError),
        (_Planted("planted"), _Planted),
        (sqlite3.OperationalError("planted"), OutcomeUnknown),
    ],
)
async def test_whatever_a_job_raises_reaches_its_caller_and_the_next_jobs_run(
    tmp_path: Path, planted: BaseException, told: type[BaseException]
) -> None:
    store = EmbeddedStore.open(tmp_path)

    def fails(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO facts VALUES ('half', 1)")
        raise planted

    with pytest.raises(told, match="planted"):
        await asyncio.wait_for(store.run(fails), 10)

    assert await asyncio.wait_for(store.run(_facts), 10) == ["format"]
    await asyncio.wait_for(store.close(), 10)


async def test_a_job_with_a_defect_is_undone_alone(tmp_path: Path) -> None:
    """Those that share its transaction are done."""
    store = EmbeddedStore.open(tmp_path)
    may_go_on = threading.Event()

    def put(name: str, error: Exception | None = None) -> Callable[[sqlite3.Connection], None]:
        def job(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT INTO facts VALUES (?, 1)", (name,))
            if error is not None:
                raise error

        return job

    held = asyncio.ensure_future(store.run(lambda _: may_go_on.wait(10)))
    together = asyncio.gather(
        store.run(put("first")),
        store.run(put("defect", KeyError("planted"))),
        store.run(put("last")),
        return_exceptions=True,
    )
    await asyncio.sleep(0)  # all of them wait behind the first
    may_go_on.set()

    first, defect, last = await asyncio.wait_for(together, 10)

    assert (first, last) == (None, None)
    assert isinstance(defect, KeyError)
    assert await held
    assert await store.run(_facts) == ["first", "format", "last"]
    await store.close()


def _facts(connection: sqlite3.Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM facts ORDER BY name")]


@pytest.mark.process
def test_a_killed_process_loses_no_term_it_told_of(tmp_path: Path) -> None:
    told = 0
    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        try:
            assert writer.stdout is not None
            first = int(writer.stdout.readline())
            assert first > told
            for _ in range(20):
                writer.stdout.readline()
        finally:
            writer.send_signal(signal.SIGKILL)
        told = max([told, *(int(line) for line in writer.communicate()[0].split())])

    async def next_term() -> int:
        store = EmbeddedStore.open(tmp_path)
        term = await SqliteMetastore(store, "main").acquire_master_term()
        await store.close()
        return term

    assert asyncio.run(next_term()) > told
