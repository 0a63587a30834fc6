"""A master as a process: the core's Master between the metastore and links to the agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from quorate.facts.time import Now
from quorate.facts.zone import ZoneRecord
from quorate.protocol.master.master import Master
from quorate.protocol.master.older_metastore import ToldNewer
from quorate.protocol.members.membership import left
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello
from quorate.protocol.messages.master import Greet, PreparedRow
from quorate.protocol.messages.message import Message
from quorate.protocol.metastore import Key, NodeKey, Revision, ShardKey, Stored, Value, ZoneKey
from quorate_operator.mastership.second_look import SecondLook, pauses_s
from quorate_sim.agent_process import Clock
from quorate_sim.metastore import Outcome
from quorate_sim.network import Link
from quorate_sim.trace_text import value_text
from quorate_sim.world import MS

if TYPE_CHECKING:
    from quorate_sim.cluster import Cluster

TICK_US = 100 * MS
REDIAL_US = 200 * MS


class MasterProcess:
    """One holder of the mastership; several may live at once, only the newest is obeyed."""

    is_master = True

    def __init__(self, cluster: Cluster, name: str, clock: Clock, recovering: bool = False) -> None:
        self.recovering = recovering
        self.cluster = cluster
        self.world = cluster.world
        self.name = name
        self.clock = clock
        self.alive = True
        self.word = f"word-of-{name}"
        self.term = cluster.metastore.acquire_master_term()
        self._looking_for_newer = False
        self.master: Master | None = None
        self.frozen = False
        self.revisions: dict[Key, Revision] = {}
        self.links: dict[str, Link] = {}
        self._greeted: set[str] = set()
        self._backlog: list[Callable[[], None]] = []
        self._second_look = SecondLook()
        self._pauses_s = pauses_s()
        cluster.metastore.load(name, self._loaded)

    def now(self) -> Now:
        """This machine's time."""
        return self.clock.now(self.world.time_us)

    def hello(self) -> Hello:
        """How it greets."""
        return Hello(
            FORMAT_VERSION,
            "master",
            "sim",
            self.name,
            master_term=self.term,
            master_word=self.word,
        )

    def _loaded(self, objects: dict[Key, Stored]) -> None:
        if not self.alive:
            return
        if self.frozen:
            self._backlog.append(lambda: self._loaded(objects))
            return
        self.master = Master(self.term, self.cluster.swarm.settings, self.now(), self.recovering)
        self.revisions = {key: stored.revision for key, stored in objects.items()}
        self.master.load({key: stored.value for key, stored in objects.items()}, self.now())
        for record in self.cluster.declared_zones():
            self.master.set_zone(record, self.now())
        self.world.trace(self.name, f"is master in term {self.term}")
        self._tick()
        self._look_later()

    def _look_later(self) -> None:
        """What another has stored is looked for as the product's operator does."""
        self.world.after(int(next(self._pauses_s) * 1000) * MS, lambda: self.run(self._look))

    def _look(self) -> None:
        assert self.master is not None
        told = self.master.told_newer()

        touched = self._second_look.begin()

        def seen(stored: dict[Key, Stored]) -> None:
            self._seen(told, stored, touched)
            self._look_later()

        self.cluster.metastore.load(self.name, lambda stored: self.run(lambda: seen(stored)))

    def _seen(self, told: ToldNewer, stored: dict[Key, Stored], touched: set[Key]) -> None:
        assert self.master is not None
        self._second_look.end(touched)
        for key, each in self._second_look.unread(stored, self.revisions, touched):
            value = each.value if each is not None else None
            self.world.trace(self.name, f"another has written {key}: {value_text(value)}")
            if self._is_followed and (value is None or isinstance(key, NodeKey | ZoneKey)):
                self.die()
                return
            self._note(key, each.revision if each is not None else None)
            self.master.reloaded(key, value, self.now())
        self.master.looked_again(told, {key: each.value for key, each in stored.items()})

    def _look_for_newer(self) -> None:
        """Agents know newer rows or zones than were read: look before the next regular look."""
        assert self.master is not None
        told = self.master.told_newer()
        self._looking_for_newer = True

        touched = self._second_look.begin()

        def seen(stored: dict[Key, Stored]) -> None:
            self._looking_for_newer = False
            self._seen(told, stored, touched)

        self.cluster.metastore.load(self.name, lambda stored: self.run(lambda: seen(stored)))

    def declare(self, record: ZoneRecord) -> None:
        """A user declares a zone, or its deletion."""
        assert self.master is not None
        self.master.set_zone(record, self.now())

    def run(self, action: Callable[[], None]) -> None:
        """Do something, then carry out what the core decided; later while it is frozen."""
        if not self.alive or self.master is None:
            return
        if self.frozen:
            self._backlog.append(action)
            return
        before = {uid: zone.record.data_nodes for uid, zone in self.master.zones.items()}
        action()
        self.pump()
        self.cluster.checks.timers.looked(self.master, before)

    def freeze(self) -> None:
        """The process stands still; the world goes on."""
        self.frozen = True

    def thaw(self) -> None:
        """It goes on with all that has gathered meanwhile."""
        self.frozen = False
        backlog, self._backlog = self._backlog, []
        for action in backlog:
            if self.master is None:
                action()  # it had not yet loaded what is stored
            else:
                self.run(action)

    def _tick(self) -> None:
        if not self.alive:
            return
        self.world.after(TICK_US, self._tick)
        if not self.frozen:
            self.run(self._tick_now)

    def _tick_now(self) -> None:
        assert self.master is not None
        if self.cluster.ended:
            self.master.processes_ended(self.cluster.ended)
        self.master.tick(self.now())
        if self.master.recovering and self._greeted.issuperset(self.cluster.addresses()):
            self._end_recovery(self.master)
        for node in self.cluster.addresses():
            if node not in self.links:
                self._dial(node)

    def _end_recovery(self, master: Master) -> None:
        """As the product's operator does, once every agent is here and all is rebuilt."""
        if master.has_recovered:
            master.end_recovery()
            self.cluster.metastore.recovering = False
            for record in self.cluster.declared_zones():
                master.set_zone(record, self.now())

    # --- links -----------------------------------------------------------------------------------

    def _dial(self, node: str) -> None:
        target = self.cluster.agent_at(node)
        link = self.cluster.network.connect(self, target) if target is not None else None
        if link is not None:
            self.links[node] = link

    def link_up(self, link: Link) -> bool:
        """Nobody dials a master."""
        return False

    def link_down(self, link: Link, gone: bool) -> None:
        """A link to an agent was lost."""
        for node in [node for node, each in self.links.items() if each is link]:
            del self.links[node]
            if node in self._greeted:
                self._greeted.discard(node)
                if self.master is not None:
                    self.master.agent_disconnected(node, gone, self.now())

    def refused(self, agent: str, known_term: int) -> None:
        """An agent knows a later mastership, or this number as another's: the next one counts on.
        (A master that is followed by another is left to find out by itself: what it writes
        meanwhile is worth a look.)"""
        if self is not self.cluster.masters[-1]:
            return
        self.world.trace(self.name, f"is overtaken: {agent} knows {known_term}")
        self.cluster.metastore.acquire_master_term(known_term)
        self.die()
        if self.cluster.faults_are_over:  # else they begin another
            self.cluster.add_master()

    def not_believed(self, node: str) -> None:
        """An agent does not believe the number: those that obey it are to greet it."""
        if self.alive:
            self.world.trace(self.name, f"is not believed by {node}")
            for link in self.links.values():
                link.send(self, Greet(self.term, node, 1))

    def heard(self, link: Link, message: Message) -> None:
        """An agent's greeting, or its message."""
        node = link.target.name
        if self.master is None or self.links.get(node) is not link:
            return
        if isinstance(message, Hello):
            self._greeted.add(node)
            self.master.agent_connected(message, self.now())
        elif node in self._greeted:
            self.master.receive(node, message, self.now())

    # --- what the core decided -------------------------------------------------------------------

    def pump(self) -> None:
        """Carry out the core's outputs."""
        master = self.master
        assert master is not None
        master.check()
        writes, sends, events = master.take_outputs()
        if master.outdated:
            self.world.trace(self.name, f"must not lead: {master.outdated}")
            self.die()
            return
        if master.has_doubts and not self._looking_for_newer:
            self._look_for_newer()
        self.cluster.checks.resets.told(events, writes)
        for key, value in writes:
            self._write(key, value)
        for node, message in sends:
            if isinstance(message, PreparedRow):
                self.cluster.checks.prepared(message)
            if self.world.tracing:
                self.cluster.tell(self.name, node, message)
            link = self.links.get(node)
            if link is not None:
                link.send(self, message)
        for event in events:
            self.world.trace(self.name, f"event {event.reason} {event.partition}: {event.message}")

    def _write(self, key: Key, value: Value | None) -> None:
        if self.world.tracing:
            self.world.trace(self.name, f"writes {key}: {value_text(value)}")

        def answered(outcome: Outcome, revision: Revision) -> None:
            self.run(lambda: take_answer(outcome, revision))

        def take_answer(outcome: Outcome, revision: Revision) -> None:
            if self.master is None:
                return
            if outcome != "written":
                self.world.trace(self.name, f"write of {key}: {outcome}")
                self.cluster.metastore.read(self.name, key, reloaded)
                return
            self._second_look.write_ended(key)
            self._note(key, revision if value is not None else None)
            self.master.written(key, value, self.now())

        def reloaded(stored: Stored | None) -> None:
            self.run(lambda: take_stored(stored))

        def take_stored(stored: Stored | None) -> None:
            if self.master is None:
                return
            present = stored.value if stored is not None else None
            self._second_look.write_ended(key)
            self._note(key, stored.revision if stored is not None else None)
            if self.world.tracing:
                self.world.trace(self.name, f"reads {key}: {value_text(present)}")
            is_gone = present is None and value is not None
            is_of_zone = isinstance(key, ZoneKey) or (is_gone and isinstance(key, ShardKey))
            if self._is_followed and is_of_zone:
                self.die()
                return
            take = self.master.written if present == value else self.master.reloaded
            take(key, present, self.now())

        self._second_look.write_begins(key)
        assert self.master is not None
        agents = self.master.agents.items()
        known = {
            node: left(agent.record, 1) if agent.has_left else agent.record
            for node, agent in agents
            if agent.record is not None
        }
        revision = self.revisions.get(key)
        rows_of = self.master.zones.get(key.uid) if isinstance(key, ShardKey) else None
        zone = rows_of.record if rows_of is not None else None
        self.cluster.metastore.write(self.name, key, value, revision, known, zone, answered)

    @property
    def _is_followed(self) -> bool:
        """Whether another has followed, so that this one has no mandate.

        The product's operator checks its mandate after each read, and that ended before another
        could write what was read.  Here a followed master goes on from rows, and from what it reads
        after a refused write, because that finds more.  Deletions, zones' records, and
        registrations that a look finds, rest on the mandate alone: it ends there."""
        return self is not self.cluster.masters[-1]

    def _note(self, key: Key, revision: Revision | None) -> None:
        if revision is None:
            self.revisions.pop(key, None)
            self._second_look.note_gone(key)
        else:
            self.revisions[key] = revision

    def die(self) -> None:
        """Stop at once."""
        self.alive = False
        self._backlog.clear()
        for link in list(self.links.values()):
            self.cluster.network.lose(link)
