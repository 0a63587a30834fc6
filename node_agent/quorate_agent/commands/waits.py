"""WAIT: waits until enough other copies hold what a connection has written, in each partition."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from quorate.facts.partition_row import quorum
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.role_state import Peer
from quorate_agent.clients.connection import ClientConnection, Slot
from quorate_agent.resp.replies import error, integer

FOR_EVER_MS = 1 << 62

_UNBLOCKED = error(
    b"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"
)


class _Target(NamedTuple):
    """A counter that copies must hold.  `role`: the primary of the partition; None: elsewhere."""

    partition: int
    role: Primary | None
    counter: int


class _Waiting(NamedTuple):
    """A WAIT that is not answered yet.  Its connection writes nothing meanwhile."""

    slot: Slot
    targets: tuple[_Target, ...]


class Waits:
    """The WAIT commands of one zone's clients here.  `fulfil(client, slot, reply)` answers one."""

    def __init__(
        self, replicas: Replicas, fulfil: Callable[[ClientConnection, Slot, bytes], None]
    ) -> None:
        self._replicas = replicas
        self._fulfil = fulfil
        self._waiting: list[_Waiting] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, slot: Slot, now_ms: int) -> None:
        """Add a WAIT; later commands of its connection wait until it is answered."""
        assert slot.wait is not None
        slot.deadline_ms = now_ms + slot.wait.timeout_ms if slot.wait.timeout_ms else FOR_EVER_MS
        slot.connection.blocked += 1
        client = slot.connection
        written = client.written or client.written_elsewhere
        self._waiting.append(_Waiting(slot, tuple(self._targets(written))))

    def client_gone(self, client: ClientConnection) -> None:
        """Drop the WAITs of a client that is gone."""
        self._waiting = [each for each in self._waiting if each.slot.connection is not client]

    def check(self, now_ms: int) -> None:
        """Answer the WAITs that enough copies satisfy, or whose time is over."""
        waiting: list[_Waiting] = []
        for each in self._waiting:
            slot, targets = each
            assert slot.wait is not None
            count = self._copies(targets)
            if count >= slot.wait.copies or slot.deadline_ms <= now_ms:
                self._forget_told(slot.connection, targets)
                self._fulfil(slot.connection, slot, integer(count))
            elif slot.deadline_ms >= FOR_EVER_MS and self._is_over(targets):
                self._forget_told(slot.connection, targets)
                self._fulfil(slot.connection, slot, _UNBLOCKED)
            else:
                waiting.append(each)
        self._waiting = waiting

    def _targets(self, written: int) -> Iterator[_Target]:
        """Yield what copies must hold of the partitions whose bits are set."""
        while written:
            partition = (written & -written).bit_length() - 1
            written &= written - 1
            role = self._replicas.primaries[partition]
            yield _Target(partition, role, role.copy.lwm if role is not None else 0)

    def _is_here(self, target: _Target) -> bool:
        """Return whether the target's primary is still here.

        A role that has ended no longer learns what the copies hold."""
        role = target.role
        return role is not None and self._replicas.primaries[target.partition] is role

    def _is_over(self, targets: tuple[_Target, ...]) -> bool:
        """Return whether the count of a partition can grow no more."""
        return not all(self._is_here(target) for target in targets)

    def _copies(self, targets: tuple[_Target, ...]) -> int:
        """Return how many other copies hold everything, of each partition.

        Without a write every backup counts."""
        if not targets:
            row = self._replicas.table[0]
            return len(row.owners) - 1 if row is not None else 0
        return min(map(self._copies_of, targets))

    def _copies_of(self, target: _Target) -> int:
        """Return how many other copies hold the target.

        Of a primary elsewhere it is what its acknowledgements prove; they have been passed on
        before, as replies keep their order."""
        role = target.role
        if role is not None and self._is_here(target):
            return sum(1 for peer in role.peers.values() if _holds(peer, target.counter))
        if self._replicas.record.acknowledges_alone:
            return 0
        row = self._replicas.table[target.partition]
        return quorum(len(row.voters), 0) - 1 if row is not None else 0

    def _forget_told(self, client: ClientConnection, targets: tuple[_Target, ...]) -> None:
        """Let later WAITs of the connection pass by what every copy holds, and what has its primary
        elsewhere: that counts again only if the connection writes nothing here."""
        for target in targets:
            bit = 1 << target.partition
            if not self._is_here(target):
                client.written &= ~bit
                client.written_elsewhere |= bit
            elif self._is_held_by_all(target):
                client.written &= ~bit
                client.written_elsewhere &= ~bit

    def _is_held_by_all(self, target: _Target) -> bool:
        """Return whether there are as many copies as there should be, and all hold the target."""
        peers = target.role.peers.values() if target.role is not None else ()
        is_whole = len(peers) >= self._replicas.record.replicas - 1
        return is_whole and all(_holds(peer, target.counter) for peer in peers)


def _holds(peer: Peer, counter: int) -> bool:
    return peer.adopted and peer.lwm >= counter
