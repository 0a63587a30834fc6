"""KEYS: lists the keys of this agent's partitions, over several turns.

An agent may have millions of keys, and leases must not wait for a list of them.  So each turn looks
at rows for a few milliseconds.  Lists are made one after the other: a second half-made list would
only take memory.  A list is no snapshot: as with SCAN, a key that exists all the time is in it
once, and one that comes or goes meanwhile may be in it or not.

RANDOMKEY and CLUSTER COUNTKEYSINSLOT take their place among the lists if their first step, made
when they came, did not suffice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.primary import Primary
from quorate_agent.clients.connection import ClientConnection, Slot
from quorate_agent.commands.waits import FOR_EVER_MS
from quorate_agent.resp.replies import CLUSTERDOWN, bulk, error
from quorate_agent.resp.scan import BYTES_MAX, ScanRows
from quorate_agent.resp.session import KeysRequest
from quorate_agent.resp.stepped import Stepped

STEP_S = 0.005
"""Seconds of each turn, for all lists together: a fourth of the time for other commands."""

STEP_ROWS = 250
"""Rows between two looks at the clock."""

STEP_MATCH_STEPS = BYTES_MAX
"""Steps of matching names between two looks at the clock, if these rows need more: 4 ms."""

LIST_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of the keys in one reply: as much as a value may have."""

TOO_LONG = error(b"ERR KEYS would list more than %d bytes: use SCAN" % LIST_BYTES_MAX)


def may_list(replicas: Replicas, now_ms: int) -> bool:
    """Return whether all keys of this agent can be listed: not while a primary cannot serve."""
    return all(role.serves(now_ms) for role in replicas.roles.values())


class KeyLists:
    """The KEYS commands of one zone's clients here.

    `fulfil(client, slot, reply)` answers one; `took(slot, seconds)` is told how long it took.
    `failure(name, error)` returns the reply to one that fails."""

    def __init__(
        self,
        replicas: Replicas,
        scan: ScanRows,
        fulfil: Callable[[ClientConnection, Slot, bytes], None],
        took: Callable[[Slot, float], None],
        clock: Callable[[], float],
        failure: Callable[[bytes, Exception], bytes],
    ) -> None:
        self._replicas = replicas
        self._scan = scan
        self._fulfil = fulfil
        self._took = took
        self._clock = clock
        self._failure = failure
        self._lists: deque[_KeyList | _Steps] = deque()

    def __bool__(self) -> bool:
        return bool(self._lists)

    def add(self, slot: Slot, asked: KeysRequest | Stepped) -> None:
        """Add a command; later commands of its connection wait until it is answered."""
        slot.deadline_ms = FOR_EVER_MS
        slot.connection.blocked += 1
        if isinstance(asked, KeysRequest):
            self._lists.append(_KeyList(slot, asked, list(self._replicas.roles.values())))
        else:
            self._lists.append(_Steps(slot, asked))

    def client_gone(self, client: ClientConnection) -> None:
        """Drop the lists of a client that is gone."""
        self._lists = deque(each for each in self._lists if each.slot.connection is not client)

    def step(self, now_ms: int) -> None:
        """Go on for a turn's share of time, and answer the lists that are complete."""
        now = self._clock()
        until = now + STEP_S
        while self._lists:
            first = self._lists[0]
            for reply in self._answers(first, now_ms):
                began, now = now, self._clock()
                first.took_s += now - began
                if reply:
                    self._lists.popleft()
                    self._fulfil(first.slot.connection, first.slot, reply)
                    self._took(first.slot, first.took_s)
                if now >= until:
                    return

    def _answers(self, each: _KeyList | _Steps, now_ms: int) -> Iterator[bytes]:
        """Yield the list's answers, at last an error reply if it fails."""
        try:
            yield from each.answers(self._scan, self._replicas.primaries, now_ms)
        except Exception as error:
            yield self._failure(each.slot.command.name, error)


class _KeyList:
    """One list; `roles` are the partitions that this agent served when KEYS came."""

    __slots__ = (
        "_after",
        "_bytes",
        "_count",
        "_matches",
        "_parts",
        "_roles",
        "_step_bytes",
        "slot",
        "took_s",
    )

    def __init__(self, slot: Slot, asked: KeysRequest, roles: list[Primary]) -> None:
        self.slot = slot
        self.took_s = 0.0
        self._matches = asked.matches
        self._step_bytes = STEP_MATCH_STEPS // asked.weight
        self._roles = deque(roles)
        self._after: bytes | None = None  # where to go on in the first role's partition
        self._parts: list[bytes] = []  # of the reply, encoded
        self._count = self._bytes = 0  # of the keys in them

    def answers(
        self, scan: ScanRows, primaries: Sequence[Primary | None], now_ms: int
    ) -> Iterator[bytes]:
        """Look at some rows per step; yield b"" after each, and at last the reply."""
        while self._roles:
            role = self._roles[0]
            partition = role.copy.partition
            if primaries[partition] is not role or not role.serves(now_ms):
                yield CLUSTERDOWN  # another agent lists the rest of its keys, if any
                return
            chunk = scan(partition, self._after, STEP_ROWS, self._step_bytes)
            keys, self._after = chunk.live, chunk.last
            if self._matches is not None:
                keys = [key for key in keys if self._matches(key)]
            self._parts.append(b"".join(map(bulk, keys)))
            self._count += len(keys)
            self._bytes += sum(map(len, keys))
            if self._bytes > LIST_BYTES_MAX:
                yield TOO_LONG
                return
            if self._after is None:
                self._roles.popleft()
            yield b""
        yield b"*%d\r\n%b" % (self._count, b"".join(self._parts))


class _Steps:
    """One command of another kind."""

    __slots__ = ("_stepped", "slot", "took_s")

    def __init__(self, slot: Slot, stepped: Stepped) -> None:
        self.slot = slot
        self.took_s = 0.0
        self._stepped = stepped

    def answers(
        self, scan: ScanRows, primaries: Sequence[Primary | None], now_ms: int
    ) -> Iterator[bytes]:
        """Look at some rows per step; yield b"" after each, and at last the reply."""
        while not (reply := self._stepped.step(STEP_ROWS)):
            yield b""
        yield reply
