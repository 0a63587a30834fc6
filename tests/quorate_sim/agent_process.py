"""One agent as a process: its core between simulated links, disk, clocks and clients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from quorate.facts.time import Now
from quorate.facts.zone import SyncWrites, ZoneRecord
from quorate.protocol.agent.agent import AgentCore, ZoneOpened
from quorate.protocol.agent.masterships import why_not_obeyed
from quorate.protocol.agent.peer_processes import is_another
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.agent.turn import Turn
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.waiters import Waiter
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello
from quorate.protocol.messages.master import Greet
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.outbox import MASTER
from quorate.protocol.transactions.coordinator import Ended, Outcome
from quorate.protocol.transactions.parts import Telling
from quorate_sim.disk import Disk, SimAgentStore
from quorate_sim.network import Link
from quorate_sim.node_filters import attributes
from quorate_sim.rest_checks import check_rest
from quorate_sim.transactors import DEADLINE_MS, ZONE, Transaction, evaluate
from quorate_sim.world import MS

if TYPE_CHECKING:
    from quorate_sim.clients import Op
    from quorate_sim.cluster import Cluster
    from quorate_sim.master_process import MasterProcess

Action = Callable[[], None]
REDIAL_US = 100 * MS
SYNC_INTERVAL_US = 1000 * MS


class Clock:
    """A machine's clocks: boot time runs a little fast or slow, wall time is anywhere."""

    def __init__(self, rate: float, boot_base_ms: int, wall_base_ms: int) -> None:
        self._rate = rate
        self._boot_base_ms = boot_base_ms
        self._wall_base_ms = wall_base_ms
        self._asked_us = -1
        self._answer = Now(0, 0)

    def jump(self, ms: int) -> None:
        """Somebody sets the wall clock; boot time goes on as it does."""
        self._wall_base_ms += ms
        self._asked_us = -1

    def now(self, time_us: int) -> Now:
        """What this machine believes the time to be."""
        if time_us != self._asked_us:  # asked several times in each moment
            passed = int(time_us * self._rate) // MS
            base = (self._wall_base_ms + passed, self._boot_base_ms + passed)
            self._answer = tuple.__new__(Now, base)  # in half the time of a call with names
            self._asked_us = time_us
        return self._answer


class AgentProcess:
    """One process incarnation.  A new start is a new object over the same disk."""

    is_master = False

    def __init__(self, cluster: Cluster, name: str, disk: Disk, clock: Clock) -> None:
        disk.incarnation += 1
        self.cluster = cluster
        self.world = cluster.world
        self.name = name
        self.disk = disk
        self.incarnation = disk.incarnation
        self.label = f"{name}.{self.incarnation}"
        """Name and incarnation, for the trace."""
        self.word = f"{disk.store}.{disk.incarnation}"
        self.clock = clock
        self.alive = True
        self.frozen = False
        self.store = SimAgentStore(disk)
        self.core = AgentCore(self.hello(), self.store, cluster.swarm.settings, self.now())
        self.links: dict[str, Link] = {}
        self.heard_links: dict[Link, Hello] = {}
        """Other agents' links to this one, with the greeting of each."""
        self.master_link: Link | None = None
        self._master_link_term = 0
        self._backlog: list[Action] = []
        self._flush_asked = False
        self._dialing: set[str] = set()
        self._greeted_with: dict[str, int] = {}
        """By node: the mastership that was told with the greeting of the link to it."""
        self._sync_free_us = 0
        self._interval_due = False
        self._turns: dict[str, list[tuple[Turn, int, bool]]] = {}
        self._schedule_tick()

    def now(self) -> Now:
        """This machine's time."""
        return self.clock.now(self.world.time_us)

    def hello(self) -> Hello:
        """How it greets."""
        disk, placement = self.disk, self.cluster.placement(self.name)
        return Hello(
            FORMAT_VERSION,
            "agent",
            "sim",
            self.name,
            disk.store,
            self.incarnation,
            disk.master_term,
            host=self.name,
            peer_port=1,
            client_host=self.name,
            master_word=disk.master_word,
            failure_domain=placement.failure_domain,
            weight=placement.weight,
            process=self.word,
            attributes=attributes(self.name),
        )

    # --- turns -----------------------------------------------------------------------------------

    def run(self, action: Action) -> None:
        """Do something in this process, or once it is no longer frozen."""
        if not self.alive:
            return
        if self.frozen:
            self._backlog.append(action)
            return
        action()
        self._finished()
        if self.alive and not self._flush_asked:
            self._flush_asked = True
            self.world.after(self.cluster.turn_us(), self._flush_due)

    def freeze(self) -> None:
        """The process stands still; the world goes on."""
        self.frozen = True

    def thaw(self) -> None:
        """It goes on with all that has gathered meanwhile."""
        self.frozen = False
        backlog, self._backlog = self._backlog, []
        for action in backlog:
            self.run(action)

    def _flush_due(self) -> None:
        if self.frozen and self.alive:
            self._backlog.append(self._flush_due)
        elif self.alive:
            self._flush_asked = False
            self._flush()

    def _flush(self) -> None:
        flushed = self.core.flush(self.now())
        for uid, turn in flushed.turns:
            storage = self.store.storages.get(uid)
            self.cluster.checks.flushed(self, uid, turn)
            # What need not be synced becomes durable with what must be, or by and by.
            must = self._must_sync(self.core.zones[uid].record, turn)
            batches = storage.written if storage is not None and must else 0
            self._turns.setdefault(uid, []).append((turn, batches, False))
            delay = self.cluster.sync_us(self) if must else 0
            at = max(self._sync_free_us, self.world.time_us + delay)
            if must:
                self._sync_free_us = at
            if delay:
                self.world.at(at, partial(self._sync_done, uid, turn))
            else:
                self._sync_done(uid, turn)
        if flushed.sends:
            self._send(flushed.sends)
        for event in flushed.events:
            if isinstance(event, Greet):
                self._greet_anew(event)
            if isinstance(event, ZoneOpened):
                self.core.zones[event.record.uid].transactions.parts.evaluate = evaluate
                self.core.zone_ready(event.record.uid, 7000)
        self._dial_members()
        self._finished()
        self.cluster.checks.agent_step(self)
        if flushed.going_on:
            self.run(lambda: None)

    def _must_sync(self, zone: ZoneRecord, turn: Turn) -> bool:
        if not zone.persistent or not turn.wrote:
            return False
        if zone.sync_writes is SyncWrites.ALWAYS:
            return True
        if not self._interval_due:
            self._interval_due = True
            self.world.after(SYNC_INTERVAL_US, self._sync_by_interval)
        return bool(turn.after_sync or turn.adopted or turn.refilled)

    def _sync_by_interval(self) -> None:
        self._interval_due = False
        if self.alive:
            for uid in sorted(self.store.storages):
                self.store.storages[uid].sync()

    def _sync_done(self, uid: str, turn: Turn) -> None:
        """The disk has this turn's batch; the process hears of it when it runs."""
        if not self.alive:
            return
        turns = self._turns[uid]
        for at, (each, batches, _) in enumerate(turns):
            if each is turn:
                turns[at] = (each, batches, True)
        while turns and turns[0][2]:
            each, batches, _ = turns.pop(0)
            storage = self.store.storages.get(uid)
            if storage is not None:
                storage.sync_upto(batches)
            self._after_sync(partial(self._synced, uid, each))

    def _after_sync(self, action: Action) -> None:
        if self.frozen:
            self._backlog.append(action)
        else:
            action()

    def _synced(self, uid: str, turn: Turn) -> None:
        self._send(self.core.synced(uid, turn, self.now()))
        self._finished()
        zone = self.core.zones.get(uid)
        if zone is not None and (zone.wrote or zone.out.at_once or zone.out.after_sync):
            self.run(lambda: None)

    def _schedule_tick(self) -> None:
        self.world.after(self.cluster.tick_us(), self._tick_due)

    def _tick_due(self) -> None:
        if not self.alive:
            return
        self._schedule_tick()
        if not self.frozen:
            self.run(self._tick)

    def _tick(self) -> None:
        self.core.tick(self.now())
        check_rest(self.core, self.now())

    # --- links -----------------------------------------------------------------------------------

    def _send(self, sends: list[tuple[str, Message]]) -> None:
        for node, message in sends:
            self.cluster.coverage.said(self.name, node, message)
            self.cluster.checks.sent(self, message)
            link = self.master_link if node == MASTER else self.links.get(node)
            if self.world.tracing:
                self.cluster.tell(self.label, node or "master", message)
            if link is not None:
                link.send(self, message)

    def _dial_members(self) -> None:
        if not self.core.members.keys() - self.links.keys() - {self.name}:
            return
        for name, record in self.core.members.items():
            if name not in self.links and name not in self._dialing and name != self.name:
                self._dial(name, record.host)

    def _greet_anew(self, message: Greet) -> None:
        """Tell the agent there which mastership this one obeys, member or not."""
        name = message.host
        if name == self.name or self._greeted_with.get(name, 0) >= message.master_term:
            return
        link = self.links.pop(name, None)
        if link is not None:
            self.cluster.network.lose(link)
        self._dial(name, name)

    def _dial(self, name: str, host: str) -> None:
        target = self.cluster.agent_at(host)
        member = self.core.members.get(name)
        if target is not None and member is not None and is_another(target.hello(), member):
            target = None  # the real agent refuses its greeting, and tries again
        link = self.cluster.network.connect(self, target) if target is not None else None
        if link is not None:
            self.links[name] = link
            self._greeted_with[name] = self.disk.master_term
            return
        self._dialing.add(name)

        def again() -> None:
            self._dialing.discard(name)

        self.world.after(REDIAL_US, lambda: self.run(again))

    def link_up(self, link: Link) -> bool:
        """Another process greets."""
        hello = link.source.hello()
        if hello.role == "master":
            if not self.core.master_up(hello):
                term, word = self.core.master_term, self.core.master_word
                source = cast("MasterProcess", link.source)
                if why_not_obeyed(term, word, hello):
                    source.refused(self.label, term)
                else:
                    source.not_believed(self.name)
                return False
            if hello.master_term >= self._master_link_term:
                self.master_link, self._master_link_term = link, hello.master_term
            link.send(self, self.hello())
            return True
        if not self.core.peer_up(hello, self.now()):
            return False
        self.heard_links = {each: said for each, said in self.heard_links.items() if each.up}
        self.heard_links[link] = hello
        return True

    def hears(self, link: Link) -> bool:
        """Whether an agent's link is one of the process that is registered under its name."""
        hello = self.heard_links.get(link)
        return hello is not None and self.core.hears(hello)

    def link_down(self, link: Link, gone: bool) -> None:
        """A link that we dialed was lost."""
        for name in [name for name, each in self.links.items() if each is link]:
            del self.links[name]
            self._greeted_with.pop(name, None)

    def heard(self, link: Link, message: Message) -> None:
        """A message over a link that we accepted."""
        source = link.source.name
        if link.source.is_master:
            said: Any = message  # only a master's messages come over its link
            obeyed = self.core.receive_from_master(said, self.now())
            self.cluster.checks.heard_master(self, link.source.hello(), message, obeyed)
            if not obeyed:
                self.cluster.network.lose(link)
            return
        if self.hears(link):
            self.core.receive(source, message, self.now())

    # --- the end ---------------------------------------------------------------------------------

    def die(self, machine_too: bool) -> None:
        """Stop at once; what was not synced survives only while the machine does."""
        self.alive = False
        self._backlog.clear()
        for uid in sorted(self.store.storages):
            storage = self.store.storages[uid]
            count = storage.written
            if machine_too:
                count = self.world.random.randint(storage.written - storage.unsynced, count)
            storage.sync_upto(count)
        self.cluster.clients.process_died(self)

    # --- commands --------------------------------------------------------------------------------

    def command(self, op: Op) -> None:
        """Carry out one client's command as the client endpoint does."""
        zone = self.core.zones.get(op.zone)
        partition = self.cluster.partition_of(op)
        role = zone.primaries[partition] if zone is not None else None
        if (
            zone is None
            or role is None
            or not role.serves(self.now().boot_ms)
            or op.key in role.locks
        ):
            self.cluster.clients.answer(self, op, "elsewhere", None)
            return
        self.cluster.checks.executed(self, op.zone, role)
        self._execute(zone, role, op)

    def transact(self, txn: Transaction) -> None:
        """Coordinate one client's transaction as the client endpoint does."""
        zone = self.core.zones.get(ZONE)
        if zone is None:
            self.cluster.transactors.answer(Ended(txn, Outcome.NOT_EXECUTED))
            return
        wanted = self.cluster.transactors.parts_of(txn)
        now = self.now()
        zone.transactions.begin(wanted, False, txn, now.boot_ms + DEADLINE_MS, now)

    def _execute(self, zone: Replicas, role: Primary, op: Op) -> None:
        now = self.now()
        row = role.copy.get(op.key)
        value = row.value if row is not None else None
        operations, result = op.apply(value, now.wall_ms)
        if row is not None:
            op.wrote = (role.copy.partition, row.term, row.counter)
        if not operations:
            if role.is_pending(op.key):
                role.wait(Waiter((), (op, result), now.boot_ms))
            else:
                self.cluster.clients.answer(self, op, "ok", result)
            return
        counter = role.write(operations)
        op.wrote = (role.copy.partition, role.term, counter)
        zone.commands_wrote(role)
        role.wait(Waiter(tuple(key for key, _, _ in operations), (op, result), now.boot_ms))

    def _finished(self) -> None:
        for zone in list(self.core.awake.values()):
            finished, transactions = zone.take_finished(), zone.transactions
            for waiter in finished.answered:
                if isinstance(waiter, Telling):
                    transactions.told(waiter)
            transactions.go_on()
            if transactions.ended:
                ended, transactions.ended = transactions.ended, []
                for each in ended:
                    self.cluster.transactors.answer(each)
            if not any(finished):
                continue
            for outcome, waiters in (
                ("ok", finished.answered),
                ("unknown", finished.unknown),
                ("elsewhere", finished.again),
                ("refused", finished.refused),
            ):
                for waiter in waiters:
                    if not waiter.has_client:
                        continue
                    op, result = cast("tuple[Op, bytes | None]", waiter.cargo)
                    self.cluster.clients.answer(self, op, outcome, result)
