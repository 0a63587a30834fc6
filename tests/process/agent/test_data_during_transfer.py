"""What clients write and delete while copies are filled: nothing comes back, nothing is undone.

Real agents, an agent that joins and gets full copies, and a look at the rows of every copy.
"""

import random
import time
from contextlib import ExitStack

import pytest

from quorate_cluster.agreement import copies_rows, differences, unsettled
from quorate_cluster.background import Background
from quorate_cluster.changes import grow
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import Measured, StartCluster
from quorate_cluster.waiting import wait_until
from quorate_differential.raw_replies import RawConnection

pytestmark = [pytest.mark.process, pytest.mark.timeout(400)]

KEYS = tuple(f"key-{number}" for number in range(1500))
STABLE = tuple(f"stable-{number}" for number in range(300))
PADDING = "." * 4000
"""Such values make a copy that takes many pieces."""


class _Changes(Background):
    """Keys are deleted, or get ever new values, in no order; what each has in the end is noted."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.last: dict[str, str | None] = {}
        self.count = 0
        self._client = cluster.client("z")
        self.add_road(self._change)

    def _change(self) -> None:
        chance = random.Random(5)
        while not self.stop.is_set():
            self.count += 1
            key = chance.choice(KEYS)
            if chance.random() < 0.5:
                self._client.delete(key)
                self.last[key] = None
            else:
                value = f"{self.count}{PADDING}"
                self._client.set(key, value)
                self.last[key] = value


class _ReadonlyReads(Background):
    """Every agent that listens is asked for keys that are there throughout, from READONLY
    connections; each says what it has, or that it has no copy that may be read."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.missing: list[tuple[str, str]] = []
        self.answered: dict[str, int] = {}
        self._cluster = cluster
        self.add_road(self._read)

    def _read(self) -> None:
        chance = random.Random(6)
        with ExitStack() as opened:
            connections: dict[str, RawConnection] = {}
            while not self.stop.is_set():
                for name, port in self._cluster.zone("z")["status"]["ports"].items():
                    if name not in connections:
                        connections[name] = opened.enter_context(
                            RawConnection("127.0.0.1", int(port))
                        )
                        assert connections[name].ask([b"READONLY"]) == b"+OK\r\n"
                for name, connection in connections.items():
                    keys = chance.choices(STABLE, k=20)
                    replies = connection.ask_all([[b"GET", key.encode()] for key in keys])
                    for key, reply in zip(keys, replies, strict=True):
                        if reply.startswith(b"-MOVED"):
                            continue
                        self.answered[name] = self.answered.get(name, 0) + 1
                        if reply != b"$1\r\nv\r\n":
                            self.missing.append((name, f"{key}: {reply[:60]!r}"))


def test_nothing_comes_back_or_goes_back_while_full_copies_are_made(
    start_cluster: StartCluster, measured: Measured
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=16)
    client = cluster.client("z")
    with client.pipeline() as pipe:
        for key in STABLE:
            pipe.set(key, "v")
        for key in KEYS * 3:  # the log is larger than the rows: newcomers get full copies
            pipe.set(key, PADDING)
        pipe.execute()

    with _Changes(cluster) as changes, _ReadonlyReads(cluster) as reads:
        wait_until(lambda: changes.count > 100, "changes")
        began, before = time.monotonic(), changes.count
        grow(cluster)
        took, during = time.monotonic() - began, changes.count - before
        wait_until(lambda: reads.answered.get("agent-4", 0) > 100, "reads of the new copies")
    wait_until(lambda: not unsettled(cluster, "z", 3), "rest", 60)

    measured("changes beside an agent that joins", f"{during} in {took:.1f} s")
    assert during > 10
    assert cluster.zone_status("z")["full_copies"] > 0  # not deltas from logs
    assert reads.missing == []
    # What deleted keys leave goes at each copy in its own time.
    wait_until(lambda: not differences(cluster, "z"), "equal copies", 30)
    wrong = []
    for agent, rows in copies_rows(cluster, "z"):
        found = {row[0]: row[4] for row in rows}  # forwarded commands leave some of their own
        wrong += [
            f"{agent}: {key} is back"
            for key, value in changes.last.items()
            if value is None and found.get(key.encode()) is not None
        ]
        wrong += [
            f"{agent}: {key} is {row[:20]!r}, and {value[:20]} was written"
            for key, value in changes.last.items()
            if value is not None
            and (row := found.get(key.encode(), value.encode())) != value.encode()
        ]
    assert wrong == []
    assert {key: client.get(key) for key in changes.last} == {
        key: None if value is None else value.encode() for key, value in changes.last.items()
    }
