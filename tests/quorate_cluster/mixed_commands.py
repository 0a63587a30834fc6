"""Clients that all use the same few keys, with commands of every kind, and the history of it."""

import random
import threading
import time
from collections import defaultdict
from contextlib import suppress
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
from quorate_cluster.operator_api import ApiError
from quorate_porcupine.operations import Operation

_DIRECT_EVERY_S = 0.25
_DIRECT_CLIENT = 1000
_TIMEOUTS_S = (0.4, 0.4, 12)
"""Clients by turns: two soon ask elsewhere, one hears what a frozen agent says when it thaws."""
_UNKNOWN_MAX = 5
"""A key is given up for a fresh one after so many writes that may take effect at any later time:
the search for an order tries each of them at every later moment."""

_HOT = 0.9
"""Share of commands for the few keys that all clients use at once.  On the others a primary that is
cut off has no write to wait for, so that it could answer reads, were it not for its lease."""

_KINDS = {
    "register": ("GET", "GET", "GET", "SET", "SET", "SETNX", "DEL"),
    "counter": ("GET", "INCR", "INCR", "INCR", "DEL"),
}


class _Keys:
    """The keys in use: of each family some that are hot and some that are not, in their present
    lives."""

    def __init__(self, hot: int, cold: int) -> None:
        self._hot = [f"{family}-hot{number}" for family in _KINDS for number in range(hot)]
        self._cold = [f"{family}-cold{number}" for family in _KINDS for number in range(cold)]
        self._lives: dict[str, int] = dict.fromkeys(self._hot + self._cold, 0)
        self._unknown: dict[str, int] = defaultdict(int)
        self._lock = threading.Lock()

    def choose(self, chance: random.Random) -> tuple[str, str]:
        """A kind of command and the key it is for."""
        place = chance.choice(self._hot if chance.random() < _HOT else self._cold)
        return chance.choice(_KINDS[place.partition("-")[0]]), f"{place}.{self._lives[place]}"

    def now(self) -> list[str]:
        return [f"{place}.{life}" for place, life in self._lives.items()]

    def count_unknown(self, key: str) -> None:
        with self._lock:
            self._unknown[key] += 1
            if self._unknown[key] == _UNKNOWN_MAX:
                self._lives[key.rpartition(".")[0]] += 1


class MixedCommands(Background):
    """`with MixedCommands(cluster, zone) as load:` runs GET, SET, SET NX, DEL, INCR until its end.

    Clients do not repeat a command by themselves; each write of a register has a value of its own.
    Beside them every agent is asked directly all the time, also one that is frozen or cut off.
    `hot_keys`, `cold_keys`: of registers, and as many counters.  `avoid`: an agent that clients do
    not learn of the topology from.  `seed` tells values written in one history apart.
    """

    def __init__(
        self,
        cluster: Cluster,
        zone: str,
        *,
        clients: int = 9,
        hot_keys: int = 3,
        cold_keys: int = 12,
        pause_s: float = 0.02,
        seed: int = 0,
        avoid: str = "",
    ) -> None:
        super().__init__()
        self.history: list[Operation] = []
        self.errors: dict[str, int] = {}
        self._cluster = cluster
        self._zone = zone
        self._keys = _Keys(hot_keys, cold_keys)
        self._pause_s = pause_s
        self._seed = seed
        self._agents = [name for name in cluster.agents if name != avoid]
        for number in range(clients):
            self.add_road(partial(self._run, number))
        self.add_road(self._read_directly)

    @property
    def unknown(self) -> int:
        """Commands so far whose outcome no client knows."""
        return sum(not operation.is_known for operation in self.history)

    # -- one thread --------------------------------------------------------------------------------

    def _run(self, number: int) -> None:
        chance = random.Random(f"{self._seed}-{number}")
        at = number % len(self._agents)
        client = self._cluster.client(
            self._zone,
            first=self._agents[at:] + self._agents[:at],  # not all of them believe the same agent
            dynamic_startup_nodes=False,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=_TIMEOUTS_S[number % 3],
            reinitialize_steps=1,
        )
        count = 0
        while not self.stop.wait(self._pause_s * chance.random() * 2):
            count += 1
            kind, key = self._keys.choose(chance)
            self._ask(client, number, kind, key, f"c{self._seed}-{number}-{count}")

    def _ask(self, client: RedisCluster, number: int, kind: str, key: str, value: str) -> None:
        execute: Any = client.execute_command  # it ships without types
        argument = value if kind in ("SET", "SETNX") else None
        call_ns = time.monotonic_ns()
        end_ns: int | None = None
        result: str | None = None
        try:
            result = _text(execute(*_words(kind, key, value)))
            end_ns = time.monotonic_ns()
        except CLIENT_ERRORS as error:
            self._count(error)
            if _says_that_nothing_was_done(error):
                return
            if kind == "GET":
                return
            self._keys.count_unknown(key)
        self.history.append(Operation(number, kind, key, argument, result, call_ns, end_ns))

    def _read_directly(self) -> None:
        chance = random.Random(f"{self._seed}-direct")
        ports: list[int] = []
        # Lines of its own for each key: behind a read that waits for a write all others would wait.
        reads = [DirectReads(ports, chance, self._answered, 1) for _ in self._keys.now()]
        try:
            while not self.stop.wait(_DIRECT_EVERY_S):
                self._find_new(ports)
                for key, each in zip(self._keys.now(), reads, strict=True):
                    each.step([key])
        finally:
            for each in reads:
                each.close()

    def _find_new(self, ports: list[int]) -> None:
        """Agents may be added."""
        if len(ports) == len(self._cluster.agents):
            return
        with suppress(OSError, ApiError):  # the operator may be gone
            found = self._cluster.zone(self._zone)["status"]["ports"].values()
            ports += [port for port in found if port not in ports]

    def _answered(self, key: str, found: bytes | None, start: float, end: float) -> None:
        # Seconds as floats are good for microseconds: round outwards.
        call_ns, end_ns = int(start * 1e9) - 1000, int(end * 1e9) + 1000
        self.history.append(
            Operation(_DIRECT_CLIENT, "GET", key, None, _text(found), call_ns, end_ns)
        )

    def _count(self, error: BaseException) -> None:
        name = f"{type(error).__name__}: {str(error)[:60]}"
        self.errors[name] = self.errors.get(name, 0) + 1


def _words(kind: str, key: str, value: str) -> tuple[str, ...]:
    # Not by the client's own methods: its DEL is a pipeline, which sends again what got no answer.
    match kind:
        case "SET":
            return "SET", key, value
        case "SETNX":
            return "SET", key, value, "NX"
        case _:
            return kind, key


def _text(answer: object) -> str | None:
    match answer:
        case None:
            return None
        case True:
            return "OK"
        case bytes():
            return answer.decode()
        case _:
            return str(answer)


def _says_that_nothing_was_done(error: Exception) -> bool:
    if isinstance(error, ClusterDownError):
        return True
    return isinstance(error, ResponseError) and not str(error).startswith("UNKNOWN")
