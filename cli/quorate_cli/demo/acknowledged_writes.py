"""A client that never stops writing, and remembers what it was promised.

One key in every partition, each written over and over by a task of its own, so that one partition
that does not answer keeps nobody else waiting.  Every value is written once.  What was acknowledged
must be found again, or something later; what came back as an error, or not at all, may be either.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from redis import Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.exceptions import RedisClusterException, RedisError

from quorate.facts.keyspace import key_partition, key_slot
from quorate_cli.terminal.problem import Problem

BETWEEN_WRITES_S = 0.1
"""Per key: what "not writable" is measured with is at most this long when all is well."""
READ_EVERY = 5
"""Every so many writes the key is read back at once."""
TIMEOUT_S = 8.0
"""Longer than an agent lets a command wait for a primary: it is the agent that says when to give
up, because only the agent knows whether the command was applied."""
REFUSALS = (RedisError, RedisClusterException, OSError, TimeoutError)
"""All that the client says when it could not do it; whether the agent did is unknown."""


class Failure(NamedTuple):
    """A command that came back as an error although the client had tried again."""

    at: float
    key: str
    text: str


class KeyHistory:
    """What was tried on one key, and what was promised."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tried = 0
        self.acknowledged = 0
        self.acknowledged_at: list[float] = []

    def value(self, number: int) -> str:
        """The value of the `number`th write: unlike any other."""
        return f"{self.name}:{number}"

    def problem_with(self, found: str | None, at_least: int) -> str | None:
        """What is wrong with reading `found` when `at_least` was acknowledged before the read."""
        if found is None:
            return f"{self.name} is gone; write {at_least} was acknowledged" if at_least else None
        name, _, number = found.rpartition(":")
        if name != self.name or not number.isdecimal() or int(number) > self.tried:
            return f"{self.name} holds {found!r}, which nobody wrote"
        if int(number) < at_least:
            return f"{self.name} holds write {number}; write {at_least} was acknowledged"
        return None

    def longest_gap(self, since: float, until: float) -> float:
        """Seconds of [since, until] and around it that this key went without an acknowledgement."""
        before = [at for at in self.acknowledged_at if at <= since][-1:]
        within = [at for at in self.acknowledged_at if since < at <= until]
        after = [at for at in self.acknowledged_at if at > until][:1]
        moments = [*(before or [since]), *within, *(after or [until])]
        return max(later - earlier for earlier, later in pairwise(moments))


def keys_of_all_partitions(partitions: int) -> list[str]:
    """One key for each partition, in order of partition."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < partitions:
        key = f"writer-{number}"
        found.setdefault(key_partition(key.encode(), partitions), key)
        number += 1
    return [found[partition] for partition in range(partitions)]


def redis_cluster(endpoints: Sequence[str]) -> RedisCluster:
    """A stock Redis Cluster client, made inside the running event loop."""
    nodes = []
    for endpoint in endpoints:
        host, _, port = endpoint.rpartition(":")
        nodes.append(ClusterNode(host, int(port)))
    return RedisCluster(
        startup_nodes=nodes,
        socket_timeout=TIMEOUT_S,
        # Else every fifth MOVED closes all of the client's connections, those other tasks wait on
        # as well: a way to follow a resharding that costs this many tasks their answers.
        reinitialize_steps=0,
    )


def primary_ports(endpoints: Sequence[str], keys: Sequence[str]) -> dict[str, int]:
    """key -> client port of the agent that a client would ask for it."""
    host, _, port = endpoints[0].rpartition(":")
    with Redis(host=host, port=int(port), socket_timeout=TIMEOUT_S, protocol=2) as client:
        ranges = client.execute_command("CLUSTER SLOTS")
    found = {}
    for key in keys:
        slot = key_slot(key.encode())
        for first, last, primary, *_ in ranges:
            if first <= slot <= last:
                found[key] = int(primary[1])
    return found


async def ask(client: RedisCluster, *command: str | bytes) -> object:
    """One command.

    In redis-py 8.1 one task may close the connection that another has just opened and not yet
    greeted on; what comes of it is an AttributeError, and the command has not left.
    """
    while True:
        try:
            return await client.execute_command(*command)
        except AttributeError:
            await asyncio.sleep(0.01)


class Writer:
    """Runs in a thread of its own until it is stopped.  `histories[partition]` may be read at any
    time; `wrong` is what was read and must not have been."""

    def __init__(self, endpoints: Sequence[str], partitions: int) -> None:
        self.histories = [KeyHistory(key) for key in keys_of_all_partitions(partitions)]
        self.failures: list[Failure] = []
        self.wrong: list[str] = []
        self._endpoints = tuple(endpoints)
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._crash: BaseException | None = None

    # --- the thread ------------------------------------------------------------------------------

    def start(self) -> None:
        """Write from now on."""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def move(self, endpoints: Sequence[str]) -> None:
        """Where the zone's clients connect from the next start on."""
        self._endpoints = tuple(endpoints)

    def stop(self) -> None:
        """Let every write under way come to its end, then write no more."""
        self._stopping = True
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._raise_crash()

    def _run(self) -> None:
        try:
            asyncio.run(self._with_client(self._write_all))
        except BaseException as error:
            self._crash = error

    def _raise_crash(self) -> None:
        if self._crash is not None:
            cause = self._crash
            while isinstance(cause, BaseExceptionGroup):
                cause = cause.exceptions[0]
            raise Problem(
                f"the writer cannot go on ({type(cause).__name__}: {cause})"
            ) from self._crash

    async def _with_client(self, work: Callable[[RedisCluster], Coroutine[Any, Any, None]]) -> None:
        client = redis_cluster(self._endpoints)
        try:
            await work(client)
        finally:
            await client.aclose()

    async def _write_all(self, client: RedisCluster) -> None:
        await client.initialize()
        async with asyncio.TaskGroup() as group:
            for history in self.histories:
                group.create_task(self._write_one(client, history))

    async def _write_one(self, client: RedisCluster, history: KeyHistory) -> None:
        while not self._stopping:
            history.tried += 1
            number = history.tried
            try:
                await ask(client, "SET", history.name, history.value(number))
            except REFUSALS as error:
                # Also what an agent calls unknown: neither promised nor denied.
                self._note_failure(history, error)
            else:
                history.acknowledged = number
                history.acknowledged_at.append(time.monotonic())
                if number % READ_EVERY == 0:
                    await self._read_one(client, history)
            await asyncio.sleep(BETWEEN_WRITES_S)

    async def _read_one(self, client: RedisCluster, history: KeyHistory) -> bool:
        at_least = history.acknowledged
        try:
            found = await ask(client, "GET", history.name)
        except REFUSALS as error:
            self._note_failure(history, error)
            return False
        text = found.decode("utf-8", "replace") if isinstance(found, bytes) else None
        problem = history.problem_with(text, at_least)
        if problem is not None:
            self.wrong.append(problem)
        return True

    def _note_failure(self, history: KeyHistory, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        self.failures.append(Failure(time.monotonic(), history.name, text))

    # --- questions -------------------------------------------------------------------------------

    def wait_for_writes(self, since: float, count: int, seconds: float) -> None:
        """Until every key was acknowledged `count` times after `since`."""
        deadline = time.monotonic() + seconds
        while True:
            self._raise_crash()
            late = [
                history.name
                for history in self.histories
                if len(history.acknowledged_at) < count or history.acknowledged_at[-count] <= since
            ]
            if not late:
                return
            if time.monotonic() > deadline:
                last = f"; last error: {self.failures[-1].text}" if self.failures else ""
                raise Problem(
                    f"{len(late)} of {len(self.histories)} keys, {late[0]} among them, were not"
                    f" writable for {seconds:g} s{last}"
                )
            time.sleep(0.02)

    def failures_since(self, since: float) -> list[Failure]:
        """Commands that failed after `since`."""
        self._raise_crash()
        return [failure for failure in self.failures if failure.at > since]

    def check(self) -> int:
        """Read every key: what was acknowledged must be there.  How many writes were, in all."""
        self._raise_crash()

        async def read_all(client: RedisCluster) -> None:
            for history in self.histories:
                for _ in range(5):
                    if await self._read_one(client, history):
                        break
                else:
                    self.wrong.append(f"{history.name} cannot be read: {self.failures[-1].text}")

        asyncio.run(self._with_client(read_all))
        if self.wrong:
            raise Problem(f"{len(self.wrong)} wrong reads, the first: {self.wrong[0]}")
        return sum(history.acknowledged for history in self.histories)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of `values` (at least one) do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, int(len(ordered) * share + 0.999999) - 1))]
