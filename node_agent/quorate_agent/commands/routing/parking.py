"""Keeps commands that no agent can answer yet, for a bounded time: `park_bound_ms`.

They wait for a partition that has no primary, or whose primary's lease is over.  When the time is
over, `Forwards.give_up` words the reply: CLUSTERDOWN, or -UNKNOWN if an attempt may have been
executed.
"""

from __future__ import annotations

from collections.abc import Callable

from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.zone_copies import ZoneCopies
from quorate_agent.clients.connection import ClientConnection, Slot
from quorate_agent.clients.meter import CommandMeter
from quorate_agent.metrics import AgentMetrics
from quorate_agent.resp import replies
from quorate_agent.resp.command import Command


class Parking:
    """The parked commands of one zone's clients here; each waits at most `park_bound_ms` from its
    arrival."""

    def __init__(self, replicas: ZoneCopies, metrics: AgentMetrics, meter: CommandMeter) -> None:
        self.arrived_ms = 0  # of the command that is being executed
        self._replicas = replicas
        self._metrics = metrics
        self._meter = meter
        self._slots: list[Slot] = []
        self._locked: dict[Slot, Primary] = {}  # those that wait for a transaction's locks

    def __bool__(self) -> bool:
        return bool(self._slots)

    def place(
        self,
        client: ClientConnection,
        command: Command,
        args: list[bytes],
        now_ms: int,
        slot: Slot | None,
    ) -> Slot | None:
        """Return a slot that the connection's later commands wait for.

        Returns None if the command's bound is over: it is answered with -CLUSTERDOWN."""
        deadline = self.arrived_ms + self._replicas.park_bound_ms
        if slot is None:
            if deadline <= now_ms:
                self._metrics.clusterdown.inc()
                self._meter.answered(command.family, replies.CLUSTERDOWN)
                client.answer(replies.CLUSTERDOWN)
                return None
            slot = Slot(client, command, args, b"", (), now_ms)
            client.queue.append(slot)
        if not slot.deadline_ms:
            slot.deadline_ms = deadline
            client.blocked += 1
        return slot

    def park(
        self,
        client: ClientConnection,
        command: Command,
        args: list[bytes],
        now_ms: int,
        slot: Slot | None,
        locked: Primary | None = None,
    ) -> None:
        """Try the command again until a primary serves it or its bound is over.

        `locked` is the role at which a transaction holds locks on its keys, if that is why it
        waits."""
        is_first = slot is None or not slot.deadline_ms
        slot = self.place(client, command, args, now_ms, slot)
        if slot is not None:
            if is_first:
                self._metrics.parked.inc()
            self._slots.append(slot)
            if locked is not None:
                self._locked[slot] = locked

    def waited_for_lock(self, slot: Slot, now_ms: int) -> bool:
        """Return whether the slot waited only for a transaction, so that no other agent has served
        its key.

        True at most once for each time it was parked."""
        role = self._locked.pop(slot, None)
        return role is not None and role.serves(now_ms)

    def park_again(self, slot: Slot) -> None:
        """Try a command again that has its deadline already."""
        self._slots.append(slot)

    def client_gone(self, client: ClientConnection) -> None:
        """Drop the commands of a client that is gone."""
        self._slots = [slot for slot in self._slots if slot.connection is not client]
        for slot in [slot for slot in self._locked if slot.connection is client]:
            del self._locked[slot]

    def retry(
        self, now_ms: int, execute: Callable[[Slot], None], give_up: Callable[[Slot], None]
    ) -> None:
        """Execute each command again, or give up those past their bound."""
        slots, self._slots = self._slots, []
        for slot in slots:
            since = slot.since_ms
            if slot.deadline_ms and slot.deadline_ms <= now_ms:
                self._locked.pop(slot, None)
                give_up(slot)
            else:
                execute(slot)
            if not slot.deadline_ms:
                self._metrics.parked_seconds.observe((now_ms - since) / 1000)
