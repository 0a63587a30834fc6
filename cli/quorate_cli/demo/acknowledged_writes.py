"""A client that never stops writing, and remembers which writes were acknowledged.

It writes one key in every partition, each in its own task, so that a partition that does not answer
does not delay the others.  Every value is written once.  A key must be found with its last
acknowledged value or a later one; a write that failed or got no answer may have happened or not.
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
"""Seconds between writes of a key: the resolution of the "not writable" times."""
READ_EVERY = 5
"""The key is read back after every so many writes."""
TIMEOUT_S = 8.0
"""Longer than an agent lets a command wait for a primary.  The agent is to give up first, because
only it knows whether the command was applied."""
REFUSALS = (RedisError, RedisClusterException, OSError, TimeoutError)
"""All errors by which the client reports a failed command; the agent may have executed it."""


class Failure(NamedTuple):
    """A command that failed although the client had tried again."""

    at: float
    key: str
    text: str


class KeyHistory:
    """The attempted and the acknowledged writes of one key."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tried = 0
        self.acknowledged = 0
        self.acknowledged_at: list[float] = []

    def value(self, number: int) -> str:
        """Return the value of the `number`th write, different from all others."""
        return f"{self.name}:{number}"

    def problem_with(self, found: str | None, at_least: int) -> str | None:
        """Return what is wrong with reading `found` after `at_least` was acknowledged, if
        anything."""
        if found is None:
            missing = f"{self.name} is missing, although write {at_least} was acknowledged"
            return missing if at_least else None
        name, _, number = found.rpartition(":")
        if name != self.name or not number.isdecimal() or int(number) > self.tried:
            return f"{self.name} has the value {found!r}, which was never written"
        if int(number) < at_least:
            return f"{self.name} has write {number}, although write {at_least} was acknowledged"
        return None

    def longest_gap(self, since: float, until: float) -> float:
        """Return the longest time without an acknowledgement around [since, until], seconds."""
        before = [at for at in self.acknowledged_at if at <= since][-1:]
        within = [at for at in self.acknowledged_at if since < at <= until]
        after = [at for at in self.acknowledged_at if at > until][:1]
        moments = [*(before or [since]), *within, *(after or [until])]
        return max(later - earlier for earlier, later in pairwise(moments))


def keys_of_all_partitions(partitions: int) -> list[str]:
    """Return one key for each partition, in order of partition."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < partitions:
        key = f"writer-{number}"
        found.setdefault(key_partition(key.encode(), partitions), key)
        number += 1
    return [found[partition] for partition in range(partitions)]


def redis_cluster(endpoints: Sequence[str]) -> RedisCluster:
    """Return a stock Redis Cluster client.  Call it inside the running event loop."""
    nodes = []
    for endpoint in endpoints:
        host, _, port = endpoint.rpartition(":")
        nodes.append(ClusterNode(host, int(port)))
    return RedisCluster(
        startup_nodes=nodes,
        socket_timeout=TIMEOUT_S,
        # Otherwise every fifth MOVED closes all of the client's connections, even those on which
        # other tasks wait.  That suits a resharding, but costs so many tasks their answers.
        reinitialize_steps=0,
    )


def primary_ports(endpoints: Sequence[str], keys: Sequence[str]) -> dict[str, int]:
    """Return key -> client port of the agent that a client would ask for it."""
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
    """Execute one command; return its reply.

    In redis-py 8.1 one task may close a connection that another has just opened and not yet greeted
    on.  That raises an AttributeError, and the command was not sent.
    """
    while True:
        try:
            return await client.execute_command(*command)
        except AttributeError:
            await asyncio.sleep(0.01)


class Writer:
    """Writes in its own thread until it is stopped.

    `histories[partition]` may be read at any time; `wrong` describes reads that contradict
    acknowledged writes.
    """

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
        """Begin to write."""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def move(self, endpoints: Sequence[str]) -> None:
        """Set the endpoints that are used from the next start on."""
        self._endpoints = tuple(endpoints)

    def stop(self) -> None:
        """Let every write under way end, then stop."""
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
                f"the writing client failed ({type(cause).__name__}: {cause})"
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
                # includes outcomes that an agent calls unknown
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
        """Wait until every key was acknowledged `count` times after `since`.  Raises Problem."""
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
                    f"{len(late)} of {len(self.histories)} keys ({late[0]} is one) could not be"
                    f" written for {seconds:g} s{last}"
                )
            time.sleep(0.02)

    def failures_since(self, since: float) -> list[Failure]:
        """Return the commands that failed after `since`."""
        self._raise_crash()
        return [failure for failure in self.failures if failure.at > since]

    def check(self) -> int:
        """Read every key and check acknowledged writes; return how many writes were acknowledged.

        Raises Problem if a read was wrong.
        """
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
            raise Problem(f"{len(self.wrong)} reads were wrong; the first: {self.wrong[0]}")
        return sum(history.acknowledged for history in self.histories)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of `values` (at least one) do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, int(len(ordered) * share + 0.999999) - 1))]
