"""What an agent tells clients that subscribed: what its master told it, and what it knows itself.

It knows the rows of the zone, so it can say the present state to who subscribes, and to all when
its master was away: then something may have happened that nobody told it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

import msgspec

from quorate.facts.partition_row import PartitionRow
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.messages.events import (
    LOST_NAMED_MAX,
    MASTER_LOST,
    STATE,
    ToldEvent,
    ZoneState,
    time_text,
)
from quorate_agent.clients.connection import ClientConnection
from quorate_agent.notices.pushes import push_in_order
from quorate_agent.resp.commands.pubsub import EVENTS, messages

STATE_S = 0.1


class EventChannel:
    """One zone's channel on this agent.  `clients()`: who may have subscribed."""

    def __init__(
        self,
        replicas: Replicas,
        node: str,
        clients: Callable[[], Iterable[ClientConnection]],
    ) -> None:
        self._replicas = replicas
        self._node = node
        self._clients = clients
        self._sequence = 0
        self._has_master = True
        self._state = b""
        self._state_s = 0.0

    def state(self) -> bytes:
        """How the zone is, as far as this agent knows.

        The same for a moment: a large zone takes 10 ms, and many may come back at once.  Never
        older than what was told: whoever subscribes after that would miss it."""
        now_s = time.monotonic()
        if not self._state or now_s - self._state_s > STATE_S:
            self._state, self._state_s = self._make_state(), now_s
        return self._state

    def _make_state(self) -> bytes:
        found = zone_state(self._replicas)
        message = f"{found.phase}: as {self._node} knows it"
        if not self._has_master:
            message += ", which no master reaches now"
        kind = "Warning" if found.unavailable else "Normal"
        return self._encoded(kind, STATE, message, found)

    def tell(self, events: Sequence[ToldEvent]) -> None:
        """The master told these, in order; those of other zones are left out."""
        name = self._replicas.zone.name
        ours = [event for event in events if event.zone in (name, "")]
        if events:
            self._sequence = events[-1].sequence
        if ours:
            self._state = b""
            self._send(lambda: [msgspec.json.encode(event) for event in ours])

    def master_found(self) -> None:
        """A master has told all rows; what it, or another, told while it was away was missed."""
        self._has_master = True
        self._state = b""
        self._send(lambda: [self.state()])

    def master_lost(self) -> None:
        """From now on nobody tells what happens."""
        if self._has_master:
            self._has_master = False
            self._state = b""
            message = f"no master reaches {self._node}: when one does, the state is told"
            self._send(lambda: [self._encoded("Warning", MASTER_LOST, message, None)])

    def _send(self, make: Callable[[], Sequence[bytes]]) -> None:
        """Most of the time nobody has subscribed: then nothing is made."""
        listening = [client for client in self._clients() if client.state.subscribed]
        payloads = make() if listening else ()
        for client in listening:
            frames = [messages(client.state, EVENTS, payload) for payload in payloads]
            push_in_order(client, b"".join(frames))

    def _encoded(self, kind: str, reason: str, message: str, state: ZoneState | None) -> bytes:
        zone, now = self._replicas.zone.name, time_text(time.time_ns() // 1_000_000)
        told = ToldEvent(self._sequence, now, kind, reason, message, zone, state=state)
        return msgspec.json.encode(told)


def zone_state(replicas: Replicas) -> ZoneState:
    """The zone by its rows; a partition whose row is not known yet is nobody's."""
    zone = replicas.zone
    degraded = migrations = unavailable = 0
    lost: list[int] = []
    for partition, row in enumerate(replicas.table):
        if row is None:
            unavailable += 1
            continue
        migrations += row.active is not None
        if row.replicas[0] is None:
            unavailable += 1
        elif len(row.owners) < zone.replicas:
            degraded += 1
        if _is_lost(row, replicas.stores):
            lost.append(partition)
    if unavailable:
        phase = "Unavailable"
    elif migrations:
        phase = "Rebalancing"
    else:
        phase = "Degraded" if degraded else "Available"
    return ZoneState(
        phase=phase,
        partitions=zone.partitions,
        available=zone.partitions - unavailable - degraded,
        degraded=degraded,
        unavailable=unavailable,
        lost=len(lost),
        migrations_running=migrations,
        lost_partitions=tuple(lost[:LOST_NAMED_MAX]),
    )


def _is_lost(row: PartitionRow, stores: dict[str, str]) -> bool:
    """Whether each of its voters is registered with another store than the one that votes."""
    return all(stores.get(voter.node, voter.store) != voter.store for voter in row.voters)
