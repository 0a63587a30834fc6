"""One agent's reaction to everything it receives: registration, zones, leases, reports.

This is the part of an agent that needs no sockets, clocks or threads; real agents and the simulator
run this very object.  The shell passes in masters, peers, messages and the time.  It calls `flush`
at the end of each event-loop turn, makes each zone's batch durable where required, and then calls
`synced`.  Source: docs/protocol.md, sections 4 and 7.
"""

from typing import NamedTuple, Protocol

import msgspec

from quorate.facts.errors import InvariantError
from quorate.facts.time import Now
from quorate.facts.topology import NodeRecord
from quorate.facts.zone import ZoneRecord
from quorate.protocol.agent.agent_reports import AgentReports
from quorate.protocol.agent.all_zones.aside_limit import AsideLimit
from quorate.protocol.agent.all_zones.zone_openings import Opening, ZoneOpenings, knows_ports
from quorate.protocol.agent.all_zones.zones_awake import ZonesAwake
from quorate.protocol.agent.masterships import (
    ENDS_PART,
    is_obeyed_refusal,
    why_not_believed,
    why_not_obeyed,
)
from quorate.protocol.agent.peer_processes import PeerProcesses, is_earlier_start
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.agent.supply_rate import SupplyRate
from quorate.protocol.agent.turn import Turn
from quorate.protocol.copies.leases import Leases
from quorate.protocol.copies.reports import copy_summaries, inventory
from quorate.protocol.copies.zone_copies import Finished
from quorate.protocol.messages.handshake import Hello, Refused
from quorate.protocol.messages.master import (
    AskInventory,
    EventsTold,
    Freeze,
    FromMaster,
    Greet,
    Inventory,
    MasterPing,
    Members,
    PreparedRow,
    RowsStored,
    ZoneGone,
    ZoneReady,
    ZoneTable,
)
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.outbox import MASTER
from quorate.protocol.messages.replication import Heartbeat, HeartbeatAck
from quorate.protocol.settings import ProtocolSettings
from quorate.protocol.storage import Storage, ZoneRefused

SUMMARIES_PER_TICK = 20
"""Zones whose copies are told in brief in one tick of 50 ms: those of 1,000 zones take 2.5 s, and
neither end is busy with them for long enough to delay a heartbeat."""


class AgentStore(Protocol):
    """The agent's durable state besides what each zone's storage holds."""

    def open_zone(self, record: ZoneRecord) -> Storage:
        """Return the storage of one zone, with what was stored there before.

        Raises ZoneRefused if it cannot be opened now; nothing else is affected.
        """

    def keep_zone(self, record: ZoneRecord) -> bool:
        """Remember the zone's record, durably.  Return False if there is no room."""

    def kept_zones(self) -> list[ZoneRecord]:
        """Return the remembered zones whose data is here."""

    def remove_zone(self, uid: str) -> bool:
        """End a zone's clients, close its storage, delete its data.  Return whether it is gone.

        If it is not yet, the shell calls `AgentCore.zone_removed` later, or the master asks again.
        """

    def raise_master_term(self, term: int, word: str) -> None:
        """Remember the highest mastership obeyed, its number and word; durable when it returns.

        Raises MastershipNotKept if it could not be made durable.
        """


class ZoneOpened(NamedTuple):
    """The zone is open: listen for its clients, then call `zone_ready`."""

    record: ZoneRecord


class ZoneClosed(NamedTuple):
    """The zone was deleted and closed; `finished` are its remaining waiters."""

    uid: str
    finished: Finished


class MembersChanged(NamedTuple):
    """`members` changed: which agents to dial, or where."""


AgentEvent = ZoneOpened | ZoneClosed | MembersChanged | EventsTold | Greet
"""An EventsTold is for the zones' clients, a Greet for the part of the shell that dials agents."""


class Flushed(NamedTuple):
    """The result of a turn, which the shell carries out.

    - `sends`: send these now
    - `turns`: make each zone's batch durable if its turn wrote, then call `synced` with the pair,
      in order per zone
    - `events`: act on these
    - `going_on`: zones that write long values ahead of their batch.  Some or all of their
      partitions end their turn with a later call
    """

    sends: list[tuple[str, Message]]
    turns: list[tuple[str, Turn]]
    events: list[AgentEvent]
    going_on: list[str]


class AgentCore:
    """One process incarnation of one agent.  `zones[uid]` are the copies of each open zone.

    The shell has work to settle only for zones in `awake`.
    """

    def __init__(
        self,
        hello: Hello,
        store: AgentStore,
        settings: ProtocolSettings,
        now: Now,
        heard_term: int = 0,
    ) -> None:
        """`heard_term`: the number of a mastership that a person vouches for."""
        self.node = hello.node
        self.store = hello.store
        self.incarnation = hello.incarnation
        self.process = hello.process
        self.master_term = hello.master_term
        self.master_word = hello.master_word
        self.heard_term = max(hello.master_term, heard_term)
        """The highest mastership obeyed by this agent, or by another one that greeted it."""
        self._obeyed = (hello.master_term, hello.master_word)
        self.settings = settings
        self.leases = Leases(settings, hello.incarnation, now.boot_ms)
        self.zones: dict[str, Replicas] = {}
        self._rate = SupplyRate(settings.transfer_bytes_per_s)
        self._awake = ZonesAwake(self.zones, self.leases, now)
        self.awake = self._awake.awake
        self._aside = AsideLimit(self.zones, settings)
        self._reports = AgentReports(
            self.zones, self.awake, self.leases, settings, self._aside, now
        )
        self.members: dict[str, NodeRecord] = {}
        self.registered = False
        self.refusal = ""
        """A master's reason to refuse this process since it was registered; empty: none has."""
        self.informed = False
        """Whether a master has told this process all zones that it knows."""
        self.leaving = False
        self._members_told = 0
        self._store = store
        self._processes = PeerProcesses(self.leases)
        self._ports: dict[str, ZoneReady] = {}
        self._sends: list[tuple[str, Message]] = []
        self._events: list[AgentEvent] = []
        self._heartbeat_ms = -(1 << 40)
        self._inventory_due: list[str] | None = None
        self._inventory_rows = False  # `rows` of the last AskInventory
        self._rows_due: set[str] = set()  # zones whose rows are reported once open
        self._summaries_due: dict[str, None] = {}  # zones whose copies are to be told in brief
        self._kept = {record.uid: record for record in store.kept_zones()}
        self._removing: set[str] = set()  # deleted zones whose data is not gone yet
        self._openings = ZoneOpenings()
        self._announces_external = bool(hello.external_host)
        self._has_opened = False  # opened a zone in this turn, or tried to

    # --- masters and peers -----------------------------------------------------------------------

    def master_up(self, hello: Hello) -> bool:
        """Take in a master's greeting; return False if its link is to be closed.

        The durable mastership changes only with the master's first message: from our greeting the
        master learns which mastership we obeyed before, and may find that it must not lead.
        """
        if why_not_obeyed(self.master_term, self.master_word, hello):
            return False
        if why_not_believed(self.heard_term, hello.master_term):
            return False
        self._note_master(hello.master_term, hello.master_word or self.master_word)
        return True

    def _note_master(self, term: int, word: str) -> None:
        if term > self.master_term:
            self._members_told = 0
            self._summaries_due.clear()
            self._reports.forget_sent()
        self.master_term, self.master_word = term, word
        self.heard_term = max(self.heard_term, term)

    def _obey(self, master_term: int) -> bool:
        if master_term < self.master_term or why_not_believed(self.heard_term, master_term):
            return False
        if master_term > self.master_term:
            self._note_master(master_term, "")
        if self._obeyed != (self.master_term, self.master_word):
            self._store.raise_master_term(self.master_term, self.master_word)
            self._obeyed = (self.master_term, self.master_word)
        return True

    def peer_up(self, hello: Hello, now: Now) -> bool:
        """Take in another agent's greeting; return False if its store has a newer process.

        Then the link is to be closed.  A new process has forgotten which promises it took back, so
        it is asked again.  A process over another store than the registered one is not heard: it
        was replaced, or the master has not told of it yet.
        """
        self.heard_term = max(self.heard_term, hello.master_term)
        member = self.members.get(hello.node)
        if member is not None and hello.store != member.store:
            return True
        if self._processes.is_ended(hello):
            return False
        if self._processes.begins(hello):
            for zone in self.zones.values():
                zone.peer_started(hello.node, now)
        return True

    def hears(self, hello: Hello) -> bool:
        """Return whether messages of the agent that greeted like this are taken in.

        It must be registered, and the latest process of its store that is known here.
        """
        return self._processes.hears(hello, self.members.get(hello.node))

    def refused(self, hello: Hello, refused: Refused) -> None:
        """Take part no more if a master says that another process has this one's place.

        If that master, or the next one, takes it in again, it sends the members.
        """
        is_obeyed = is_obeyed_refusal(self.master_term, self.master_word, hello)
        if is_obeyed and refused.code in ENDS_PART:
            self.refusal = refused.reason
            self._is_replaced()

    def _is_replaced(self) -> None:
        self.registered = False
        for zone in self.zones.values():
            zone.end_roles()

    def leave(self, now: Now) -> None:
        """Ask the master to move our primaries away; `has_primaries` shows the progress."""
        self.leaving = True
        self._report(0, now)

    @property
    def has_primaries(self) -> bool:
        """Whether any partition has its primary here."""
        return any(zone.roles for zone in self.zones.values())

    @property
    def opening(self) -> list[str]:
        """Zones that wait to be opened, or for a client socket, without refused ones."""
        return [*self._openings.untried(), *(uid for uid in self.zones if uid not in self._ports)]

    # --- messages --------------------------------------------------------------------------------

    def receive_from_master(self, message: FromMaster, now: Now) -> bool:
        """Take in one message of a master; return False if that master is no longer obeyed.

        Then its link is to be closed.  On MastershipNotKept the message was not obeyed: the link is
        to be closed as well, so that the master sends everything again.
        """
        if not self._obey(message.master_term):
            return False
        if isinstance(message, MasterPing):
            self._reports.had(message, now)
            self._report(message.sequence, now)
            return True
        if isinstance(message, Members):
            self._take_members(message, now)
        if not self.registered:
            return True
        match message:
            case ZoneTable():
                self._take_table(message, now)
            case ZoneGone():
                self._remove_zone(message.zone)
            case AskInventory(rows=rows, zone=uid, brief=is_brief):
                if uid:
                    self._report_rows(uid)
                elif is_brief:
                    self._summaries_due |= dict.fromkeys(self.zones)
                else:  # it follows the tables of all zones
                    self.informed = True
                    self._report_inventory(rows, now)
            case EventsTold() | Greet():
                self._events.append(message)
            case PreparedRow() | Freeze():
                zone = self.zones.get(message.zone)
                if zone is not None:
                    zone.receive(MASTER, message, now)
            case _:
                pass
        return True

    def receive(self, node: str, message: Message, now: Now) -> None:
        """Take in one message of another agent, over a link whose greeting `hears` accepts.

        Messages of an agent that is not registered are ignored.
        """
        if not self.registered or node not in self.members:
            return  # the sender repeats what is not answered
        if isinstance(message, Heartbeat):
            self._sends.append((node, self.leases.answer(node, message, now)))
            return
        if isinstance(message, HeartbeatAck):
            for uid, partition, term in message.exceptions:
                zone = self.zones.get(uid)
                if zone is not None:
                    zone.now = now
                    zone.lease_moved(node, partition, term)
            self.leases.granted(node, message)
            for zone in self.awake.values():
                zone.renew_own_leases()
            return
        zone = self.zones.get(getattr(message, "zone", ""))
        if zone is not None:
            zone.receive(node, message, now)

    def zone_ready(self, uid: str, port: int, external_port: int = 0) -> None:
        """Note that clients are accepted on `port`, and external ones on `external_port`."""
        ready = ZoneReady(uid, port, external_port=external_port if self._announces_external else 0)
        self._ports[uid] = ready
        self._sends.append((MASTER, ready))

    # --- what the master decides -----------------------------------------------------------------

    def _take_members(self, message: Members, now: Now) -> None:
        if message.sequence < self._members_told:
            return  # overtaken: a present store that it lacks would seem gone for good
        self._members_told = message.sequence
        members = {record.name: record for record in message.nodes}
        mine = members.get(self.node)
        self.registered = mine is not None and (
            (mine.store, mine.incarnation) == (self.store, self.incarnation)
            and mine.process == self.process
        )
        if self.registered:
            self.refusal = ""
        elif mine is not None and not is_earlier_start(mine, self.store, self.incarnation):
            self._is_replaced()
        if members != self.members:
            forgotten = self._processes.members_changed(self.members, members)
            self.members = members
            self._events.append(MembersChanged())
            for zone in self.zones.values():
                zone.set_members(message.nodes)
                for node in forgotten:
                    zone.peer_started(node, now)

    def _take_table(self, message: ZoneTable, now: Now) -> None:
        record = message.zone
        if record.deleting or message.members > self._members_told:
            return  # rows may name stores that are unknown here; they are sent again
        zone = self.zones.get(record.uid)
        if zone is None:
            opening = self._openings.told(record, message.rows)
            if opening.reason:  # the earlier reply may be lost, or the master is new
                self._sends.append((MASTER, ZoneReady(record.uid, 0, opening.reason)))
            else:
                self._open_next(now)
            return
        zone.set_record(record)
        zone.set_rows(message.rows, now)
        self._keep_zone(record)
        ready = self._ports.get(record.uid)
        if ready is not None and not knows_ports(record, self.node, ready):
            self._sends.append((MASTER, ready))  # the earlier message was lost

    def _open_next(self, now: Now) -> None:
        """Open the first zone that is due, if this turn has opened none."""
        opening = self._openings.due(now.boot_ms)
        if opening is not None and not self._has_opened:
            self._open_zone(opening, now)

    def _open_zone(self, opening: Opening, now: Now) -> None:
        """Open the zone, or tell the master why not."""
        self._has_opened = True
        record, uid = opening.record, opening.record.uid
        try:
            storage = self._store.open_zone(record)
        except ZoneRefused as error:
            self._openings.refused(opening, str(error), now.boot_ms)
            self._sends.append((MASTER, ZoneReady(uid, 0, opening.reason)))
            if not self._inventory_rows:  # else its data may be the newest that is left
                self._inventory_sent(uid)
            return
        self._openings.forget(uid)
        me = self.members[self.node].holder(record.persistent)
        zone = Replicas(record, me, storage, self.leases, self.settings, now, self._rate)
        zone.set_members(self.members.values())
        self.zones[uid] = zone
        self._awake.opened(zone)
        self._events.append(ZoneOpened(record))
        zone.set_rows(opening.rows.values(), now)
        self._keep_zone(record)
        if opening.reason or uid in (self._inventory_due or ()):
            zone.inventory_due = self._send_inventory(zone, self._inventory_rows)
        if uid in self._rows_due:
            self._report_rows(uid)

    def try_refused_zones(self) -> None:
        """Try refused zones again, because something was freed."""
        self._openings.try_again()

    def has_to_open(self, now: Now) -> bool:
        """Return whether the next turn opens a zone."""
        return self.registered and self._openings.due(now.boot_ms) is not None

    def _keep_zone(self, record: ZoneRecord) -> None:
        """Store the zone's record, in case the metastore is lost.

        If there is no room, the next table tries again.  Of the ports only our own is kept, so that
        another agent's port causes no write here.
        """
        ports = {name: port for name, port in record.ports.items() if name == self.node}
        kept = msgspec.structs.replace(
            record, ports=ports, recovering=False, placed=False, external_ports={}
        )
        if self._kept.get(record.uid) != kept and self._store.keep_zone(kept):
            self._kept[record.uid] = kept

    def _remove_zone(self, uid: str) -> None:
        self._kept.pop(uid, None)
        self._removing.add(uid)
        self._rows_due.discard(uid)
        self._openings.forget(uid)
        zone = self.zones.pop(uid, None)
        if zone is not None:
            self._awake.closed(zone)
            zone.close()
            self._ports.pop(uid, None)
            self._events.append(ZoneClosed(uid, zone.take_finished()))
        self._inventory_sent(uid)
        if self._store.remove_zone(uid):
            self.zone_removed(uid)

    def zone_removed(self, uid: str) -> None:
        """Tell the master that the data of a deleted zone is gone; until then it keeps asking."""
        self._removing.discard(uid)
        self._sends.append((MASTER, RowsStored(uid, ())))

    def _report_inventory(self, rows: bool, now: Now) -> None:
        """Report zone by zone, each once it is open and its report is durable; then the end.

        `rows`: the metastore is lost.  Remembered zones that no master announced are opened, and
        the end also waits for refused zones.
        """
        self._inventory_rows = rows
        if rows:
            for record in self._store.kept_zones():
                if record.uid not in self.zones:
                    self._openings.told(record, ())
        waiting = self._openings.all() if rows else self._openings.untried()
        self._inventory_due = [*self.zones, *waiting]
        for zone in self.zones.values():
            zone.inventory_due = self._send_inventory(zone, rows)
        self._inventory_sent("")

    def _report_rows(self, uid: str) -> None:
        """Report what is here of one zone whose rows were lost, opening the zone if necessary.

        A zone that cannot be opened is reported when it can.
        """
        zone = self.zones.get(uid)
        if zone is not None:
            self._rows_due.discard(uid)
            self._send_inventory(zone, True)
        elif uid in self._kept:
            self._rows_due.add(uid)
            if uid not in self._openings.all():
                self._openings.told(self._kept[uid], ())
        else:
            self._sends.append((MASTER, Inventory(uid, (), False, None, True)))

    def _tell_summaries(self) -> None:
        """Tell the master, of some zones, how large and how far their copies are."""
        for uid in list(self._summaries_due)[:SUMMARIES_PER_TICK]:
            del self._summaries_due[uid]
            zone = self.zones.get(uid)
            if zone is not None:
                self._sends.append((MASTER, copy_summaries(uid, zone.copies.values())))

    def _send_inventory(self, zone: Replicas, rows: bool) -> Inventory:
        zone.repeat_reports()
        record = zone.record if rows else None
        told = Inventory(zone.uid, inventory(zone, rows), False, record, rows)
        zone.out.send_durable(MASTER, told)
        return told

    def _inventory_sent(self, uid: str) -> None:
        due = self._inventory_due
        if due is None:
            return
        if uid in due:
            due.remove(uid)
        if not due:
            self._inventory_due = None
            kept = tuple(sorted({*self._kept, *self.zones, *self._removing}))
            self._sends.append((MASTER, Inventory("", (), last=True, kept=kept)))

    def _report(self, sequence: int, now: Now) -> None:
        others = [
            record.name
            for record in self.members.values()
            if self.registered and record.name != self.node and record.left_since_ms is None
        ]
        self._sends.append((MASTER, self._reports.make(sequence, self.leaving, others, now)))

    # --- time and the turn -----------------------------------------------------------------------

    def tick(self, now: Now) -> None:
        """Do what is due by time; called several times per heartbeat interval."""
        if not self.registered:
            for zone in self.awake.values():  # clients still wait
                zone.give_up_transactions(now)
            return
        if now.boot_ms - self._heartbeat_ms >= self.settings.heartbeat_ms:
            self._heartbeat_ms = now.boot_ms
            for node in self.members:
                if node != self.node:
                    self._sends.append((node, self.leases.heartbeat(node, now)))
        if self._summaries_due:
            self._tell_summaries()
        self._aside.tick(now)
        self._awake.tick(now)

    def flush(self, now: Now) -> Flushed:
        """End the turn: write every zone's batch, which is not durable yet.

        Partitions whose long values are still being written are left out: their turn goes on, so
        that leases are renewed and other partitions are served meanwhile.
        """
        if self.registered:
            self._open_next(now)
        self._has_opened = False
        sends, self._sends = self._sends, []
        turns: list[tuple[str, Turn]] = []
        going_on: list[str] = []
        for uid, zone in self.awake.items():
            if not zone.has_turn:
                zone.now = now
                continue
            waiting = zone.storage.write_ahead() if zone.touched else ()
            if waiting:
                going_on.append(uid)
            turn = zone.flush_some(waiting, now) if waiting else zone.flush(now)
            if turn is None:
                continue
            sends += turn.sends
            if turn.wrote or turn.after_sync or turn.acks or turn.adopted or turn.durable:
                turns.append((uid, turn))
        self._awake.let_rest(now)
        events, self._events = self._events, []
        return Flushed(sends, turns, events, going_on)

    def synced(self, uid: str, turn: Turn, now: Now) -> list[tuple[str, Message]]:
        """Return what may be sent because the zone's batch of this turn is durable."""
        zone = self.zones.get(uid)
        if zone is None:
            return []
        sends = zone.synced(turn, now)
        if self._inventory_due is not None:
            # Not another one: it answers an earlier question, or one about this zone alone.
            if any(message is zone.inventory_due for _, message in sends):
                zone.inventory_due = None
                self._inventory_sent(uid)
            sends += self._sends
            self._sends = []
        return sends

    # --- invariants ------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise InvariantError unless every zone's copies and roles are consistent."""
        if self.zones and not self.members:
            raise InvariantError(f"{self.node}: zones {list(self.zones)} without members")
        for zone in self.zones.values():
            zone.check()
        self._awake.check()
