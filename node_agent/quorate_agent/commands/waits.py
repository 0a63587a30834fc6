"""WAIT: waits until enough other copies hold a connection's last write."""

from collections.abc import Callable

from quorate.facts.partition_row import quorum
from quorate.protocol.agent.replicas import Replicas
from quorate_agent.clients.connection import ClientConnection, Slot
from quorate_agent.resp.replies import error, integer

FOR_EVER_MS = 1 << 62

_UNBLOCKED = error(
    b"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"
)


class Waits:
    """The WAIT commands of one zone's clients here.  `fulfil(client, slot, reply)` answers one."""

    def __init__(
        self, replicas: Replicas, fulfil: Callable[[ClientConnection, Slot, bytes], None]
    ) -> None:
        self._replicas = replicas
        self._fulfil = fulfil
        self._slots: list[Slot] = []

    def __bool__(self) -> bool:
        return bool(self._slots)

    def add(self, slot: Slot, now_ms: int) -> None:
        """Add a WAIT; later commands of its connection wait until it is answered."""
        assert slot.wait is not None
        slot.deadline_ms = now_ms + slot.wait.timeout_ms if slot.wait.timeout_ms else FOR_EVER_MS
        slot.connection.blocked += 1
        self._slots.append(slot)

    def client_gone(self, client: ClientConnection) -> None:
        """Drop the WAITs of a client that is gone."""
        self._slots = [slot for slot in self._slots if slot.connection is not client]

    def check(self, now_ms: int) -> None:
        """Answer the WAITs that enough copies satisfy, or whose time is over."""
        waiting: list[Slot] = []
        for slot in self._slots:
            assert slot.wait is not None
            count = self._copies_of_last_write(slot.connection)
            if count >= slot.wait.copies or slot.deadline_ms <= now_ms:
                self._fulfil(slot.connection, slot, integer(count))
            elif slot.deadline_ms >= FOR_EVER_MS and self._is_over(slot.connection):
                self._fulfil(slot.connection, slot, _UNBLOCKED)
            else:
                waiting.append(slot)
        self._slots = waiting

    def _is_over(self, client: ClientConnection) -> bool:
        """Return whether the role that wrote last has ended: it no longer learns what the copies
        hold."""
        if client.last_write is None:
            return False
        role = client.last_write[0]
        return role is None or self._replicas.primaries[role.copy.partition] is not role

    def _copies_of_last_write(self, client: ClientConnection) -> int:
        """Return how many other copies hold the last write.

        Without a write every backup counts; of a forwarded write, as many as its answer proves."""
        if client.last_write is None:
            row = self._replicas.table[0]
            return len(row.owners) - 1 if row is not None else 0
        role, counter = client.last_write
        if role is not None:
            return sum(1 for peer in role.peers.values() if peer.adopted and peer.lwm >= counter)
        if self._replicas.record.acknowledges_alone:
            return 0
        row = self._replicas.table[counter]
        return quorum(len(row.voters), 0) - 1 if row is not None else 0
