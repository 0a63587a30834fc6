"""Clients that write beside a load, and the claim that it hurt nobody."""

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from quorate_cluster.cluster import Cluster
from quorate_cluster.outage import Pulses
from quorate_cluster.served import assert_served
from quorate_cluster.steadiness import changes, standing

NEVER = ("PartitionLost", "NewStore", "MigrationFailed")
"""What a machine that stands still is no excuse for."""


class Beside:
    """Four clients that write all the time; `waited_s`: the longest that one of them waited for an
    answer while the load went on, known at the end."""

    def __init__(self, cluster: Cluster, zone: str, pulses: Pulses) -> None:
        self.pulses = pulses
        self.waited_s = 0.0
        self._cluster = cluster
        self._zone = zone
        self._before = standing(cluster, zone)
        self._began = time.monotonic()

    def load_is_over(self) -> None:
        """Wait until every key was written behind the load."""
        self.pulses.wait_all_written_since(time.monotonic())
        self.waited_s = max(self.pulses.longest_gaps_s(self._began))

    def assert_served(
        self,
        *problems: object,
        waited_s_max: float = float("inf"),
        never: Collection[str] = NEVER,
    ) -> None:
        """Nothing that was acknowledged is lost, nobody was told what is not documented, no row
        changed, and nobody waited too long; `problems`: of the load itself.

        To be called when the clients have ended (`served.assert_served`)."""
        assert self.pulses.lost() == []
        assert self.pulses.undocumented() == []
        changed = changes(self._cluster, self._zone, self._before)
        assert [each for each in changed if each.startswith(tuple(never))] == []
        slow = [f"others waited {self.waited_s:.1f} s"] if self.waited_s > waited_s_max else []
        assert_served(self._cluster, [*slow, *problems, *changed, *self.pulses.failed])


@contextmanager
def clients_beside(cluster: Cluster, zone: str) -> Iterator[Beside]:
    """Let clients write while the block loads the cluster; wait for them behind it, unless the
    block did so with `load_is_over`."""
    with Pulses(cluster, zone, keys_max=4) as pulses:
        beside = Beside(cluster, zone, pulses)
        yield beside
        if not beside.waited_s:
            beside.load_is_over()
