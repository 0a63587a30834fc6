"""How long keys could not be written while something happened to a cluster."""

import itertools
import time
from contextlib import closing
from functools import partial
from typing import Any, Protocol, Self

from redis.cluster import RedisCluster

from quorate.facts.keyspace import key_partition
from quorate_cluster.background import Background
from quorate_cluster.client_errors import CLIENT_ERRORS, text_of, undocumented
from quorate_cluster.waiting import wait_until


def key_in_each(partitions: int) -> list[str]:
    """One key per partition, in order of the partitions."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < partitions:
        key = f"pulse-{number}"
        found.setdefault(key_partition(key.encode(), partitions), key)
        number += 1
    return [found[partition] for partition in range(partitions)]


class ServesZones(Protocol):
    """What Pulses need of a cluster: as `Cluster` has it, and what runs in pods."""

    def zone(self, name: str) -> dict[str, Any]:
        """The Zone, as an object."""
        ...

    def client(self, zone: str, **options: Any) -> RedisCluster:
        """A stock client of the zone."""
        ...


class Pulses(Background):
    """One stock client per key, each in a thread of its own that writes 1, 2, 3, … for ever.

    What a client reports to its caller after its own retries is a failed command.  The keys are
    spread over the partitions from `first` on, not too many of them: threads cost what they
    measure.  A frozen agent answers nothing: there a client learns of another primary after
    `socket_timeout_s`.
    """

    def __init__(
        self,
        cluster: ServesZones,
        zone: str,
        *,
        keys_max: int = 16,
        first: int = 0,
        every_s: float = 0.05,
        socket_timeout_s: float = 8,
        protocol: int = 3,
    ) -> None:
        super().__init__()
        partitions = int(cluster.zone(zone)["spec"]["partitions"])
        step = max(1, partitions // keys_max)
        self.keys = key_in_each(partitions)[first::step]
        self.acknowledged_at: dict[str, list[float]] = {key: [] for key in self.keys}
        self.last_acknowledged: dict[str, int] = dict.fromkeys(self.keys, 0)
        self.failed: list[tuple[float, str, str]] = []
        """(when, key, what the client said)."""
        self._cluster = cluster
        self._zone = zone
        self._every_s = every_s
        self._socket_timeout_s = socket_timeout_s
        self._protocol = protocol
        for key in self.keys:
            self.add_road(partial(self._pulse, key))

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self.wait_all_written_since(time.monotonic())
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def wait_all_written_since(self, moment: float, timeout_s: float = 60) -> None:
        """Wait until every key was written by a command that began after `moment`."""
        wait_until(
            lambda: all(len(self._since(key, moment)) > 1 for key in self.keys),
            "write to every key",
            timeout_s,
            lambda: (
                [key for key in self.keys if not self._since(key, moment)],
                [said for _, _, said in self.failed[-3:]],
            ),
        )

    def longest_gaps_s(self, since: float) -> list[float]:
        """Per key the longest time between two acknowledged writes that ended after `since`."""
        gaps = []
        for key in self.keys:
            times = self.acknowledged_at[key]
            pairs = itertools.pairwise(times)
            gaps.append(max((b - a for a, b in pairs if b >= since), default=float("inf")))
        return gaps

    def lost(self) -> list[str]:
        """Keys that hold less than was acknowledged, read now (after the pulses have ended)."""
        with closing(self._cluster.client(self._zone)) as client:
            found = {key: int(client.get(key) or 0) for key in self.keys}
        return [
            f"{key}: {found[key]} although {self.last_acknowledged[key]} was acknowledged"
            for key in self.keys
            if found[key] < self.last_acknowledged[key]
        ]

    def undocumented(self) -> list[str]:
        """What clients were told that nobody may be told."""
        return undocumented(said for _, _, said in self.failed)

    def _since(self, key: str, moment: float) -> list[float]:
        return [each for each in self.acknowledged_at[key][-10:] if each >= moment]

    def _pulse(self, key: str) -> None:
        made = self._cluster.client(
            self._zone, socket_timeout=self._socket_timeout_s, protocol=self._protocol
        )
        with closing(made) as client:
            value = 0
            while not self.stop.wait(self._every_s):
                value += 1
                try:
                    client.set(key, value)
                except CLIENT_ERRORS as error:
                    self.failed.append((time.monotonic(), key, text_of(error)))
                else:
                    self.last_acknowledged[key] = value
                    self.acknowledged_at[key].append(time.monotonic())
