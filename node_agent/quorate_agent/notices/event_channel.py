"""The event channel of a zone: sends subscribers the master's events and what this agent knows.

The agent knows the zone's rows.  So it sends the present state to each new subscriber, and to all
of them after its master was away, when events may have been missed.
"""

from __future__ import annotations

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
from quorate_agent.machine.clock import Clock
from quorate_agent.notices.pushes import push_in_order
from quorate_agent.resp.commands.session.pubsub import EVENTS, messages

STATE_S = 0.1


class EventChannel:
    """One zone's channel on this agent.  `clients()`: those that may have subscribed."""

    def __init__(
        self,
        replicas: Replicas,
        node: str,
        clients: Callable[[], Iterable[ClientConnection]],
        clock: Clock,
    ) -> None:
        self._replicas = replicas
        self._node = node
        self._clients = clients
        self._clock = clock
        self._sequence = 0
        self._has_master = True
        self._state = b""
        self._state_s = 0.0

    def state(self) -> bytes:
        """Return the state of the zone as far as this agent knows it.

        The result is reused for a moment: a large zone takes 10 ms, and many clients may reconnect
        at once.  It is never older than the last event sent, which a new subscriber would miss."""
        now_s = self._clock.passed_s()
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
        """Send the master's events of this zone, in order; others are left out."""
        name = self._replicas.record.name
        ours = [event for event in events if event.zone in (name, "")]
        if events:
            self._sequence = events[-1].sequence
        if ours:
            self._state = b""
            self._send(lambda: [msgspec.json.encode(event) for event in ours])

    def master_found(self) -> None:
        """Send the state: a master has sent all rows, and events may have been missed while it was
        away."""
        self._has_master = True
        self._state = b""
        self._send(lambda: [self.state()])

    def master_lost(self) -> None:
        """Tell subscribers that no master sends events until one is back."""
        if self._has_master:
            self._has_master = False
            self._state = b""
            message = f"no master reaches {self._node}: when one does, the state is told"
            self._send(lambda: [self._encoded("Warning", MASTER_LOST, message, None)])

    def _send(self, make: Callable[[], Sequence[bytes]]) -> None:
        """Send payloads to all subscribers; `make` is called only if there are any."""
        listening = [client for client in self._clients() if client.state.subscribed]
        payloads = make() if listening else ()
        for client in listening:
            frames = [messages(client.state, EVENTS, payload) for payload in payloads]
            push_in_order(client, b"".join(frames))

    def _encoded(self, kind: str, reason: str, message: str, state: ZoneState | None) -> bytes:
        zone, now = self._replicas.record.name, time_text(self._clock.wall_ms())
        told = ToldEvent(self._sequence, now, kind, reason, message, zone, state=state)
        return msgspec.json.encode(told)


def zone_state(replicas: Replicas) -> ZoneState:
    """Return the zone's state by its rows; a partition without a known row is unavailable."""
    record = replicas.record
    degraded = migrations = unavailable = 0
    lost: list[int] = []
    for partition, row in enumerate(replicas.table):
        if row is None:
            unavailable += 1
            continue
        migrations += row.active is not None
        if row.replicas[0] is None:
            unavailable += 1
        elif len(row.owners) < record.replicas:
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
        partitions=record.partitions,
        available=record.partitions - unavailable - degraded,
        degraded=degraded,
        unavailable=unavailable,
        lost=len(lost),
        migrations_running=migrations,
        lost_partitions=tuple(lost[:LOST_NAMED_MAX]),
    )


def _is_lost(row: PartitionRow, stores: dict[str, str]) -> bool:
    """Return whether each voter's node is registered with another store than the one that votes."""
    return all(stores.get(voter.node, voter.store) != voter.store for voter in row.voters)
