"""The cost of keys and of zones: memory and disk of an agent that has one copy."""

import os
from pathlib import Path

from figures.report import Section
from figures.size import Size

from quorate_cluster.cluster import Cluster
from quorate_cluster.processes import HOST, Agent
from quorate_cluster.routing import keys_by_port
from quorate_differential.raw_replies import RawConnection
from sections.memory import rss

PARTITIONS = 64
_ZONES = 5
_PIPELINE_BYTES = 1 << 20


def keys_in_memory(size: Size) -> Section:
    """Keys of a zone with storage: InMemory."""
    return _keys(size, "InMemory")


def keys_on_disk(size: Size) -> Section:
    """Keys of a zone with storage: Persistent."""
    return _keys(size, "Persistent")


def zones(_: Size) -> Section:
    """Zones without a key."""
    section = Section(
        "A zone without keys",
        f"One agent with {_ZONES} zones of each kind; the figures are for one of them.",
        ("storage", "partitions", "resident", "disk", "descriptors"),
    )
    for storage in ("InMemory", "Persistent"):
        for partitions in (16, 64, 1024):
            with Cluster(agents=1) as cluster:
                agent = cluster.agents["agent-1"]
                before = _taken(agent)
                for number in range(_ZONES):
                    cluster.apply_zone(f"z{number}", partitions=partitions, storage=storage)
                taken = [
                    (now - then) / _ZONES for now, then in zip(_taken(agent), before, strict=True)
                ]
            resident, disk, files = taken
            section.add(
                storage, f"{partitions:,}", f"{resident / 1e6:.2f} MB", f"{disk / 1e6:.2f} MB",
                f"{files:.0f}",
            )  # fmt: skip
    return section


def _keys(size: Size, storage: str) -> Section:
    section = Section(
        f"One copy of keys, {storage}",
        f"One agent, one zone of {PARTITIONS} partitions, one copy; keys of 16 bytes, each written"
        " once. Three copies cost this on three agents. Resident and disk are above those of the"
        " empty zone; 'in all' is for the keys and values alone. 'Restarted' is after the agent"
        " has ended and started again.",
        ("keys", "value", "in all", "resident", "per key", "disk", "per key", "disk, restarted"),
    )
    many = size.keys
    for count, value in (
        (many // 10, 16), (many // 10, 100), (many // 10, 1000), (many // 100, 10_000), (many, 100),
    ):  # fmt: skip
        with Cluster(agents=1) as cluster:
            agent = cluster.agents["agent-1"]
            cluster.apply_zone("z", partitions=PARTITIONS, storage=storage)
            memory, disk, _ = _taken(agent)
            _load(cluster.port("z", "agent-1"), count, value)
            used, filled, _ = _taken(agent)
            again = ""
            if storage == "Persistent":
                agent.terminate()
                agent.start()
                cluster.wait_available("z")
                again = f"{(_taken(agent)[1] - disk) / 1e6:.0f} MB"
            section.add(
                f"{count:,}", f"{value:,} B", f"{count * (16 + value) / 1e6:.0f} MB",
                f"{(used - memory) / 1e6:.0f} MB", f"{(used - memory) / count:.0f} B",
                f"{(filled - disk) / 1e6:.0f} MB" if again else "",
                f"{(filled - disk) / count:.0f} B" if again else "", again,
            )  # fmt: skip
    return section


def _load(port: int, count: int, size: int) -> None:
    step = max(1, min(1000, _PIPELINE_BYTES // size))
    for its, keys in keys_by_port(port, count).items():
        with RawConnection(HOST, its, 60) as connection:
            for start in range(0, len(keys), step):
                # Nothing that a storage engine could make shorter.
                sets = [[b"SET", key, os.urandom(size)] for key in keys[start : start + step]]
                replies = connection.ask_all(sets)
                assert set(replies) == {b"+OK\r\n"}, replies


def _taken(agent: Agent) -> tuple[int, int, int]:
    """Resident bytes, bytes on disk, open descriptors."""
    files = [path.stat() for path in agent.data.rglob("*") if path.is_file()]
    open_ones = len(list(Path(f"/proc/{agent.pid}/fd").iterdir()))
    return rss([agent.pid]), sum(each.st_blocks * 512 for each in files), open_ones
