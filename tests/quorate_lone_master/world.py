"""A master whose writes succeed at once and whose agents answer at once, with exceptions on demand.

Time passes in steps of 100 ms.  Every agent that is connected serves what it is primary of, is even
with every migration to it unless that is held back, and stores what it is sent.
"""

from collections.abc import Callable, Mapping
from typing import Any

from quorate.facts.partition_row import PartitionRow, committed_row
from quorate.facts.time import Now
from quorate.facts.topology import STORAGE_PROFILES
from quorate.facts.zone import ZoneRecord
from quorate.protocol.master.master import Master
from quorate.protocol.messages.events import Event
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello
from quorate.protocol.messages.master import (
    Activated,
    AgentReport,
    AskInventory,
    CaughtUp,
    CopyReady,
    CopyReport,
    CopySummaries,
    Freeze,
    Frozen,
    Inventory,
    Prepared,
    PreparedRow,
    RowsStored,
    TransferProgress,
    ZoneTable,
)
from quorate.protocol.messages.message import Message
from quorate.protocol.metastore import Key, Value
from quorate.protocol.settings import DEFAULTS, ProtocolSettings
from quorate.protocol.status import ZoneStatus

STEP_MS = 100


def placed_master(*zones: ZoneRecord, **options: Any) -> "LoneMaster":
    """A master whose zones were placed long enough ago that an agent that joins is a newcomer."""
    world = LoneMaster(*zones, **options)
    world.pass_time(world.settings.failure_detection_ms)
    return world


def moving_master(zone: ZoneRecord) -> tuple["LoneMaster", PartitionRow]:
    """A placed master to which `d` came, and one of the rows that move to it without getting on."""
    world = placed_master(zone)
    world.fills = lambda zone, partition, node: False
    world.connect("d")
    world.wait(lambda: any(row.active for row in world.rows(zone).values()))
    return world, next(row for row in world.rows(zone).values() if row.active is not None)


class LoneMaster:
    """`fills`: whether a migration's destination gets on (zone, partition, node); `refuses`: if
    a node refuses the prepared row; `mute`: whether it leaves that unanswered; `serves`: whether a
    primary says that it serves; `stores`: whether a node says that it has the rows it was sent;
    `knows`: whether it tells the rows of a zone that it is asked for.  `rebuilds`: see Master; its
    agents then tell the rows that they were told.  `keeps`: the zones of which a node tells that it
    has anything stored (otherwise).  `same_processes`: agents that connect are those
    of before, after a break of their links.  `client_ports`: the
    ranges of agents that take their zones' client ports from the master; `external`: the external
    hosts of agents that have an external listener, empty where the operator says them;
    `attributes`, `profiles`: the attributes and the storage profiles of agents that have some."""

    def __init__(
        self,
        *zones: ZoneRecord,
        nodes: tuple[str, ...] = ("a", "b", "c"),
        settings: ProtocolSettings = DEFAULTS,
        kind: type[Master] = Master,
        rebuilds: bool = False,
        client_ports: Mapping[str, tuple[int, int]] | None = None,
        external: Mapping[str, str] | None = None,
        attributes: Mapping[str, dict[str, str]] | None = None,
        profiles: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self.ms = 0
        self.wall_off_ms = 0  # how far the wall clock was set
        self.boot_off_ms = 0  # how much later the machine of the present master was started
        self.stored: dict[Key, Value] = {}
        self.events: list[Event] = []
        self.asked: list[AskInventory] = []
        self.started: list[tuple[str, PartitionRow]] = []
        self.fills: Callable[[str, int, str], bool] = lambda zone, partition, node: True
        self.refuses: Callable[[str], bool] = lambda node: False
        self.mute: Callable[[str], bool] = lambda node: False
        self.serves: Callable[[str], bool] = lambda node: True
        self.stores: Callable[[str], bool] = lambda node: True
        self.refused: Callable[[Key], bool] = lambda key: False  # whether a write is refused
        self.sizes: dict[str, int] = {}  # zone uid -> bytes of each copy, told when asked
        self.unreached: dict[str, tuple[str, ...]] = {}  # node -> members that it does not reach
        self.full: dict[str, dict[str, str]] = {}  # node -> why zones have no room on it, by uid
        self.settings = settings
        self.client_ports = dict(client_ports or {})
        self.external = dict(external or {})
        self.attributes = dict(attributes or {})
        self.profiles = dict(profiles or {})
        self.rebuilds = rebuilds
        self.formats: dict[str, int] = {}  # node -> the frame format of an earlier version
        self.same_processes = False
        self.knows: Callable[[str, str], bool] = lambda node, uid: True
        self.keeps: Callable[[str], tuple[str, ...]] = lambda node: ()
        self._told: dict[str, dict[str, dict[int, PartitionRow]]] = {}  # node -> uid -> rows
        self._incarnations: dict[str, int] = {}
        self._rows: dict[tuple[str, int], PartitionRow] = {}
        self._kind = kind
        self.master = kind(1, settings, self.now, rebuilds=rebuilds)
        self.connect(*nodes)
        for zone in zones:
            self.master.set_zone(zone, self.now)
        self.pass_time(1_000)

    @property
    def now(self) -> Now:
        return Now(1_000_000_000 + self.ms + self.wall_off_ms, self.ms + self.boot_off_ms)

    def rows(self, zone: ZoneRecord) -> dict[int, PartitionRow]:
        parts = self.master.zones[zone.uid].parts
        return {partition: parts[partition].row for partition in sorted(parts)}

    def status(self, zone: ZoneRecord) -> ZoneStatus:
        return next(each for each in self.master.status().zones if each.uid == zone.uid)

    def said(self, reason: str) -> list[str]:
        return [event.message for event in self.events if event.reason == reason]

    # --- agents ----------------------------------------------------------------------------------

    def connect(self, *nodes: str, store: str = "", copies: dict[str, int] | None = None) -> None:
        """They start, each as a new process; `copies`: zone uid -> bytes of each of its copies."""
        for node in nodes:
            count = self._incarnations.get(node, 0) + (not self.same_processes)
            self._incarnations[node] = count
            self.master.agent_connected(self.hello(node, count, store), self.now)
        self.write()
        for node in nodes:
            self.report(node, copies or {})
        self.write()

    def hello(self, node: str, incarnation: int, store: str = "") -> Hello:
        """How the agent greets."""
        return Hello(
            self.formats.get(node, FORMAT_VERSION), "agent", "main",
            node, store or f"store-{node}", incarnation,
            process=f"{node}-{incarnation}", client_ports=self.client_ports.get(node),
            external_host=self.external.get(node), attributes=self.attributes.get(node, {}),
            storage_profiles=self.profiles.get(node, STORAGE_PROFILES),
        )  # fmt: skip

    def follow(self, recovering: bool = False) -> None:
        """Another master begins with what is stored; no agent is connected yet.  `recovering`: the
        metastore was lost."""
        term = self.master.master_term + 1
        self.master = self._kind(term, self.settings, self.now, recovering, self.rebuilds)
        self.master.load(dict(self.stored), self.now)

    def _report_rows(self, node: str, uid: str) -> None:
        known = self._told.get(node, {}).get(uid, {})
        if self.knows(node, uid):
            told = tuple(
                CopyReport(p, r.version, None, "", r.term, 0, 0, True, 0, r.term, r)
                for p, r in sorted(known.items())
            )
            self.master.receive(node, Inventory(uid, told, False, None, True), self.now)

    def _report_known(self, node: str) -> None:
        known = self._told.get(node, {})
        for uid, rows in known.items():
            told = tuple(
                CopyReport(p, r.version, None, "", r.term, 0, 0, True)
                for p, r in sorted(rows.items())
                if node in r.voter_nodes
            )
            self.master.receive(node, Inventory(uid, told, last=False), self.now)
        self.master.receive(node, Inventory("", (), kept=tuple(known)), self.now)

    def _tell_summaries(self, node: str) -> None:
        for uid, size in self.sizes.items():
            rows = [part.row for part in self.master.zones[uid].parts.values()]
            told = tuple((r.partition, size, r.term, 0) for r in rows if node in r.voter_nodes)
            self.master.receive(node, CopySummaries(uid, told), self.now)

    def report(self, node: str, copies: dict[str, int]) -> None:
        """The agent tells its copies, each of so many bytes."""
        if self.rebuilds:
            self._report_known(node)
            return
        for uid, size in copies.items():
            rows = [part.row for part in self.master.zones[uid].parts.values()]
            told = tuple(
                CopyReport(r.partition, r.version, None, "", r.term, 0, 0, True, size)
                for r in rows
                if node in r.voter_nodes
            )
            self.master.receive(node, Inventory(uid, told, last=False), self.now)
        self.master.receive(node, Inventory("", (), kept=self.keeps(node)), self.now)

    def tell_prepared(self, zone: ZoneRecord, row: PartitionRow) -> None:
        """The destination of the row's migration tells that it has stored the row after it."""
        assert row.active is not None
        assert row.destination is not None
        told = CopyReport(
            row.partition, row.version, committed_row(row), row.active.migration_id,
            row.term, 1, 1, False,
        )  # fmt: skip
        inventory = Inventory(zone.uid, (told,), last=False)
        self.master.receive(row.destination.node, inventory, self.now)

    def kill(self, *nodes: str) -> None:
        for node in nodes:
            self.master.agent_disconnected(node, True, self.now)
        self.write()

    def progress(self, zone: ZoneRecord, partition: int, node: str, done: int, total: int) -> None:
        """A filling copy has so much."""
        message = TransferProgress(zone.uid, partition, done, total)
        self.master.receive(node, message, self.now)

    # --- time ------------------------------------------------------------------------------------

    def write(self) -> None:
        """Do what the master wants written, answer what it sends."""
        refused: list[Key] = []
        while True:
            outputs = self.master.take_outputs()
            self.events += outputs.events
            for key, value in outputs.writes:
                if self.refused(key):
                    refused.append(key)  # it is tried again in the next step
                    continue
                if value is None:
                    self.stored.pop(key, None)
                else:
                    self.stored[key] = value
                self._note_started(key, value)
                self.master.written(key, value, self.now)
            for node, message in outputs.sends:
                self._answer(node, message)
            if self.master.has_doubts:  # as the shell does
                self.master.looked_again(self.master.told_newer(), dict(self.stored))
            if not outputs.writes and not outputs.sends:
                break
        for key in refused:
            self.master.reloaded(key, self.stored.get(key), self.now)

    def _note_started(self, key: Key, value: Value | None) -> None:
        if not isinstance(value, tuple):
            return
        uid = str(getattr(key, "uid", ""))
        for row in value:
            before = self._rows.get((uid, row.partition))
            if row.active is not None and (before is None or before.active != row.active):
                self.started.append((uid, row))
            self._rows[uid, row.partition] = row

    def pass_time(self, ms: int) -> None:
        until = self.ms + ms
        while self.ms < until:
            self.ms += STEP_MS
            for node, agent in list(self.master.agents.items()):
                if agent.connected:
                    report = AgentReport(
                        1,
                        unreached=self.unreached.get(node, ()),
                        full=self.full.get(node, {}),
                    )
                    self.master.receive(node, report, self.now)
            self.master.tick(self.now)
            self.write()
            self._serve()
            self.write()

    def wait(self, is_so: Callable[[], bool], ms: int = 60_000) -> None:
        """Let time pass until something is so."""
        until = self.ms + ms
        while not is_so():
            assert self.ms < until, self.master.status()
            self.pass_time(STEP_MS)

    def _answer(self, node: str, message: Message) -> None:
        said: Message
        if isinstance(message, AskInventory):
            self.asked.append(message)
            if message.zone:
                self._report_rows(node, message.zone)
            elif message.brief:
                self._tell_summaries(node)
            else:
                self.report(node, self.sizes)
        if isinstance(message, ZoneTable):
            known = self._told.setdefault(node, {}).setdefault(message.zone.uid, {})
            for row in message.rows:
                if row.partition not in known or known[row.partition].version < row.version:
                    known[row.partition] = row
            stored = tuple((row.partition, row.version) for row in message.rows)
            if self.stores(node):
                self.master.receive(node, RowsStored(message.zone.uid, stored), self.now)
        if self.mute(node):
            return
        if isinstance(message, PreparedRow):
            accepts = not self.refuses(node)
            row = message.row
            said = Prepared(message.zone, row.partition, message.migration_id, row.version, accepts)
        elif isinstance(message, Freeze):
            said = Frozen(message.zone, message.partition, message.migration_id, message.term, 0)
        else:
            return
        self.master.receive(node, said, self.now)

    def _serve(self) -> None:
        for uid, zone in list(self.master.zones.items()):
            for part in list(zone.parts.values()):
                self._serve_part(uid, part.row)

    def _serve_part(self, uid: str, row: PartitionRow) -> None:
        agent = self.master.agents.get(row.primary.node) if row.primary is not None else None
        if row.primary is None or agent is None or not agent.connected:
            return
        primary, active = row.primary.node, row.active
        if not self.serves(primary):
            return
        self.master.receive(primary, Activated(uid, row.partition, row.term, 0), self.now)
        if active is not None:
            to = active.destination.node if active.destination is not None else ""
            if self.fills(uid, row.partition, to):
                even = CaughtUp(uid, row.partition, active.migration_id, row.version, row.term)
                self.master.receive(primary, even, self.now)
        for voter in row.voters:
            agent = self.master.agents.get(voter.node)
            is_back = voter.node not in row.replicas and agent is not None and agent.online
            if is_back and self.fills(uid, row.partition, voter.node):
                ready = CopyReady(uid, row.partition, row.term, voter.node, voter.store)
                self.master.receive(primary, ready, self.now)
