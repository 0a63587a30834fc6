"""The master of one cluster: which agents take part, who owns what, which migration runs next.

One object per cluster, without I/O: the operator's shell hands in agents, messages, zones and time.
It performs `writes` under compare-and-set and reports each as written or reloaded; messages that
depend on a write are handed out only after that. Decisions about one partition are pure
(decide_partition.py); this object keeps the parts, groups rows into one write per shard, and
publishes them. Source: docs/protocol.md, section 7.
"""

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from quorate.facts.partition_row import PartitionRow, check_row
from quorate.facts.time import Now
from quorate.facts.topology import NodeRecord
from quorate.facts.zone import ZoneRecord
from quorate.planning.absence.disruption import Disruption
from quorate.protocol.master.decisions.decide import recover
from quorate.protocol.master.disruption import cluster_disruption, disruption_facts
from quorate.protocol.master.migration_queue import MigrationQueue
from quorate.protocol.master.node_registry import NodeRegistry
from quorate.protocol.master.older_metastore import OlderMetastore, ToldNewer
from quorate.protocol.members.cluster import PASSES_MAX, Cluster
from quorate.protocol.members.membership import KnownAgent
from quorate.protocol.members.zone_ports import ZonePorts
from quorate.protocol.messages.events import Event, Reason
from quorate.protocol.messages.handshake import Hello, Refused
from quorate.protocol.messages.master import (
    Activated,
    ActivationBlocked,
    AgentReport,
    CaughtUp,
    CopyReady,
    CopySummaries,
    Frozen,
    Inventory,
    MasterPing,
    Members,
    Prepared,
    RowsStored,
    TransferProgress,
    ZoneReady,
)
from quorate.protocol.messages.message import Message
from quorate.protocol.metastore import DamagedRow, Key, NodeKey, ShardKey, Value, ZoneKey
from quorate.protocol.recovery import Recovery, RecoveryAnswer
from quorate.protocol.settings import ProtocolSettings
from quorate.protocol.status import ClusterStatus
from quorate.protocol.zone_master.zone_master import ZoneMaster

PING_MS = 500
DECIDE_MS = 100
"""The interval at which every zone is looked at."""


class Outputs(NamedTuple):
    """The work that a step leaves to the shell. Sends do not depend on the writes beside them."""

    writes: list[tuple[Key, Value | None]]
    sends: list[tuple[str, Message]]
    events: list[Event]


class Master:
    """The part of the operator that decides, for one cluster."""

    def __init__(
        self,
        master_term: int,
        settings: ProtocolSettings,
        now: Now,
        recovering: bool = False,
        rebuilds: bool = False,
    ) -> None:
        """Start a mastership with the number `master_term`; `load` then takes the stored state.

        `recovering`: the metastore was lost; zones and rows are taken from agents. `rebuilds`: rows
        that are older than an agent's are rebuilt from agents; without it, this master must not
        lead then.
        """
        cluster = self._cluster = Cluster(
            master_term, settings, now, recovering=recovering, rebuilds=rebuilds
        )
        self.master_term = master_term
        self._headless: dict[str, list[tuple[PartitionRow, ...]]] = {}
        self.agents = cluster.agents
        self.retries = cluster.retries
        self.zones: dict[str, ZoneMaster] = {}
        self._queue = MigrationQueue(cluster, self.zones)
        self._ports = ZonePorts(cluster.agents, self.zones)
        self._nodes = NodeRegistry(cluster, self.zones, self._ports, now)
        self.places = self._nodes.places
        self._disrupted: tuple[object, Disruption] | None = None
        """The last result of `disruption`, with everything it depends on."""
        self.next_deadline_ms = now.boot_ms
        self._due: Now | None = None
        """Time of the newest message that no decision has taken into account yet."""
        self._due_zones: set[str] | None = set()
        """The zones that those messages are about; None: any zone."""
        self._passed = ""
        """The zone that had the last full pass. The next turn goes on with the one after it."""
        self._ping = 0
        self._pinged_ms = -(1 << 40)
        self._writing: set[Key] = set()
        self._ended: set[str] = set()
        """The zones that were deleted under this master, all: a former one may write late."""
        self._remains: set[ShardKey] = set()
        """Shards of such zones, which a former master wrote late: to be deleted."""
        wishes_changed = self._nodes.wishes_changed
        self._older = OlderMetastore(cluster, self.zones, self._ended, wishes_changed)

    def load(self, snapshot: dict[Key, Value], now: Now) -> None:
        """Take the contents of the metastore. Nothing is published until agents have reported."""
        for key, value in snapshot.items():
            if isinstance(key, NodeKey) and isinstance(value, NodeRecord):
                self._nodes.load(value, now)
            elif isinstance(key, ZoneKey) and isinstance(value, ZoneRecord):
                self.zones[key.uid] = ZoneMaster(self._cluster, self._ports, value)
                self.zones[key.uid].record_written(value, now)
        for key, value in snapshot.items():
            if isinstance(key, ShardKey) and isinstance(value, tuple):
                if key.uid in self.zones:
                    self.zones[key.uid].take_rows(value, now)
                else:  # its zone has no record: keep it until the zone is declared
                    self._headless.setdefault(key.uid, []).append(value)
        for zone in self.zones.values():
            zone.keep_ports_of(self.agents)
        self._ports.give()

    # --- agents ----------------------------------------------------------------------------------

    def agent_connected(self, hello: Hello, now: Now) -> None:
        """Take the greeting of an agent that was dialed. It is registered before it takes part."""
        self._nodes.connected(hello, now)
        self.decide(now)

    def refusal(self, hello: Hello) -> Refused | None:
        """Return why the agent that greets must not take part; None if it may."""
        return self._nodes.admission.refusal(hello)

    def agent_disconnected(self, node: str, process_gone: bool, now: Now) -> None:
        """Note a lost link to an agent. `process_gone`: its host refuses new connections."""
        self._nodes.disconnected(node, process_gone, now)
        self.decide(now)

    def drain(self, node: str, draining: bool, now: Now) -> str:
        """Start or stop draining `node`. Return a sentence on why that is impossible, or "".

        Draining begins once it is written, so that it outlives this master. The record is written
        even if it does not change, so that the caller can be told when that is done.
        """
        refused = self._nodes.drain(node, draining)
        self.decide(now)
        return refused

    def forget(self, node: str, now: Now) -> str:
        """Remove the registration of a node that no row names.

        Return a sentence on why that is impossible, or "". If the node comes back, it is a new
        node: not draining, and a data node at once.
        """
        return self._nodes.forget(node, now)

    def recover(self, uid: str, asked: Recovery, now: Now) -> RecoveryAnswer:
        """Do what a person decides about partitions of a zone; see decisions/decide.py."""
        answer = recover(self.zones[uid], asked, now)
        self.decide(now)
        return answer

    def keep_primaries_off(self, nodes: Collection[str], now: Now) -> None:
        """Make exactly these agents the last choice as primaries. Their copies stay.

        This is not written: the caller repeats it to the next master.
        """
        if self._nodes.keep_primaries_off(nodes):
            self.decide(now)

    def processes_ended(self, ended: Mapping[str, Collection[str]]) -> None:
        """Take by agent the words of processes that have surely ended; they count once it left."""
        self._nodes.processes_ended(ended)

    def disruption(self, gone: Collection[str] = (), restarted: Collection[str] = ()) -> Disruption:
        """Return which agents may restart now; see cluster_disruption."""
        zones = self.zones.values()
        away, before = {*gone}, {*restarted}
        facts = disruption_facts(self.agents, zones), away, before
        if self._disrupted is None or self._disrupted[0] != facts:
            self._disrupted = facts, cluster_disruption(self.agents, zones, away, before)
        return self._disrupted[1]

    def registration(self, node: str) -> NodeRecord | None:
        """Return the registration that `node` is to have, written or not yet; None for none."""
        agent = self.agents.get(node)
        return agent.newest if agent is not None else None

    # --- messages --------------------------------------------------------------------------------

    def receive(self, node: str, message: Message, now: Now) -> None:
        """Take one message from a registered agent."""
        agent = self.agents.get(node)
        if agent is None:
            return
        agent.heard_ms = now.boot_ms
        if isinstance(message, AgentReport):
            agent.heard_ping = max(agent.heard_ping, message.sequence)
            unreached = frozenset(message.unreached)
            if unreached != agent.unreached:
                agent.unreached = unreached
                for each in self.zones.values():
                    each.reach_changed()
            if message.leaving and not agent.leaving:
                agent.leaving = True
                for each in self.zones.values():
                    each.topology_changed()
            for trouble in message.troubles:
                zone_master = self.zones.get(trouble.zone)
                if zone_master is not None:
                    zone_master.reports.trouble(node, trouble, now)
            for each in self.zones.values():
                each.reported(node, message, now)
            self._nodes.judge(now)
            return
        if isinstance(message, Inventory):
            self._take_inventory(node, agent, message)
            self._due, self._due_zones = now, None
            return
        zone = self.zones.get(getattr(message, "zone", ""))
        if zone is None:
            return
        match message:
            case Activated():
                zone.reports.activated(node, message, now)
            case ActivationBlocked():
                zone.reports.blocked(node, message)
            case CaughtUp():
                zone.reports.caught_up(node, message, now)
            case Frozen():
                zone.reports.frozen(node, message)
            case Prepared():
                zone.reports.prepared(message)
            case CopyReady():
                zone.reports.copy_ready(node, message)
            case RowsStored():
                zone.rows_stored(node, message)
            case TransferProgress():
                zone.progress(node, message, now)
            case CopySummaries():
                self._take_summaries(agent, zone, message)
                return  # nothing is due because of it
            case ZoneReady():
                zone.ready(node, message, now)
            case _:
                return
        self._due = now
        if self._due_zones is not None:
            self._due_zones.add(zone.record.uid)

    def _take_summaries(self, agent: KnownAgent, zone: ZoneMaster, message: CopySummaries) -> None:
        known = agent.inventory.get(message.zone, {})
        for partition, size, last_term, lwm in message.copies:
            zone.size_told(partition, size)
            if partition in known:
                known[partition] = msgspec.structs.replace(
                    known[partition], last_term=last_term, lwm=lwm, size=size
                )

    def _take_inventory(self, node: str, agent: KnownAgent, message: Inventory) -> None:
        uid = message.zone
        if uid:
            told = {copy.partition: copy for copy in message.copies}
            agent.inventory.setdefault(uid, {}).update(told)
            if message.rows or message.record is not None:
                agent.rows[uid] = told
            if self._cluster.recovering and message.record is not None:
                self._recover_zone(message.record)
            if uid in self.zones:
                agent.reported.add(uid)
                self.zones[uid].copies_told(node, message.copies)
        if message.last:
            # The inventory says nothing of zones that the agent refuses: it reports those once they
            # are open.
            opened = [uid for uid, zone in self.zones.items() if not zone.nodes.refusal(node)]
            agent.reported.update(opened)
            agent.kept = frozenset(message.kept)
            agent.told_all = True
            for each in opened:
                if self._cluster.recovering:
                    agent.rows.setdefault(each, {})
                self.zones[each].told_all()
            if self._older.kept_told(node, agent):
                self._nodes.wishes_changed(node)

    # --- the metastore was lost ------------------------------------------------------------------

    @property
    def recovering(self) -> bool:
        """Whether the metastore was lost, and zones are still taken from agents' reports."""
        return self._cluster.recovering

    @property
    def has_heard_all(self) -> bool:
        """Whether every connected agent has reported everything, and every zone reported is stored.

        Rows that are still missing are asked for zone by zone, also by the next master.
        """
        here = [agent for agent in self.agents.values() if agent.connected]
        told = all(agent.told_all for agent in here)
        return bool(here) and told and all(zone.is_stored for zone in self.zones.values())

    @property
    def has_recovered(self) -> bool:
        """Whether every connected agent has reported everything, and each partition has its row."""
        zones = self.zones.values()
        return self.has_heard_all and not any(zone.record.recovering for zone in zones)

    def end_recovery(self) -> None:
        """Stop taking zones from agents' reports."""
        self._cluster.recovering = False

    def _recover_zone(self, told: ZoneRecord) -> None:
        zone = self.zones.get(told.uid)
        if zone is not None:
            zone.take_ports(told.ports, told.port)
            return
        port = self._ports.unless_taken(told.uid, told.port)
        record = msgspec.structs.replace(
            told, recovering=True, placed=True, deleting=False, port=port
        )
        self.zones[record.uid] = ZoneMaster(self._cluster, self._ports, record)
        self._cluster.zone_writes[record.uid] = record
        for agent in self.agents.values():
            if agent.told_all:
                agent.reported.add(record.uid)
        about = f"zone {record.name} is being rebuilt from the agents' data"
        self._cluster.event(record.uid, None, Reason.ZONE_CREATED, about)
        self._ports.give()

    # --- is the metastore the newest one? --------------------------------------------------------

    @property
    def outdated(self) -> str:
        """The reason why this master must not lead, as agents have what the metastore lacks."""
        return self._older.outdated

    @property
    def has_doubts(self) -> bool:
        """Whether agents have anything that is newer than what was read.

        If so, the shell takes `told_newer`, reads everything again, and then calls `looked_again`.
        """
        return self._older.has_doubts

    def told_newer(self) -> ToldNewer:
        """Return all that agents have and that is newer than what was read."""
        return self._older.told()

    def looked_again(self, told_newer: ToldNewer, stored: Mapping[Key, Value]) -> None:
        """Judge `stored`: the metastore as it was read after agents had reported `told_newer`.

        What was reported since then may have been stored after that read. It waits for the next
        read, and nothing is decided about these partitions until then.
        """
        self._older.looked_again(told_newer, stored)

    # --- zones -----------------------------------------------------------------------------------

    def set_zone(self, record: ZoneRecord, now: Now) -> None:
        """Take a zone that was declared or changed. `deleting` removes it and its data."""
        zone = self.zones.get(record.uid)
        if zone is None:
            if record.deleting or self._cluster.recovering:
                return  # agents may have data of it: it is declared again when they have reported
            port = self._ports.unless_taken(record.uid, record.port)
            record = msgspec.structs.replace(record, port=port)
            zone = self.zones[record.uid] = ZoneMaster(self._cluster, self._ports, record)
            for rows in self._headless.pop(record.uid, ()):
                zone.take_rows(rows, now)
            for agent in self.agents.values():
                if agent.told_all:
                    agent.reported.add(record.uid)  # reported already, or once it is open
            self._cluster.zone_writes[record.uid] = record
            self._cluster.event(
                record.uid,
                None,
                Reason.ZONE_CREATED,
                f"{record.partitions} partitions of {record.replicas} copies",
            )
            self._ports.give()
        elif not zone.record.deleting:  # else only its deletion is left to be written
            known = zone.record
            is_placed = known.placed or record.placed
            wanted = msgspec.structs.replace(
                record,
                ports=known.ports,
                recovering=known.recovering,
                placed=is_placed,
                port=known.port or self._ports.unless_taken(record.uid, record.port),
                external_ports=known.external_ports,
                data_nodes=known.data_nodes,
            )
            if wanted == zone.record:
                return
            zone.record = wanted
            zone.topology_changed()
            self._cluster.zone_writes[record.uid] = wanted
        self._decide_zone(zone, now)

    # --- time and decisions ----------------------------------------------------------------------

    def tick(self, now: Now) -> None:
        """Do what is due by time."""
        if now.boot_ms - self._pinged_ms >= PING_MS:
            self._pinged_ms = now.boot_ms
            self._ping += 1
            for node in sorted(self.agents):
                agent = self.agents[node]
                if agent.connected:
                    heard = agent.heard_ping if agent.online else 0
                    ping = MasterPing(self.master_term, self._ping, heard)
                    self._cluster.sends.append((node, ping))
        self._cluster.ask_summaries(now)
        self._nodes.judge(now)
        self._nodes.store_ages(now)
        self.decide(now)

    def decide(self, now: Now) -> None:
        """Look at every zone; cheap if nothing has changed.

        At most `PASSES_MAX` zones get a full pass. The others follow in the next turn, which is due
        at once, so that messages and writes do not wait for hundreds of zones.
        """
        self._due, self._due_zones = None, set()
        self._cluster.passes_left = PASSES_MAX
        uids = sorted(self.zones)
        first = bisect_right(uids, self._passed)
        for uid in uids[first:] + uids[:first]:
            left = self._cluster.passes_left
            self.zones[uid].decide(now)
            if self._cluster.passes_left < left:
                self._passed = uid
        self._queue.start(now)
        self.next_deadline_ms = now.boot_ms + (DECIDE_MS if self._cluster.passes_left else 1)

    def _decide_due(self) -> None:
        """Decide what messages have made due, once for all messages of this turn of the shell.

        One read from a link may bring hundreds of them.
        """
        now, uids = self._due, self._due_zones
        self._due, self._due_zones = None, set()
        if now is None:
            return
        if uids is None:
            self.decide(now)
            return
        self._cluster.passes_left = PASSES_MAX
        for uid in sorted(uids & self.zones.keys()):
            self.zones[uid].decide(now)
        self._queue.start(now)
        due_ms = now.boot_ms + (DECIDE_MS if self._cluster.passes_left else 1)
        self.next_deadline_ms = min(self.next_deadline_ms, due_ms)

    def _decide_zone(self, zone: ZoneMaster | None, now: Now) -> None:
        """Look only at the zone that has changed.

        With many zones, looking at all of them after each change would take longer than the
        interval between changes.
        """
        if zone is not None and zone.record.uid in self.zones:
            self._cluster.passes_left = 1
            zone.decide(now)
        self._queue.start(now)
        self.next_deadline_ms = min(self.next_deadline_ms, now.boot_ms + DECIDE_MS)

    # --- the shell's side ------------------------------------------------------------------------

    def take_outputs(self) -> Outputs:
        """Take the writes that are not started, the messages that may leave now, and the events.

        All are empty if this master must not lead.
        """
        self._decide_due()
        if self.outdated:
            self._cluster.sends.clear()
            self._cluster.events.clear()
            return Outputs([], [], [])
        writes: list[tuple[Key, Value | None]] = []
        node_writes, zone_writes = self._nodes.writes, self._cluster.zone_writes
        self._older.zones_end([uid for uid, record in zone_writes.items() if record is None])
        for node in sorted(node_writes):
            if NodeKey(node) not in self._writing:
                self._writing.add(NodeKey(node))
                writes.append((NodeKey(node), node_writes.pop(node)))
        for uid in sorted(zone_writes):
            waits = zone_writes[uid] is None and self._older.is_noting(self._writing)
            if ZoneKey(uid) not in self._writing and not waits:
                self._writing.add(ZoneKey(uid))
                writes.append((ZoneKey(uid), zone_writes.pop(uid)))
        for uid in sorted(self.zones):
            for key, rows in self.zones[uid].take_writes():
                self._writing.add(key)
                writes.append((key, rows))
        writes += [(key, None) for key in sorted(self._remains, key=str)]
        self._remains.clear()
        if self._nodes.members_changed:
            self._nodes.members_changed = False
            records = tuple(
                agent.record.as_told()
                for _, agent in sorted(self.agents.items())
                if agent.record is not None
            )
            self._cluster.members_told += 1
            members = Members(self.master_term, records, self._cluster.members_told)
            self._cluster.publish_to_all(members)
            # Members first: an agent takes rows only once its own incarnation is registered.
            self._cluster.sends.sort(key=lambda send: not isinstance(send[1], Members))
        sends, self._cluster.sends = self._cluster.sends, []
        events, self._cluster.events = self._cluster.events, []
        return Outputs(writes, sends, events)

    def written(self, key: Key, value: Value | None, now: Now) -> None:
        """Note that the metastore holds `value` under `key`, so dependent messages may be sent."""
        self._writing.discard(key)
        if isinstance(key, NodeKey):
            self._nodes.written(key.name, value if isinstance(value, NodeRecord) else None)
            self.decide(now)
            return
        zone = self.zones.get(key.uid)
        if isinstance(key, ZoneKey):
            if zone is not None:
                zone.record_written(value if isinstance(value, ZoneRecord) else None, now)
                self._forget_if_gone(zone)
        elif zone is not None and isinstance(value, tuple):
            zone.rows_written(key, value, now)
        elif zone is not None and value is None:
            zone.shard_deleted(key)
        self._decide_zone(zone, now)

    def damaged(self, key: Key, rows: Sequence[DamagedRow]) -> None:
        """Take the invalid rows of what was loaded."""
        if isinstance(key, ShardKey) and key.uid in self.zones:
            self.zones[key.uid].set_aside(key.shard, rows)

    def reloaded(
        self, key: Key, value: Value | None, now: Now, damaged: Sequence[DamagedRow] = ()
    ) -> None:
        """Take the stored value, after a write that failed or whose outcome is unknown."""
        self._writing.discard(key)
        if isinstance(key, NodeKey):
            self._nodes.reloaded(key.name, value if isinstance(value, NodeRecord) else None, now)
        elif isinstance(key, ZoneKey):
            zone = self.zones.get(key.uid)
            if zone is not None:
                zone.record_reloaded(value if isinstance(value, ZoneRecord) else None, now)
                self._forget_if_gone(zone)
        else:
            zone = self.zones.get(key.uid)
            if zone is not None:
                rows = value if isinstance(value, tuple) else ()
                zone.rows_reloaded(key, rows, now, damaged)
            elif key.uid in self._ended and value is not None:
                self._remains.add(key)
        self.decide(now)

    def _forget_if_gone(self, zone: ZoneMaster) -> None:
        if zone.is_gone:
            uid = zone.record.uid
            self.zones.pop(uid, None)
            self._cluster.zone_writes.pop(uid, None)
            self._ended.add(uid)
            self._older.zones_end([uid])
            self._cluster.event(uid, None, Reason.ZONE_DELETED, f"zone {zone.record.name}")
            self.retries.forget_zone(uid)
            self._ports.give()  # another zone may wait for its port

    def is_zone_gone(self, uid: str) -> bool:
        """Return whether a deleted zone has no rows, and no data at any agent that is online."""
        zone = self.zones.get(uid)
        return zone is None or zone.is_deleted_here

    def status(self) -> ClusterStatus:
        """Return the state of the cluster as users see it."""
        primaries: dict[str, int] = {}
        owners: dict[str, int] = {}
        for zone in self.zones.values():
            for counts, of_zone in zip((primaries, owners), zone.view.roles(), strict=True):
                for node, count in of_zone.items():
                    counts[node] = counts.get(node, 0) + count
        nodes = self._nodes.statuses(primaries, owners)
        zones = tuple(self.zones[uid].status() for uid in sorted(self.zones))
        return ClusterStatus(self.master_term, nodes, zones)

    def check(self) -> None:
        """Raise InvariantError unless every row is well-formed. For tests and the simulator."""
        for zone in self.zones.values():
            for part in zone.parts.values():
                check_row(part.row)
