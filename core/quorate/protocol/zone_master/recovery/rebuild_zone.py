"""Rebuild rows of a zone that the metastore has lost, or holds in an older state or damaged.

This module keeps which rows these are, what agents have reported of them, and what the others wait
for. recover_rows.py decides what makes one row safe. Source: docs/protocol.md, section 7.

    served --row missing, or older than an agent's--> lost --who is online has reported--> served
    served --stored row is invalid--> set aside --repaired--> served, --removed--> lost
                                                --a person has it rebuilt--> served
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from zlib import crc32

import msgspec

from quorate.facts.partition_row import PartitionRow, is_quorum
from quorate.facts.time import Now
from quorate.facts.topology import Voter
from quorate.protocol.members.cluster import Cluster
from quorate.protocol.members.membership import KnownAgent, ZoneNodes
from quorate.protocol.messages.events import Reason
from quorate.protocol.messages.master import AskInventory, CopyReport
from quorate.protocol.metastore import SHARD_PARTITIONS, UNREADABLE, DamagedRow, partitions_of
from quorate.protocol.recovery import RecoveryAction, commands_of
from quorate.protocol.zone_master.causes import Cause, Why
from quorate.protocol.zone_master.recovery.recover_rows import Told, Waiting, recovered_row
from quorate.protocol.zone_master.zone import Zone

VERSION_MAX = 1 << 52
"""A stored version above this is garbage: no row is ever counted so high."""

_WAY_OUT = (
    f"have them rebuilt ({commands_of(RecoveryAction.REBUILD)}), then reset to a copy that is left"
)

ASK_MS = 2_000
"""An agent that has not reported its rows is asked again: it may have to open the zone first."""


class ZoneRebuild:
    """The lost and set-aside rows of one zone.

    - `drop_row`: called to forget a partition's row, so that nothing is decided from it any more.
    - `place`: called to give partitions that were never placed their first row.
    """

    def __init__(
        self,
        cluster: Cluster,
        zone: Zone,
        drop_row: Callable[[int], None],
        place: Callable[[Sequence[int], Now], str],
    ) -> None:
        self.set_aside: dict[int, DamagedRow] = {}
        """Partitions whose stored row is invalid. Nothing is decided about them."""
        self.waiting = ""
        """The reason why some rows are not rebuilt yet, or ""."""
        self._cluster = cluster
        self._zone = zone
        self._uid = zone.record.uid
        self._drop_row = drop_row
        self._place = place
        self._below: dict[int, int] = {}
        self._discarded: dict[int, tuple[DamagedRow, PartitionRow]] = {}
        """Invalid rows that are stored until the rows that replace them are written."""
        self._without_quorum: set[int] = set()
        """Those of them for which a person agreed to a row of which no quorum is left."""
        self._asked_ms: dict[str, int] = {}

    @property
    def sentence(self) -> str:
        """The faults of the zone's rows, and the way out; "" if they are sound."""
        said = [self.waiting] if self.waiting else []
        by_reason: dict[str, list[int]] = {}
        for partition, damaged in sorted(self.set_aside.items()):
            by_reason.setdefault(damaged.why, []).append(partition)
        said += [f"{which(those)} set aside: {why}" for why, those in by_reason.items()]
        if self.set_aside:
            said.append(
                "repair these rows, or have them rebuilt from the agents' data"
                f" ({commands_of(RecoveryAction.REBUILD)})"
            )
        return "; ".join(said)

    # --- what is lost ----------------------------------------------------------------------------

    def lose(self, partitions: Iterable[int], why: str) -> None:
        """Begin to rebuild the rows of `partitions`."""
        self._tell(
            Reason.OWNERSHIP_LOST,
            f"{which(partitions)}: {why}: rebuilt from the agents' data, each row once all online "
            "agents have reported, and a quorum of the voters of its newest known version; the "
            "zone's conditions name the agents that are waited for",
            "Warning",
        )
        self._zone.change(recovering=True)

    def withdraw(self, versions: Mapping[int, int], why: str) -> None:
        """Discard stored rows that are older than what agents have: those up to these versions.

        Agents are asked again for what they reported before: it may be older than later decisions.
        """
        self._forget_told()
        for partition, version in versions.items():
            self._drop_row(partition)
            self._below[partition] = max(version, self._below.get(partition, 0))
        self.lose(versions, why)

    def is_withdrawn(self, row: PartitionRow) -> bool:
        """Return whether the row was discarded because an agent has a newer one."""
        return row.version <= self._below.get(row.partition, -1)

    # --- what another has changed ----------------------------------------------------------------

    def look(self, shard: int, damaged: Sequence[DamagedRow]) -> None:
        """Take the rows of a shard that were found invalid when it was read; its others are valid.

        A row in a shard that is not its partition's says nothing about that partition.
        """
        inside = partitions_of(shard, self._zone.record.partitions)
        damaged = [each for each in damaged if each.partition in inside]
        is_damaged = {each.partition for each in damaged}
        for partition in list(self.set_aside):
            if partition // SHARD_PARTITIONS == shard and partition not in is_damaged:
                del self.set_aside[partition]
                self._tell(Reason.ROW_REPAIRED, f"partition {partition} is no longer set aside")
        for partition in [p for p in self._discarded if p // SHARD_PARTITIONS == shard]:
            if partition not in is_damaged:
                del self._discarded[partition]
        for each in damaged:
            self._look_at(each)

    def _look_at(self, damaged: DamagedRow) -> None:
        """Set the invalid stored row of a partition aside, unless it can be written again."""
        partition = damaged.partition
        part = self._zone.parts.get(partition)
        is_older = (
            part is not None
            and damaged.version <= part.row.version
            and damaged.term <= part.row.term
        )
        if is_older:
            return  # the valid row is known here: put_right writes it again
        if self._is_replaced(damaged):
            return
        if part is not None:
            self._forget_told()  # it may be older than later decisions about this row
        self._drop_row(partition)
        if self.set_aside.get(partition) != damaged:
            self.set_aside[partition] = damaged
            self._tell(
                Reason.ROW_SET_ASIDE,
                f"partition {partition}: {damaged.why}; only this row is set aside: repair it, or "
                "have it rebuilt from the agents' data (`quorate recover rebuild`)",
                "Warning",
            )

    def _is_replaced(self, damaged: DamagedRow) -> bool:
        """Return whether the invalid row is one that a person had rebuilt, and is written over.

        If it is still stored after a write that failed, another row is decided from what agents
        know now. If they know too little now, the person has to decide again.
        """
        partition = damaged.partition
        if self._discarded.get(partition, (None,))[0] != damaged:
            self._discarded.pop(partition, None)
            return False
        if partition in self._zone.decided:
            return True
        row = self._replacement_of(damaged)
        if isinstance(row, Waiting) and row.last is not None and partition in self._without_quorum:
            row = row.last.next
        if isinstance(row, Waiting):
            del self._discarded[partition]
            return False
        self._discarded[partition] = (damaged, row)
        self._zone.decided[partition] = (row, Why(Cause.REBUILT))
        return True

    def replacement(self, partition: int) -> PartitionRow | Waiting:
        """Return the row of a partition that has none, or what it waits for."""
        damaged = self.set_aside.get(partition)
        return self._rebuilt(partition) if damaged is None else self._replacement_of(damaged)

    def _rebuilt(self, partition: int, below: int = 0) -> PartitionRow | Waiting:
        below = max(below, self._below.get(partition, 0))
        rows = _rebuilt(self._cluster, self._zone.nodes, self._uid, [partition], {partition: below})
        return next(rows)[1]

    def _replacement_of(self, damaged: DamagedRow) -> PartitionRow | Waiting:
        """Return a row that is counted above the invalid one: the metastore refuses lower ones.

        A number that cannot be read is left out; the other one still counts.
        """
        below = max(each for each in (damaged.version, damaged.term, 0) if each != UNREADABLE)
        if max(below, self._below.get(damaged.partition, 0)) >= VERSION_MAX:
            return Waiting((), "its version or term is garbage: remove it from its object")
        return self._rebuilt(damaged.partition, below)

    def discard(self, rows: Iterable[PartitionRow]) -> None:
        """Set the rows aside that these replace no more: these are about to be written."""
        for row in rows:
            damaged = self.set_aside.pop(row.partition, None)
            if damaged is None:
                continue
            self._discarded[row.partition] = (damaged, row)
            self._without_quorum.discard(row.partition)
            if isinstance(self._replacement_of(damaged), Waiting):
                self._without_quorum.add(row.partition)

    def note_stored(self, stored: Iterable[PartitionRow]) -> None:
        """Note that these rows are stored: the invalid rows that they replaced are gone."""
        for row in stored:
            damaged, replacing = self._discarded.pop(row.partition, (None, None))
            if damaged is not None and row == replacing:
                self._tell(
                    Reason.ROW_DISCARDED,
                    f"partition {row.partition}: a person had its row rebuilt from the agents' "
                    f"data; what was stored: {damaged.why}",
                    "Warning",
                )

    def has_reported(self, node: str) -> bool:
        """Return whether the agent is online and has reported its rows of this zone."""
        agent = self._cluster.agents.get(node)
        return agent is not None and agent.online and self._uid in agent.rows

    def put_right(self, shard: int, stored: Iterable[PartitionRow]) -> None:
        """Write rows again that another process deleted, put back or damaged.

        `stored`: the rows that the shard holds now.
        """
        found = {row.partition: row for row in stored}
        written: list[int] = []
        older: dict[int, int] = {}
        for partition in partitions_of(shard, self._zone.record.partitions):
            part, row = self._zone.parts.get(partition), found.get(partition)
            if part is None or part.row == row or partition in self._zone.decided:
                continue
            if row is not None and row.term > part.row.term:
                # The metastore refuses a row with a lower term.
                older[partition] = part.row.version
            else:
                self._zone.decided[partition] = (part.row, Why(Cause.WRITTEN_AGAIN))
                written.append(partition)
        if older:
            self.withdraw(older, "another client stored a row of a later term instead")
        if written:
            self._tell(
                Reason.RECORD_RESTORED,
                f"{which(written)}: another client deleted or changed the stored rows; they were "
                "restored",
                "Warning",
            )

    # --- what agents tell ------------------------------------------------------------------------

    def ask(self, now: Now, nodes: Iterable[str] | None = None) -> list[str]:
        """Ask the agents that have not reported their rows of this zone yet. Return their names."""
        waited_for = [
            node
            for node, agent in sorted(self._cluster.agents.items())
            if agent.online and self._uid not in agent.rows and (nodes is None or node in nodes)
        ]
        for node in waited_for:
            if now.boot_ms - self._asked_ms.get(node, -ASK_MS) >= ASK_MS:
                self._asked_ms[node] = now.boot_ms
                ask = AskInventory(self._cluster.master_term, True, self._uid)
                self._cluster.publish([node], ask)
        return waited_for

    def note_heard(self, partition: int, now: Now) -> None:
        """Let decisions about the partition begin once enough of its voters have reported rows.

        Every voter must have reported or left, and a quorum must have reported: one of these also
        knows what a voter that has left knows. A voter without a registration is waited for,
        because its registration may be lost.
        """
        zone = self._zone
        part = zone.parts[partition]
        if not part.unheard or not all(zone.nodes.reported(v.node) for v in part.row.voters):
            return
        voters = part.row.voters
        unknown = [v for v in voters if not zone.nodes.is_registered(v.node)]
        if unknown and now.boot_ms - part.since_ms < self._cluster.settings.failure_detection_ms:
            return
        told = [v.node for v in voters if zone.nodes.has_told(v)]
        if is_quorum(part.row, told, zone.nodes.dead_voters(part.row)):
            zone.parts[partition] = msgspec.structs.replace(part, unheard=False)

    def known_of(self, partitions: Iterable[int], now: Now) -> list[int] | None:
        """Return those of `partitions`, which have no row, of which an agent has a row or a copy.

        None until every online agent has reported everything, and also its rows of this zone if it
        keeps anything of it.
        """
        agents = {node: each for node, each in self._cluster.agents.items() if each.online}
        if not all(agent.told_all for agent in agents.values()):
            return None
        keeping = [node for node, agent in agents.items() if self._uid in agent.kept]
        if self.ask(now, keeping):
            return None
        known = self._known_by(agents.values())
        return [p for p in partitions if p in known]

    def _known_by(self, agents: Iterable[KnownAgent]) -> set[int]:
        """Return the partitions of which one of these agents has a row or a copy."""
        told = ((agent.rows, agent.inventory) for agent in agents)
        return {p for by_zone in chain(*told) for p in by_zone.get(self._uid, ())}

    def step(self, lacking: Sequence[int], now: Now) -> None:
        """Rebuild those of the `lacking` rows of which enough is known."""
        zone = self._zone
        if len(zone.parts) + len(self.set_aside) == zone.record.partitions:
            self._end()
            return
        self.ask(now)
        if unplaced := self._never_placed(lacking):
            self._place(unplaced, now)
            lacking = [p for p in lacking if p not in unplaced]
        rows, waiting = rebuild(self._cluster, zone.nodes, self._uid, lacking, self._below)
        self._zone.decided.update({row.partition: (row, Why(Cause.REBUILT)) for row in rows})
        if waiting and waiting != self.waiting:
            self._tell(Reason.REBUILD_WAITS, waiting, "Warning")
        self.waiting = waiting

    def _never_placed(self, lacking: Sequence[int]) -> list[int]:
        """Return those of the `lacking` partitions that had no row before.

        A master whose first placement was cut short has stored only some rows. Not known, so none,
        while a registered agent has not reported, or if the zone was placed once.
        """
        agents = self._cluster.agents.values()
        has_all_told = all(a.online and a.told_all and self._uid in a.rows for a in agents)
        if self._zone.record.placed or not has_all_told:
            return []
        known = {*self._below, *self._known_by(agents)}
        return [p for p in lacking if p not in known]

    def _end(self) -> None:
        self.waiting = ""
        self._below.clear()
        self._forget_told()
        self._tell(Reason.OWNERSHIP_REBUILT, "all missing rows are rebuilt")
        self._zone.change(recovering=False)

    def _forget_told(self) -> None:
        self._asked_ms.clear()
        for agent in self._cluster.agents.values():
            agent.rows.pop(self._uid, None)

    def _tell(self, reason: Reason, message: str, kind: str = "Normal") -> None:
        self._cluster.event(self._uid, None, reason, message, kind)


def which(partitions: Iterable[int]) -> str:
    """Return a phrase on how many partitions there are, and the lowest one."""
    those = sorted(partitions)
    if len(those) == 1:
        return f"partition {those[0]}"
    return f"{len(those)} partitions (from {those[0]} on)"


def rebuild(
    cluster: Cluster,
    nodes: ZoneNodes,
    uid: str,
    partitions: Iterable[int],
    below: Mapping[int, int],
) -> tuple[list[PartitionRow], str]:
    """Return rows for those of `partitions` of which enough is known, and a sentence on the others.

    `below`: versions that were seen in the metastore; the rows get higher ones.
    """
    rows: list[PartitionRow] = []
    waiting: dict[str, list[int]] = {}
    for partition, found in _rebuilt(cluster, nodes, uid, partitions, below):
        if isinstance(found, Waiting):
            why = found.why if found.last is None else f"{found.why}: {_WAY_OUT}"
            waiting.setdefault(why, []).append(partition)
        else:
            rows.append(found)
    return rows, "; ".join(
        f"{len(those)} partitions (from {those[0]} on) are not rebuilt yet: {why}"
        for why, those in sorted(waiting.items(), key=lambda each: -len(each[1]))
    )


def _rebuilt(
    cluster: Cluster,
    nodes: ZoneNodes,
    uid: str,
    partitions: Iterable[int],
    below: Mapping[int, int],
) -> Iterator[tuple[int, PartitionRow | Waiting]]:
    """Yield each partition with its row, or with what it waits for; `below`: see `rebuild`."""
    online = {
        node: holder
        for node in sorted(cluster.agents)
        if (holder := nodes.holder(node)) is not None
    }
    rows = {node: cluster.agents[node].rows for node in online}
    here = {node: (online[node], has[uid]) for node, has in rows.items() if uid in has}
    silent = [node for node in online if node not in here]
    for partition in partitions:
        told = {node: Told(holder, has.get(partition)) for node, (holder, has) in here.items()}
        voters = {voter for each in told.values() for voter in _voters(each.report)}
        dead = [voter for voter in sorted(voters) if nodes.is_dead(voter)]
        least = below.get(partition, 0)
        yield partition, recovered_row(partition, told, dead, cluster.master_term, least, silent)


def seen_version(damaged: DamagedRow) -> int:
    """Return the number by which a person names an invalid row: its version, if that is readable.

    Otherwise it is computed from what is wrong with the row.
    """
    if 0 < damaged.version < VERSION_MAX:
        return damaged.version
    return 1 + crc32(damaged.why.encode())


def _voters(report: CopyReport | None) -> tuple[Voter, ...]:
    """Return every voter that the reported row names, also before and after a migration."""
    row = report.row if report is not None else None
    if row is None:
        return ()
    after = row.active.voters if row.active is not None else ()
    return (*chain.from_iterable(row.voter_sets), *after)
