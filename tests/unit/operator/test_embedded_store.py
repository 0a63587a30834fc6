"""The embedded operator's file: one process at a time, nothing lost, refusals that help."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from quorate.facts.topology import NodeRecord
from quorate.protocol.metastore import NodeKey, OutcomeUnknown
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

    assert await SqliteMetastore(store, "main").read(KEY) == (NODE, revision)
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

    with pytest.raises(StoreRefused, match="format version 99"):
        EmbeddedStore.open(tmp_path)


async def test_a_write_after_closing_has_an_unknown_outcome(tmp_path: Path) -> None:
    store = EmbeddedStore.open(tmp_path)
    await store.close()

    with pytest.raises(OutcomeUnknown):
        await SqliteMetastore(store, "main").write(KEY, NODE, None)


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
