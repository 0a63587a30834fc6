"""One row of one copy made wrong on the disk of an agent that does not run, as a bad disk would."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rocksdict import WriteBatch

from quorate.facts.keyspace import key_partition
from quorate_agent.storage.database import Database
from quorate_nodes.release.installed import CLUSTER, NAMESPACE, Installed
from quorate_nodes.volumes import volume_of

_ROWS = b"r"
_SPACE_BYTES = 1 + 2 + 4
"""Kind, partition and generation: what stands before the key."""


def data_of(installed: Installed, agent: str) -> Path:
    """The folder of the agent's data, as the node has it."""
    node, _, number = volume_of(installed, agent).rpartition("-")
    return installed.nodes.node(node).volume(int(number)) / "agent"


def damage_row(data: Path, zone_uid: str, partitions: int, key: bytes) -> None:
    """Turn over the last byte of the row of `key`; its counter, term and digest stay.

    Whoever owned the files owns them afterwards."""
    folder = data / "zones" / zone_uid
    partition = key_partition(key, partitions)
    with _as_owner(folder / "rocksdb"):
        database = Database(folder)
        try:
            first, end = (_ROWS + each.to_bytes(2) for each in (partition, partition + 1))
            ((stored, row),) = (
                (name, row)
                for name, row in database.items(first, end)
                if name[_SPACE_BYTES:] == key
            )
            batch = WriteBatch(raw_mode=True)
            batch.put(stored, row[:-1] + bytes([row[-1] ^ 1]))
            database.write(lambda: batch)
            assert database.sync()
        finally:
            database.close()


@contextmanager
def stopped(installed: Installed, agent: str) -> Iterator[None]:
    """The agent's pod ends as one that is drained does, and waits until the node may be used again;
    in the end everything is whole."""
    name = f"{CLUSTER}-{agent}-0"
    pod = installed.get("pod", name)
    node = pod["spec"]["nodeName"]
    installed.nodes.kubectl("cordon", node)
    try:
        installed.kubectl("delete", "pod", name, "--timeout=90s")

        def waits() -> bool:
            found = installed.nodes.found("pod", name, NAMESPACE)
            return found is not None and "nodeName" not in found["spec"]

        installed.wait(waits, f"{name} without a node")
        yield
    finally:
        installed.nodes.kubectl("uncordon", node)
    installed.wait_whole()


@contextmanager
def _as_owner(folder: Path) -> Iterator[None]:
    owner = folder.stat()
    try:
        yield
    finally:
        for path in folder.rglob("*"):
            shutil.chown(path, owner.st_uid, owner.st_gid)
            if path.is_file():
                os.chmod(path, path.stat().st_mode | 0o060)
