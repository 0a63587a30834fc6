"""Losses that are allowed, and what clients may see after them.

By a reset, in HIGH_AVAILABILITY or by a person; by a change of primary in PRIMARY_SYNC.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from quorate.facts.errors import InvariantError
from quorate.facts.partition_row import PartitionRow, is_quorum
from quorate.facts.topology import NodeRecord, Voter
from quorate.facts.zone import NEVER_MS, ConsistencyMode, SyncWrites
from quorate.protocol.copies.primary import Primary
from quorate.protocol.messages.events import Event, Reason
from quorate.protocol.metastore import Key, ShardKey, Value
from quorate_sim.linearizability import Call, check_key

if TYPE_CHECKING:
    from quorate_sim.clients import Op
    from quorate_sim.cluster import Cluster

Where = tuple[str, int]
"""Zone and partition."""

READS = ("get",)


class ResetChecks:
    """Watches the resets of all zones, and changes of primary in those with PRIMARY_SYNC.

    - `lost`: by partition, how many acknowledged updates were lost
    - `left_ops`: commands that were answered by a line of history which a reset had left, or by a
      primary that another was to follow
    - `decided`: the partitions that a person resets
    - `torn`: by zone, partitions of which a reset may have taken parts of transactions
    """

    def __init__(self, cluster: Cluster) -> None:
        self.lost: dict[Where, int] = {}
        self.left_ops: set[int] = set()
        self.decided: set[Where] = set()
        self.torn: dict[str, set[int]] = defaultdict(set)
        self._cluster = cluster
        self._terms: dict[Where, int] = {}
        self._may_lose_nothing: set[Where] = set()
        self._adopted: dict[Where, int] = {}
        self._adopted_us: dict[Where, int] = {}
        self._activated: dict[Where, int] = {}
        self._announced: set[tuple[Where, int]] = set()
        self._changed: dict[Where, list[int]] = defaultdict(list)

    def is_one(
        self,
        uid: str,
        old: PartitionRow,
        row: PartitionRow,
        known: Mapping[str, NodeRecord],
        refusing: Collection[str],
    ) -> bool:
        """Whether `row` resets the partition; an error unless that was allowed.

        `known`: who was registered as the master knew it; `refusing`: who refused the zone.
        """
        if row.term > old.term and ((uid, row.partition), row.term) in self._announced:
            self._changed[uid, row.partition].append(row.term)
        before = old.reset.term if old.reset is not None else 0
        if row.reset is None or row.reset.term == before:
            return False
        record, where = self._cluster.zones[uid], (uid, row.partition)
        if row.reset.term < before:
            # Rebuilt: of the last reset nobody had heard when the metastore was lost.
            self._terms[where] = row.reset.term
            return False
        is_high = record.mode is ConsistencyMode.HIGH_AVAILABILITY
        if not is_high and where not in self.decided:
            raise InvariantError(f"reset: zone {uid} is {record.mode}: {old}, {row}")
        stores = {
            name: each.zone_store(record.persistent)
            for name, each in known.items()
            if each.left_since_ms is None
        }
        dead = [
            voter.node
            for voter in old.voters
            if voter.node in known
            and known[voter.node].zone_store(record.persistent) != voter.store
        ]
        there = [
            voter.node
            for voter in old.voters
            if stores.get(voter.node) == voter.store and voter.node not in refusing
        ]
        waits = where in self.decided and old.reset is not None and old.reset.links
        # The primary could not take over what a copy has that a reset left: that one goes on.
        is_blocked = self._activated.get(where, 0) < old.term and any(
            voter in old.left_by_reset for voter in row.voters
        )
        if is_quorum(old, there, dead) and not waits and not is_blocked:
            raise InvariantError(f"reset: {there} were a majority of {old}, which became {row}")
        self._check_isolated(uid, old, known, dead)
        allowed = {*old.voters}
        if old.destination is not None:
            allowed |= {Voter(old.destination.node, old.destination.store)}
        if len(dead) == len(old.voters) or where in self.decided or is_blocked:
            allowed |= {*old.left_by_reset}
        if len(row.voters) != 1 or row.voters[0] not in allowed:
            raise InvariantError(f"reset: {old} became {row}")
        self._terms[where] = row.reset.term
        is_durable = record.sync_writes is SyncWrites.ALWAYS or not record.persistent
        survivor, primary = row.voters[0], old.primary
        is_primary = primary is not None and survivor == Voter(primary.node, primary.store)
        has_all = is_primary if record.acknowledges_alone else survivor.node in old.owners
        if is_primary and not self._cluster.checks.has_served(where, old.term):
            has_all = False  # just elected: it has not gathered what others hold
        if is_high and is_durable and has_all:
            self._may_lose_nothing.add(where)
        else:
            self._may_lose_nothing.discard(where)
            self.torn[uid].add(row.partition)
        return True

    def _check_isolated(
        self,
        uid: str,
        old: PartitionRow,
        known: Mapping[str, NodeRecord],
        dead: Collection[str],
    ) -> None:
        """An error if a voter serves that has left and may be cut off."""
        if self._cluster.zones[uid].isolation_ms >= NEVER_MS:
            return
        for voter in old.voters:
            agent = self._cluster.agents.get(voter.node)
            is_there = voter.node in known and known[voter.node].left_since_ms is None
            if agent is None or not agent.alive or is_there or voter.node in dead:
                continue
            zone = agent.core.zones.get(uid)
            role = zone.primaries[old.partition] if zone is not None else None
            if role is not None and role.serves(agent.now().boot_ms):
                raise InvariantError(f"reset: {voter.node} serves, cut off: {old}")

    def refusing(self) -> frozenset[tuple[str, str]]:
        """Zone and node of each agent that a master knows to refuse a zone: there it has left."""
        masters = [process.master for process in self._cluster.masters if process.alive]
        return frozenset(
            (uid, node)
            for master in masters
            if master is not None
            for uid, zone in master.zones.items()
            for node, _ in zone.nodes.refusals()
        )

    def has_left(self, where: Where, term: int) -> bool:
        """Whether `term` is of a line of history that a reset has left."""
        return term < self._terms.get(where, 0)

    def told(self, events: Iterable[Event], writes: Iterable[tuple[Key, Value | None]]) -> None:
        """A master begins these writes, and announces that some may lose acknowledged updates."""
        named = [
            (event.zone, int(partition))
            for event in events
            if event.reason is Reason.DATA_LOSS_ACCEPTED
            for partition in re.findall(r"\d+", (*re.findall(r"\([\d, ]+\)", event.message), "")[0])
        ]
        for key, rows in writes if named else ():
            if isinstance(key, ShardKey) and isinstance(rows, tuple):
                written = [((key.uid, row.partition), row.term) for row in rows]
                self._announced |= {each for each in written if each[0] in named}

    def is_announced(self, where: Where, answered_in: int, term: int = 1 << 62) -> bool:
        """Whether the primary was changed, as announced, after `answered_in` and up to `term`."""
        return any(answered_in < each <= term for each in self._changed[where])

    def activated(
        self,
        where: Where,
        role: Primary,
        acknowledged: dict[int, int],
        answered_in: dict[int, int],
    ) -> list[int]:
        """A role has adopted its term: what it lacks of `acknowledged` may have been lost by a
        reset, or by announced changes of primary.  Return the latter.

        As long as nothing was written after a reset, what it lost may be found again by a later
        term.  `answered_in`: counter -> the term in which it was answered.
        """
        reset, copy = role.row.reset, role.copy
        self._activated[where] = role.term
        lost = [
            counter
            for counter, term in acknowledged.items()
            if counter > copy.lwm or copy.lineage.term_at(counter) not in (None, term)
        ]
        announced = [c for c in lost if self.is_announced(where, answered_in[c], role.term)]
        is_reset = reset is not None and self._adopted.get(where, 0) < reset.term
        is_unused = all(reset is None or term < reset.term for term in acknowledged.values())
        if reset is not None and is_reset:
            self._adopted[where] = reset.term
            if where in self._may_lose_nothing and len(announced) < len(lost):
                raise InvariantError(
                    f"I-5: the reset {reset} of {where} lost {lost}, although its survivor had all"
                )
        else:
            lost = announced
        if is_reset or lost or (reset is not None and reset.links and is_unused):
            self._adopted_us[where] = self._cluster.world.time_us
        for counter in lost:
            del acknowledged[counter], answered_in[counter]
        if is_reset or lost:
            self.lost[where] = self.lost.get(where, 0) + len(lost)
            self._cluster.coverage.counts.events["acknowledged updates lost"] += len(lost)
        return announced

    def unexplained(self, where: Where, ops: Sequence[Op], calls: Sequence[Call]) -> list[Call]:
        """The calls on one key that no order explains.

        What was answered before the last reset may be lost, so the first value is unknown; what was
        answered by the line of history that it left may have happened or not.
        """
        since_us = self._adopted_us.get(where, 0)
        if not since_us and self.left_ops.isdisjoint(map(id, ops)):
            return check_key(list(calls))
        firsts: dict[bytes | None, None] = {None: None}
        after: list[Call] = []
        for op, call in zip(ops, calls, strict=True):
            if since_us:
                firsts |= dict.fromkeys((call.value, call.result))
            is_before = call.end is not None and op.answered_us < since_us
            if is_before and id(op) not in self.left_ops:
                continue
            if id(op) in self.left_ops:
                if call.kind in READS:
                    continue
                after.append(call._replace(end=None))
                continue
            after.append(call)
        unexplained: list[Call] = []
        for first in firsts:
            unexplained = check_key(after, first)
            if not unexplained:
                break
        return unexplained


def is_left(row: PartitionRow, term: int) -> bool:
    """Whether a copy of this last term is on a line that the row's reset has left.

    Nothing of that line is asked for any more: what the copy drops, the reset has given up.
    """
    return row.reset is not None and row.reset.term > term
