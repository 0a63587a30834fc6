"""Every participant of every kind of migration, hurt in every way at every moment: one run each.

A run provokes one migration as a user would, without any other fault, strikes once when it comes to
the moment, mends that after a while, and must come to rest.  What a moment is told by is seen on
the network or in the metastore; the process that is struck has heard nothing that came after.

    moment                 is told by
    before start           the row with the migration is in the metastore; nobody has heard of it
    during fill            the first piece for the destination is on its way
    caught up              CaughtUp is on its way to the master
    frozen                 Frozen is on its way to the master
    prepared row sent      PreparedRow is on its way to the destination
    destination durable    Prepared is on its way to the master
    metastore written      the row after the migration is there; its master does not yet know
    before publish         one agent has stored that row (see `_first`); to all others it is held
    before source deletes  all others have stored it; to the source it is held
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import msgspec

from quorate.facts.errors import InvariantError
from quorate.protocol.messages import (
    Acks,
    AgentReport,
    Append,
    CaughtUp,
    Frozen,
    Heartbeat,
    HeartbeatAck,
    Hello,
    KeyRows,
    MasterPing,
    Members,
    Message,
    Prepared,
    PreparedRow,
    Refused,
    RowsStored,
    SnapshotChunk,
    Updates,
    ZoneTable,
)
from quorate_sim.agent_process import AgentProcess
from quorate_sim.cluster import Cluster
from quorate_sim.coverage import Reached, Running
from quorate_sim.master_process import MasterProcess
from quorate_sim.network import Link, Process
from quorate_sim.scenario import SETTINGS
from quorate_sim.swarm import Swarm, zone_record
from quorate_sim.world import MS

SEED = 1
WARM_MS = 400
FROZEN_MS = 8000
CUT_MS = 2500
"""Longer than a lease, and than the silence after which a master takes an agent for left."""
DOWN_MS = 1500
MASTER_DOWN_MS = 300
MOMENT_MS = 6000
"""Within this the migration must come to its moment, and the fault must have struck."""
REST_MS = 15_000
"""Within this after the fault everything must be at rest."""
QUIET_MS = 400
"""Where nothing else is said for so long, a message is also struck that carries updates."""

ROUTINE = (Hello, Refused, Members, MasterPing, AgentReport, Heartbeat, HeartbeatAck)
"""Said with or without migrations."""


class Kind(enum.StrEnum):
    """What a migration does to its row, in the words of coverage."""

    MOVE_PRIMARY = "MOVE of primary"
    MOVE_BACKUP = "MOVE of backup"
    COPY = "COPY"
    SHIFT_UP = "SHIFT_UP"
    SHIFT_DOWN = "SHIFT_DOWN"
    SWAP = "SWAP"
    DROP = "DROP"


class Moment(enum.StrEnum):
    """Where a migration is."""

    START = "before start"
    FILLING = "during fill"
    CAUGHT_UP = "caught up"
    FROZEN = "frozen"
    PREPARED_ROW = "prepared row sent"
    DURABLE = "destination durable"
    WRITTEN = "metastore written"
    PUBLISHING = "before publish"
    DELETING = "before source deletes"


class Role(enum.StrEnum):
    """Who takes part in a migration."""

    MASTER = "master"
    SOURCE = "source"
    """Who gives up its place; where nobody does, the primary, from which the data come."""
    DESTINATION = "destination"
    BYSTANDER = "bystander"
    """A backup that stays what it is."""
    PRIMARY = "primary"
    """Where it is not the source."""


class Fault(enum.StrEnum):
    """What is done to it."""

    CRASH = "crash"
    """Its connections break at once: what was on its way is lost."""
    POWER_LOSS = "power loss"
    """The machine: what it had not synced is lost, what it had sent may arrive."""
    FREEZE = "freeze"
    CUT_OUT = "cut out"
    CUT_IN = "cut in"
    CUT_BOTH = "cut both"
    LOST_FROM = "message from it lost"
    LOST_TO = "message to it lost"
    TWICE_FROM = "message from it twice"
    TWICE_TO = "message to it twice"


MESSAGE_FAULTS = {
    Fault.LOST_FROM: (True, 0),
    Fault.LOST_TO: (False, 0),
    Fault.TWICE_FROM: (True, 2),
    Fault.TWICE_TO: (False, 2),
}
"""Whether the struck process sends the message, and how often it arrives."""


class Case(NamedTuple):
    """One run."""

    kind: Kind
    role: Role
    moment: Moment
    fault: Fault

    def __str__(self) -> str:
        return f"{self.kind}, {self.role}, {self.moment}: {self.fault}"


# --- which combinations there are -----------------------------------------------------------------

_WITH_NEWCOMER = (Kind.MOVE_PRIMARY, Kind.MOVE_BACKUP, Kind.COPY, Kind.SHIFT_DOWN)
_WITH_NEW_PRIMARY = (Kind.MOVE_PRIMARY, Kind.SHIFT_DOWN, Kind.SWAP)
_WITH_DESTINATION = (*_WITH_NEWCOMER, Kind.SWAP)
_WITH_LEAVER = (Kind.MOVE_PRIMARY, Kind.MOVE_BACKUP, Kind.DROP)

NOT_SENSIBLE: tuple[tuple[str, Callable[[Case], bool]], ...] = (
    (
        "nothing is filled where nobody comes",
        lambda c: c.moment is Moment.FILLING and c.kind not in _WITH_NEWCOMER,
    ),
    (
        "nobody freezes where the primary stays",
        lambda c: c.moment is Moment.FROZEN and c.kind not in _WITH_NEW_PRIMARY,
    ),
    (
        "nobody prepares where there is no destination",
        lambda c: (
            c.moment in (Moment.PREPARED_ROW, Moment.DURABLE) and c.kind not in _WITH_DESTINATION
        ),
    ),
    (
        "nobody deletes where nobody leaves",
        lambda c: c.moment is Moment.DELETING and c.kind not in _WITH_LEAVER,
    ),
    (
        "SHIFT_UP and DROP have no destination",
        lambda c: c.role is Role.DESTINATION and c.kind not in _WITH_DESTINATION,
    ),
    (
        "the primary is the source, but where a backup leaves",
        lambda c: c.role is Role.PRIMARY and c.kind not in (Kind.MOVE_BACKUP, Kind.DROP),
    ),
    (
        "a master has no disk: its machine's end is its own",
        lambda c: c.role is Role.MASTER and c.fault is Fault.POWER_LOSS,
    ),
)
"""Why a combination is left out."""


def whole() -> list[Case]:
    """Every combination, sensible or not."""
    return list(itertools.starmap(Case, itertools.product(Kind, Role, Moment, Fault)))


def why_not(case: Case) -> str:
    """Why the combination is left out; "" when it is not."""
    return next((why for why, is_so in NOT_SENSIBLE if is_so(case)), "")


def cases(kind: Kind, role: Role) -> list[Case]:
    """Those that make sense."""
    return [c for c in whole() if c.kind is kind and c.role is role and not why_not(c)]


# --- how each kind is provoked --------------------------------------------------------------------


class Setting(NamedTuple):
    """A cluster before the migration: `drained` have given their copies away."""

    partitions: int
    replicas: int
    drained: tuple[str, ...]
    provoke: Callable[[Cluster], None]


def _drain(name: str, draining: bool, cluster: Cluster) -> None:
    process = cluster.masters[-1]

    def ask() -> None:
        assert process.master is not None
        refused = process.master.drain(name, draining, process.now())
        assert not refused, refused

    process.run(ask)


def _owner(cluster: Cluster, index: int) -> str:
    row = cluster.committed_row("zone", 0)
    name = row.replicas[index] if row is not None else None
    assert name is not None
    return name


def _declare(replicas: int, cluster: Cluster) -> None:
    record = msgspec.structs.replace(cluster.zones["zone"], replicas=replicas)
    cluster.zones["zone"] = record
    master = cluster.masters[-1]
    master.run(lambda: master.declare(record))


def _join_what_lacks_copies(cluster: Cluster) -> None:
    """The zone is to have a replica more than there are agents; then one comes."""
    _declare(3, cluster)
    cluster.world.after(200 * MS, partial(_drain, "a4", False, cluster))


def _return_of_the_colder(cluster: Cluster) -> None:
    """Both backups die; the second is back first, and moves up into the free place."""
    hotter, colder = _owner(cluster, 1), _owner(cluster, 2)
    for name in (hotter, colder):
        cluster.stop_agent(name, machine_too=False, refused=True)
    cluster.world.after(200 * MS, partial(_start, cluster, colder))
    cluster.world.after((200 + DOWN_MS) * MS, partial(_start, cluster, hotter))


def _start(cluster: Cluster, name: str) -> None:
    if not cluster.agents[name].alive:
        cluster.start_agent(name)


SETTINGS_OF = {
    Kind.MOVE_PRIMARY: Setting(4, 3, ("a3",), partial(_drain, "a3", False)),
    Kind.MOVE_BACKUP: Setting(1, 3, (), lambda c: _drain(_owner(c, 1), True, c)),
    Kind.COPY: Setting(1, 2, (), partial(_declare, 3)),
    Kind.SHIFT_UP: Setting(1, 3, (), _return_of_the_colder),
    Kind.SHIFT_DOWN: Setting(4, 2, ("a3", "a4"), _join_what_lacks_copies),
    Kind.SWAP: Setting(1, 3, (), lambda c: _drain(_owner(c, 0), True, c)),
    Kind.DROP: Setting(1, 3, (), partial(_declare, 2)),
}
"""An agent joins (again) and becomes primary of its share; a backup is drained; the zone is given a
replica more; of two lost backups the colder is back first; an agent joins a zone that lacks copies;
the primary is drained; the zone is given a replica less."""


# --- one run --------------------------------------------------------------------------------------


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
        if self.running is None and moment == "start" and running.kind == self.case.kind:
            if not self._find_victim(running):
                return
            self.running = running
            self.partition = int(running.migration.migration_id.split("/")[1])
            if self.case.moment is Moment.START:
                self._reach()
            return
        is_committed = running is self.running and moment == "committed"
        if is_committed and self.case.moment is Moment.WRITTEN:
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
        return [*self.running.nodes("destination"), self.running.primary][0]

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
        if self.case.moment is Moment.PUBLISHING:
            return receiver.name != self._first
        return self.case.moment is Moment.DELETING and receiver.name == self._source

    @property
    def _source(self) -> str:
        assert self.running is not None
        return self.running.migration.source or self.running.primary

    def _has_committed(self, versions: list[tuple[int, int]]) -> bool:
        running = self.running
        assert running is not None
        # The version is counted up when the migration is committed (coverage's moment 5).
        return running.moment >= 5 and any(
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
            if moment is Moment.PUBLISHING:
                return self._first in self._stored
            others = [agent.name for agent in self.cluster.living() if agent.name != self._source]
            return moment is Moment.DELETING and all(name in self._stored for name in others)
        wanted = {
            Moment.CAUGHT_UP: CaughtUp,
            Moment.FROZEN: Frozen,
            Moment.PREPARED_ROW: PreparedRow,
            Moment.DURABLE: Prepared,
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
            case fault:
                others = [*cluster.agents, *(m.name for m in cluster.masters if m.alive)]
                others.remove(victim)
                out, into = [(victim, o) for o in others], [(o, victim) for o in others]
                pairs = {Fault.CUT_OUT: out, Fault.CUT_IN: into}.get(fault, out + into)
                for pair in pairs:
                    cluster.network.cut(*pair)
                self._mend_after(CUT_MS, partial(_heal, cluster, pairs))

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
            self._mend_after(DOWN_MS, partial(_start, cluster, victim))

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


def _heal(cluster: Cluster, pairs: list[tuple[str, str]]) -> None:
    for pair in pairs:
        cluster.network.heal(*pair)


def _swarm(setting: Setting) -> Swarm:
    return Swarm(
        agents=4,
        zones=(zone_record("zone", setting.partitions, setting.replicas),),
        settings=SETTINGS,
        clients=3,
        keys=12,
        value_bytes=700,
        delay_us=(100, 2000),
        tick_ms=40,
    )


def run_case(case: Case, seed: int = SEED, trace: bool = False) -> Cluster:
    """Run one combination to its end; an InvariantError tells what did not hold."""
    cluster = Cluster(seed, trace, _swarm(SETTINGS_OF[case.kind]))
    try:
        _run(cluster, case)
    except Exception as error:
        error.add_note(f"{case} at {cluster.world.time_ms} ms")
        error.__dict__["cluster"] = cluster
        raise
    return cluster


def _run(cluster: Cluster, case: Case) -> None:
    world, setting = cluster.world, SETTINGS_OF[case.kind]
    cluster.lost_answers = 0.0
    _wait(cluster, lambda: not cluster.rest(), REST_MS, "the first rest")
    for name in setting.drained:
        _drain(name, True, cluster)
        _wait(cluster, lambda: not _not_over(cluster), REST_MS, f"{name} drained")
    for number in range(cluster.swarm.keys):
        cluster.clients.send(-1, "zone", "set", b"s%d" % number)
    cluster.clients.start()
    world.run_until(world.time_us + WARM_MS * MS)
    strike = Strike(cluster, case)
    setting.provoke(cluster)
    _wait(cluster, lambda: strike.struck_at_us >= 0, MOMENT_MS, f"no strike: {case}")
    cluster.coverage.on_moment = None
    _wait(cluster, lambda: strike.mended, FROZEN_MS + MOMENT_MS, f"not mended: {case}")
    world.run_until(world.time_us + WARM_MS * MS)
    cluster.clients.stopped = True
    _wait(
        cluster, lambda: not _not_over(cluster), REST_MS, "not at rest", partial(_not_over, cluster)
    )
    cluster.finish()


def _wait(
    cluster: Cluster,
    is_so: Callable[[], bool],
    ms: int,
    what: str,
    why: Callable[[], object] = lambda: "",
) -> None:
    if not cluster.world.run_until(cluster.world.time_us + ms * MS, is_so):
        raise InvariantError(f"{what}: {why()}")


def _named(cluster: Cluster, name: str) -> bool:
    """Whether any row names the agent."""
    for partition in range(cluster.zones["zone"].partitions):
        row = cluster.committed_row("zone", partition)
        if row is None or row.active is not None or name in row.voter_nodes:
            return True
    return False


def _not_over(cluster: Cluster) -> list[str]:
    """What is not at rest, and what was asked for and has not come."""
    problems = cluster.rest()
    master = cluster.masters[-1].master
    if master is None:
        return [*problems, "no master"]
    drained = [name for name, agent in sorted(master.agents.items()) if agent.draining]
    return problems + [f"{name} is drained and named" for name in drained if _named(cluster, name)]
