"""Clients that never stop: what they wrote and read is kept for `history.find_violations`."""

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.exceptions import ClusterDownError, ResponseError
from redis.retry import Retry

from quorate_cluster.background import Background
from quorate_cluster.client_errors import CLIENT_ERRORS
from quorate_cluster.cluster import Cluster
from quorate_cluster.direct_reads import DirectReads
from quorate_cluster.history import ABSENT, Outcome, Read, Write
from quorate_cluster.waiting import wait_until

_NEVER_WRITTEN = -1
_DIRECT_EVERY_S = 0.05
_TIMEOUTS_S = (1.5, 12)
"""Clients by turns: one soon asks elsewhere, one hears what a frozen agent says when it thaws."""


class Workload(Background):
    """Threads that write increasing values to keys of their own, and threads that read them.

    Clients do not repeat a command by themselves: whether a lost one was applied is for the history
    to say.  `with Workload(cluster, zone) as load:` runs until its end.  `name` begins the keys:
    two workloads on one zone must not have the same.
    """

    def __init__(
        self,
        cluster: Cluster,
        zone: str,
        *,
        writers: int = 4,
        readers: int = 2,
        keys_per_writer: int = 16,
        pause_s: float = 0.012,
        seed: int = 0,
        name: str = "w",
    ) -> None:
        super().__init__()
        self.writes: list[Write] = []
        self.reads: list[Read] = []
        self.errors: dict[str, int] = {}
        self.keys: list[str] = []
        """All keys ever written to: appended to by the writers."""
        self._cluster = cluster
        self._zone = zone
        self._keys_per_writer = keys_per_writer
        self._pause_s = pause_s
        self._seed = seed
        self._name = name
        for number in range(writers):
            self.add_road(partial(self._write, number))
        for number in range(readers):
            self.add_road(partial(self._read, number))
        self.add_road(self._read_directly)

    @property
    def acknowledged(self) -> int:
        """Writes acknowledged so far."""
        return sum(1 for write in self.writes if write.outcome is Outcome.ACKNOWLEDGED)

    def wait_for_writes(self, count: int) -> None:
        """Until so many more are acknowledged."""
        before = self.acknowledged
        wait_until(
            lambda: self.acknowledged > before + count,
            f"{count} writes",
            say=lambda: (self.acknowledged - before, self.errors),
        )

    def read_back(self) -> list[Read]:
        """Every key ever written, read once now by a client that does repeat."""
        client = self._cluster.client(self._zone, socket_timeout=2)  # an agent may be frozen
        found = []
        for key in list(self.keys):
            start = time.monotonic()
            value = client.get(key)
            assert not isinstance(value, str)  # this client does not decode
            found.append(Read(key, _value_of(key, value), start, time.monotonic()))
        return found

    # -- one thread --------------------------------------------------------------------------------

    def _client(self, number: int) -> RedisCluster:
        return self._cluster.client(
            self._zone,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=_TIMEOUTS_S[number % 2],
            reinitialize_steps=1,
        )

    def _write(self, number: int) -> None:
        client = self._client(number)
        lives = [f"{self._name}{number}-{at}.0" for at in range(self._keys_per_writer)]
        counts = [0] * len(lives)
        self.keys += lives
        while not self.stop.is_set():
            for at, key in enumerate(lives):
                counts[at] += 1
                if self._write_one(client, key, counts[at]) is Outcome.UNKNOWN:
                    name, _, life = key.rpartition(".")
                    lives[at] = f"{name}.{int(life) + 1}"
                    counts[at] = 0
                    self.keys.append(lives[at])
                if self.stop.wait(self._pause_s):
                    return

    def _write_one(self, client: RedisCluster, key: str, value: int) -> Outcome:
        start = time.monotonic()
        outcome = self._ask(lambda: client.set(key, f"{key}={value}"))[0]
        self.writes.append(Write(key, value, start, time.monotonic(), outcome))
        return outcome

    def _read(self, number: int) -> None:
        chance = random.Random(f"{self._seed}-{number}")
        client = self._client(number)
        while not self.stop.wait(self._pause_s):
            if not self.keys:
                continue
            # Mostly the keys written now; now and then one that was given up.
            key = chance.choice(self.keys[-100:] if chance.random() < 0.8 else self.keys)
            start = time.monotonic()
            outcome, found = self._ask(partial(client.get, key))
            if outcome is Outcome.ACKNOWLEDGED:
                self.reads.append(Read(key, _value_of(key, found), start, time.monotonic()))

    def _read_directly(self) -> None:
        chance = random.Random(f"{self._seed}-direct")
        ports = [port for _, port in self._cluster.endpoints(self._zone)]
        reads = DirectReads(ports, chance, self._answered)
        try:
            while not self.stop.wait(_DIRECT_EVERY_S):
                if self.keys:
                    reads.step(self.keys[-100:])
        finally:
            reads.close()

    def _answered(self, key: str, found: bytes | None, start: float, end: float) -> None:
        self.reads.append(Read(key, _value_of(key, found), start, end))

    def _ask(self, command: Callable[[], Any]) -> tuple[Outcome, Any]:
        try:
            return Outcome.ACKNOWLEDGED, command()
        except ClusterDownError as error:
            self._count(error)
            return Outcome.REFUSED, None
        except ResponseError as error:
            self._count(error)
            unknown = str(error).startswith("UNKNOWN")
            return Outcome.UNKNOWN if unknown else Outcome.REFUSED, None
        except CLIENT_ERRORS as error:
            self._count(error)
            return Outcome.UNKNOWN, None

    def _count(self, error: BaseException) -> None:
        name = f"{type(error).__name__}: {str(error)[:60]}"
        self.errors[name] = self.errors.get(name, 0) + 1


def _value_of(key: str, found: bytes | None) -> int:
    if found is None:
        return ABSENT
    name, _, value = found.decode().rpartition("=")
    return int(value) if name == key else _NEVER_WRITTEN
