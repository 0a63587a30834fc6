"""One strike of the crash matrix: waits for the moment of a migration, and hurts who takes part.

What a moment is told by is seen on the network or in the metastore; the process that is struck has
heard nothing that came after.

    moment               is told by
    start                the row with the migration is in the metastore; nobody has heard of it
    filling              the first piece for the destination is on its way
    caught up            CaughtUp is on its way to the master
    frozen               Frozen is on its way to the master
    prepared row sent    PreparedRow is on its way to the destination
    prepared row stored  Prepared is on its way to the master
    migration commit     the row after the migration is there; its master does not yet know
    published            one agent has stored that row (see `_first`); to all others it is held
    source deletes       all others have stored it; to the source it is held
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from migration_words import Moment, Role
from quorate.protocol.messages.handshake import Hello, Refused
from quorate.protocol.messages.master import (
    AgentReport,
    CaughtUp,
    Frozen,
    MasterPing,
    Members,
    Prepared,
    PreparedRow,
    RowsStored,
    ZoneTable,
)
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.replication import Acks, Append, Heartbeat, HeartbeatAck
from quorate.protocol.messages.transfer import KeyRows, SnapshotChunk, Updates
from quorate_sim.agent_process import AgentProcess
from quorate_sim.cluster import Cluster
from quorate_sim.coverage import Reached, Running
from quorate_sim.crash_cases import FOLLOWED, MESSAGE_FAULTS, Case, Fault
from quorate_sim.master_process import MasterProcess
from quorate_sim.network import Link, Process
from quorate_sim.world import MS

FROZEN_MS = 8000
CUT_MS = 2500
"""Longer than a lease, and than the silence after which a master takes an agent for left."""
DOWN_MS = 1500
MASTER_DOWN_MS = 300
LEADS_MS = 1200
"""For so long a master leads alone: it has judged who has left, and decided on every migration."""
BESIDE_MS = 2000
"""For so long a former master goes on: it takes all agents for left, and says so in the rows."""
QUIET_MS = 400
"""Where nothing else is said for so long, a message is also struck that carries updates."""

ROUTINE = (Hello, Refused, Members, MasterPing, AgentReport, Heartbeat, HeartbeatAck)
"""Said with or without migrations."""


class Strike:
    """Waits for the moment of the first migration of the case's kind, and strikes once."""

    def __init__(self, cluster: Cluster, case: Case) -> None:
        self.cluster = cluster
        self.case = case
        self.running: Running | None = None
        self.partition = -1
        self.victim = ""
        self.is_reached = False
        self.struck_at_us = -1
        self.mended = False
        self._armed_at_us = -1
        self._stored: list[str] = []
        self._held: list[tuple[Link, Process, Message]] = []
        cluster.coverage.on_moment = self._metastore_says
        cluster.network.judge = self._judge

    # --- the moment ---

    def _metastore_says(self, reached: Reached) -> None:
        running, moment = reached
        if self.running is None and moment is Moment.START and running.kind is self.case.kind:
            if not self._find_victim(running):
                return
            self.running = running
            self.partition = int(running.migration.migration_id.split("/")[1])
            if self.case.moment is Moment.START:
                self._reach()
            return
        is_committed = running is self.running and moment is Moment.MIGRATION_COMMIT
        if is_committed and self.case.moment is Moment.MIGRATION_COMMIT:
            self._reach()

    def _find_victim(self, running: Running) -> bool:
        role = self.case.role
        if role is Role.MASTER:
            master = self.cluster.newest_master()
            assert master is not None
            self.victim = master.name
            return True
        nodes = running.nodes(role)
        if role is Role.SOURCE and not nodes:
            nodes = [running.primary]
        nodes = [name for name in nodes if self.cluster.agent_at(name) is not None]
        self.victim = nodes[0] if nodes else ""
        return bool(nodes)

    @property
    def _first(self) -> str:
        """Who is told of the row after the migration first: its destination, else the primary."""
        assert self.running is not None
        return [*self.running.nodes(Role.DESTINATION), self.running.primary][0]

    def _judge(self, link: Link, sender: Process, receiver: Process, message: Message) -> int:
        running = self.running
        if running is None or isinstance(message, ROUTINE):
            return 1
        if not self.is_reached:
            if self._is_held(receiver, message):
                self._held.append((link, sender, message))
                return 0
            if self._tells(running, sender, receiver, message):
                self._reach()
        if self._armed_at_us >= 0 and self.struck_at_us < 0:
            return self._strike_message(sender, receiver, message)
        return 1

    def _is_held(self, receiver: Process, message: Message) -> bool:
        """Whether this is the row after the migration, for somebody who must not yet have it."""
        if not isinstance(message, ZoneTable) or not self._has_committed(
            [(row.partition, row.version) for row in message.rows]
        ):
            return False
        if self.case.moment is Moment.PUBLISHED:
            return receiver.name != self._first
        return self.case.moment is Moment.SOURCE_DELETES and receiver.name == self._source

    @property
    def _source(self) -> str:
        assert self.running is not None
        return self.running.migration.source or self.running.primary

    def _has_committed(self, versions: list[tuple[int, int]]) -> bool:
        running = self.running
        assert running is not None
        # The version is counted up with the migration commit.
        return running.has_come_to(Moment.MIGRATION_COMMIT) and any(
            partition == self.partition and version >= running.version
            for partition, version in versions
        )

    def _tells(
        self, running: Running, sender: Process, receiver: Process, message: Message
    ) -> bool:
        moment, migration = self.case.moment, running.migration.migration_id
        if isinstance(message, SnapshotChunk | Updates | KeyRows):
            is_its = message.partition == self.partition and receiver.name == self._first
            return moment is Moment.FILLING and is_its
        if isinstance(message, RowsStored):
            if self._has_committed(list(message.versions)) and sender.name not in self._stored:
                self._stored.append(sender.name)
            if moment is Moment.PUBLISHED:
                return self._first in self._stored
            others = [agent.name for agent in self.cluster.living() if agent.name != self._source]
            return moment is Moment.SOURCE_DELETES and all(name in self._stored for name in others)
        wanted = {
            Moment.CAUGHT_UP: CaughtUp,
            Moment.FROZEN: Frozen,
            Moment.PREPARED_ROW_SENT: PreparedRow,
            Moment.PREPARED_ROW_STORED: Prepared,
        }.get(moment)
        return wanted is not None and (
            isinstance(message, wanted) and getattr(message, "migration_id", "") == migration
        )

    def _reach(self) -> None:
        self.is_reached = True
        self.cluster.world.trace("matrix", f"{self.case} ({self.victim})")
        if self.case.fault in MESSAGE_FAULTS:
            self._armed_at_us = self.cluster.world.time_us
        else:
            # Whoever is in its turn ends it; what it sends is on its way, and no further.
            self.cluster.world.after(0, self._strike)
        self.cluster.world.after(0, self._release)

    def _release(self) -> None:
        held, self._held = self._held, []
        for link, sender, message in held:
            link.send(sender, message)

    # --- the fault ---

    def _struck(self) -> None:
        self.struck_at_us = self.cluster.world.time_us
        self.cluster.coverage.struck(self.case.fault, [self.victim])

    def _strike_message(self, sender: Process, receiver: Process, message: Message) -> int:
        is_from, copies = MESSAGE_FAULTS[self.case.fault]
        world = self.cluster.world
        if self.victim != (sender if is_from else receiver).name:
            return 1
        quiet_us = world.time_us - self._armed_at_us
        if isinstance(message, Append | Acks) and quiet_us < QUIET_MS * MS:
            return 1
        world.trace("matrix", f"{type(message).__name__} {sender.name}→{receiver.name}: {copies}")
        self._struck()
        self.mended = True
        return copies

    def _strike(self) -> None:
        cluster, victim = self.cluster, self.victim
        self._struck()
        match self.case.fault:
            case Fault.CRASH | Fault.POWER_LOSS:
                self._crash()
            case Fault.FREEZE:
                process = self._process
                process.freeze()
                self._mend_after(FROZEN_MS, process.thaw)
            case fault if fault in FOLLOWED:
                self._follow(fault)
            case fault:
                others = [*cluster.agents, *(m.name for m in cluster.masters if m.alive)]
                others.remove(victim)
                out, into = [(victim, o) for o in others], [(o, victim) for o in others]
                pairs = {Fault.CUT_OUT: out, Fault.CUT_IN: into}.get(fault, out + into)
                for pair in pairs:
                    cluster.network.cut(*pair)
                self._mend_after(CUT_MS, partial(heal, cluster, pairs))

    def _crash(self) -> None:
        cluster, victim, fault = self.cluster, self.victim, self.case.fault
        if self.case.role is Role.MASTER:
            cluster.masters[-1].die()
            self._mend_after(MASTER_DOWN_MS, cluster.add_master)
        else:
            agent, is_crash = cluster.agents[victim], fault is Fault.CRASH
            cluster.stop_agent(victim, machine_too=not is_crash, refused=is_crash)
            if is_crash:
                links = [k for k in cluster.network.links if agent in (k.source, k.target)]
                for link in links:
                    cluster.network.lose(link, gone=link.target is agent)
            self._mend_after(DOWN_MS, partial(start, cluster, victim))

    def _follow(self, fault: Fault) -> None:
        """Another master leads; this one goes on for a while, then its process ends."""
        cluster, former = self.cluster, self.cluster.masters[-1]
        wake: Callable[[], None] = _nothing
        match fault:
            case Fault.FOLLOWED_FROZEN:
                former.freeze()
                wake = former.thaw
            case Fault.FOLLOWED_CUT:
                for name in cluster.agents:
                    cluster.network.cut(former.name, name)
                    cluster.network.cut(name, former.name)
            case Fault.FOLLOWED_STALLED:
                cluster.metastore.cut(former.name)
                wake = partial(cluster.metastore.heal, former.name)
            case _:
                pass
        cluster.world.after(MASTER_DOWN_MS * MS, partial(_add_master, cluster))

        def go_on() -> None:
            beside = cluster.masters[-1].name
            cluster.world.trace("matrix", f"{former.name} goes on beside {beside}")
            wake()

        cluster.world.after((MASTER_DOWN_MS + LEADS_MS) * MS, go_on)
        self._mend_after(MASTER_DOWN_MS + LEADS_MS + BESIDE_MS, former.die)

    @property
    def _process(self) -> AgentProcess | MasterProcess:
        if self.case.role is Role.MASTER:
            return self.cluster.masters[-1]
        return self.cluster.agents[self.victim]

    def _mend_after(self, ms: int, mend: Callable[[], object]) -> None:
        def now() -> None:
            self.cluster.world.trace("matrix", "mended")
            mend()
            self.mended = True

        self.cluster.world.after(ms * MS, now)


def start(cluster: Cluster, name: str) -> None:
    """Start an agent, unless it runs."""
    if not cluster.agents[name].alive:
        cluster.start_agent(name)


def heal(cluster: Cluster, pairs: list[tuple[str, str]]) -> None:
    """Let everything through again between these."""
    for pair in pairs:
        cluster.network.heal(*pair)


def _add_master(cluster: Cluster) -> None:
    cluster.add_master()


def _nothing() -> None:
    return None
