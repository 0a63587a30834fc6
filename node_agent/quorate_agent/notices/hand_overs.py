"""Tells clients that asked for it of hand-overs: SMIGRATING before, SMIGRATED after.

`>3 SMIGRATING <sequence> <slots>` and `>3 SMIGRATED <sequence> [[<from> <to> <slots>] …]`, with
addresses as host:port and slots as ranges, are what redis-py 8 and node-redis 6 understand once
CLIENT MAINT_NOTIFICATIONS ON was answered OK in RESP3.  Such a client meets no MOVED.  The agent
that has the primaries sends them.  It forwards late commands for a while (forwards.py), so the news
of many partitions can be gathered into one message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from quorate.facts.keyspace import slot_shift
from quorate.facts.partition_row import PartitionRow
from quorate.protocol.agent.replicas import Replicas
from quorate_agent.clients.addresses import ClientAddresses
from quorate_agent.clients.connection import ClientConnection
from quorate_agent.machine.clock import Clock
from quorate_agent.notices.pushes import push
from quorate_agent.resp.replies import array, bulk, integer

GATHER_MS = 250
"""How long news of ended hand-overs wait for more: each makes clients read the whole table."""


class HandOvers:
    """Tells one zone's clients on this agent of hand-overs from it."""

    def __init__(
        self,
        replicas: Replicas,
        clients: Callable[[], Iterable[ClientConnection]],
        nodes: ClientAddresses,
        clock: Clock,
    ) -> None:
        self._replicas = replicas
        self._clients = clients
        self._nodes = nodes
        self._clock = clock
        self._shift = slot_shift(replicas.record.partitions)
        self._begun: set[int] = set()  # told to clients as SMIGRATING
        self._beginning: list[int] = []
        self._ended: dict[int, str] = {}  # partition -> its new primary
        self._ended_ms = 0

    def rows_came(self, rows: Iterable[PartitionRow], now_ms: int) -> None:
        """Take committed rows as they came from the master."""
        self._replicas.wake()
        mine = self._replicas.me.node
        for row in rows:
            primary = row.primary.node if row.primary is not None else ""
            goes = row.active is not None and row.active.replicas[:1] != (mine,)
            if row.partition in self._begun:
                if not (primary == mine and goes):
                    self._begun.remove(row.partition)
                    self._ended[row.partition] = primary
                    self._ended_ms = self._ended_ms or now_ms
            elif primary == mine and goes:
                self._begun.add(row.partition)
                self._beginning.append(row.partition)

    @property
    def has_news(self) -> bool:
        """Whether anything is still to be sent."""
        return bool(self._beginning or self._ended)

    def tell(self, now_ms: int) -> None:
        """Send what is due."""
        if self._beginning:
            slots = self._slots(self._beginning)
            self._beginning.clear()
            self._push(b"SMIGRATING", lambda _: bulk(slots))
        if self._ended and now_ms - self._ended_ms >= GATHER_MS:
            ended, self._ended, self._ended_ms = self._ended, {}, 0
            self._push(b"SMIGRATED", lambda external: array(self._triplets(ended, external)))

    def _triplets(self, ended: dict[int, str], external: bool) -> list[bytes]:
        """Return an encoded [from, to, slots] for each new primary; a partition that stayed goes
        from us to us."""
        nodes, mine = self._nodes(external), self._replicas.me.node
        source = _address(nodes.get(mine))
        found = []
        for node in sorted(set(ended.values())):
            target = _address(nodes.get(node)) if node else source
            slots = self._slots([partition for partition, to in ended.items() if to == node])
            found.append(array((bulk(source), bulk(target or source), bulk(slots))))
        return found

    def _slots(self, partitions: list[int]) -> bytes:
        """Return the partitions' slots as ranges: b"0-1023,4096-5119"."""
        ranges: list[list[int]] = []
        for partition in sorted(partitions):
            first, last = partition << self._shift, ((partition + 1) << self._shift) - 1
            if ranges and ranges[-1][1] == first - 1:
                ranges[-1][1] = last
            else:
                ranges.append([first, last])
        return b",".join(
            b"%d-%d" % (first, last) if last > first else b"%d" % first for first, last in ranges
        )

    def _push(self, name: bytes, told: Callable[[bool], bytes]) -> None:
        """Push to all clients that asked for it; `told` returns the content for clients of one
        listener."""
        # Clients ignore news whose sequence they have seen, whichever agent sent it.
        sequence = integer(self._clock.wall_us())
        asked = [each for each in self._clients() if each.state.maintenance and each.state.resp3]
        for external in sorted({client.state.external for client in asked}):
            frame = b">3\r\n%b%b%b" % (bulk(name), sequence, told(external))
            for client in asked:
                if client.state.external is external:
                    push(client, frame)


def _address(address: tuple[str, int] | None) -> bytes:
    return b"" if address is None else b"%b:%d" % (address[0].encode(), address[1])
