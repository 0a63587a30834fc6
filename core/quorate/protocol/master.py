"""What the master decides: who is there, who owns what, which migration runs next.

One object per cluster, sans-I/O: the operator's shell hands in agents, messages, zones and time,
performs `writes` under compare-and-set, and reports each as written or reloaded; what depends on a
write is sent only after it.  Decisions about one partition are pure (migration_commit.py); this
object keeps the parts, groups rows into one write per shard, and publishes.
Source: docs/protocol.md, section 6.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from quorate.facts.partition_row import check_row
from quorate.facts.time import Now
from quorate.facts.topology import NodeRecord
from quorate.facts.zone import ZoneRecord
from quorate.protocol.membership import Agent, left, record_of, refusal
from quorate.protocol.messages import (
    Activated,
    ActivationBlocked,
    AgentReport,
    AskInventory,
    CaughtUp,
    CopyReady,
    Frozen,
    Hello,
    Inventory,
    MasterPing,
    Members,
    Message,
    Prepared,
    Refused,
    RowsStored,
    TransferProgress,
    ZoneReady,
)
from quorate.protocol.metastore import Key, NodeKey, ShardKey, Value, ZoneKey
from quorate.protocol.settings import ProtocolSettings
from quorate.protocol.status import ClusterStatus, NodeStatus
from quorate.protocol.zone_master import ZoneMaster

PING_MS = 500
STALL_MS = 1000


class Event(NamedTuple):
    """Something a user may want to know of a zone."""

    zone: str
    partition: int | None
    reason: str
    message: str
    kind: str = "Normal"


class Outputs(NamedTuple):
    """What the shell must do; sends never depend on the writes beside them."""

    writes: list[tuple[Key, Value | None]]
    sends: list[tuple[str, Message]]
    events: list[Event]


class Master:
    """The deciding half of the operator, for one cluster."""

    def __init__(self, master_term: int, settings: ProtocolSettings, now: Now) -> None:
        self.master_term = master_term
        self.settings = settings
        self.agents: dict[str, Agent] = {}
        self.zones: dict[str, ZoneMaster] = {}
        self.started_ms = now.boot_ms
        self._judged_ms = now.boot_ms
        self.next_deadline_ms = now.boot_ms
        self._sends: list[tuple[str, Message]] = []
        self._events: list[Event] = []
        self._ping = 0
        self._pinged_ms = -(1 << 40)
        self._writing: set[Key] = set()
        self._node_writes: dict[str, NodeRecord | None] = {}
        self._zone_writes: dict[str, ZoneRecord | None] = {}
        self._members_changed = False

    def load(self, snapshot: dict[Key, Value], now: Now) -> None:
        """Take what the metastore holds; nothing is published before the agents have reported."""
        for key, value in snapshot.items():
            if isinstance(key, NodeKey) and isinstance(value, NodeRecord):
                agent = Agent(value, now.boot_ms)
                if value.left_since_ms is not None:
                    agent.left_ms = now.boot_ms - max(0, now.wall_ms - value.left_since_ms)
                self.agents[key.name] = agent
            elif isinstance(key, ZoneKey) and isinstance(value, ZoneRecord):
                self.zones[key.uid] = ZoneMaster(self, value)
                self.zones[key.uid].record_written(value, now)
        for key, value in snapshot.items():
            if isinstance(key, ShardKey) and isinstance(value, tuple) and key.uid in self.zones:
                self.zones[key.uid].take_rows(value, now)
        for zone in self.zones.values():
            zone.keep_ports_of(self.agents)

    # --- agents ----------------------------------------------------------------------------------

    def agent_connected(self, hello: Hello, now: Now) -> None:
        """An agent answered our dial; it is registered before it takes part."""
        agent = self.agents.get(hello.node)
        refused = self.refusal(hello)
        if refused is not None:
            self._sends.append((hello.node, refused))
            return
        if agent is None:
            agent = self.agents[hello.node] = Agent(None, now.boot_ms)
        agent.connected, agent.gone = True, False
        agent.heard_ms = now.boot_ms
        wanted = msgspec.structs.replace(record_of(hello), draining=agent.drain_wanted)
        if agent.record is not None and (
            (agent.record.store, agent.record.incarnation) != (wanted.store, wanted.incarnation)
        ):
            self._set_left(hello.node, agent, now, "a new process")
            if agent.record.store != wanted.store:
                self.event(
                    "",
                    None,
                    "NewStore",
                    f"{hello.node} came back with a new store: it takes no part as its old self; "
                    "where that one has a vote, another agent without a copy takes its place",
                    "Warning",
                )
        if agent.record == wanted and agent.newest == wanted:
            self._welcome(hello.node, agent)
        else:
            self._register(hello.node, agent, wanted)
        self.decide(now)

    def _register(self, node: str, agent: Agent, record: NodeRecord) -> None:
        """It takes part once `record` is written."""
        agent.pending = self._write_node(node, agent, record)

    def _write_node(self, node: str, agent: Agent, record: NodeRecord) -> NodeRecord:
        record = msgspec.structs.replace(record, draining=agent.drain_wanted)
        agent.newest = self._node_writes[node] = record
        return record

    def refusal(self, hello: Hello) -> Refused | None:
        """Why the agent that greets must not take part; None when it may."""
        return refusal(self.agents.get(hello.node), hello)

    def _welcome(self, node: str, agent: Agent) -> None:
        """The agent's incarnation is registered: it takes part."""
        agent.online = agent.connected
        agent.left_ms = -1
        agent.leaving = False
        agent.forget_reports()
        agent.inventory.clear()
        self._members_changed = True
        for zone in self.zones.values():
            zone.topology_changed()
            if zone.is_published(node):
                self._sends.append((node, zone.table_message()))
        self._sends.append((node, AskInventory(self.master_term)))

    def agent_disconnected(self, node: str, process_gone: bool, now: Now) -> None:
        """The link to an agent is down; `process_gone`: its host refuses new connections."""
        agent = self.agents.get(node)
        if agent is None:
            return
        agent.connected = False
        if process_gone:
            agent.gone = True
            if agent.online or agent.left_ms < 0:
                self._set_left(node, agent, now, "its process is gone")
                self.decide(now)

    def _set_left(self, node: str, agent: Agent, now: Now, why: str) -> None:
        agent.online = False
        agent.left_ms = now.boot_ms
        agent.forget_reports()
        agent.pending = None
        if agent.newest is not None:
            self._write_node(node, agent, left(agent.newest, now))
        for zone in self.zones.values():
            zone.topology_changed()
        self.event("", None, "NodeLeft", f"{node} left: {why}", "Warning")

    def _judge(self, now: Now) -> None:
        """Who has been silent for too long; who is back."""
        silence = self.settings.failure_detection_ms
        if now.boot_ms - self._judged_ms > STALL_MS:
            # It was this process that did not run: what the agents said meanwhile is still unread.
            self.started_ms = now.boot_ms
            for zone in self.zones.values():
                zone.stood_still(now)
        self._judged_ms = now.boot_ms
        for node in sorted(self.agents):
            agent = self.agents[node]
            if agent.record is None:
                continue
            since = max(agent.heard_ms, self.started_ms)
            silent = now.boot_ms - since >= silence
            if silent and (agent.online or agent.left_ms < 0):
                self._set_left(node, agent, now, f"silent for {silence} ms")
            elif not silent and not agent.online and agent.connected and agent.pending is None:
                back = msgspec.structs.replace(agent.record, left_since_ms=None)
                self._register(node, agent, back)

    def drain(self, node: str, draining: bool, now: Now) -> str:
        """Move everything off `node` (or stop to); a sentence why not, or empty.

        It begins once it is written, so that it outlives this master."""
        agent = self.agents.get(node)
        if agent is None or agent.newest is None:
            return f"node {node}: not registered"
        if draining:
            others = [
                n for n, a in self.agents.items() if a.online and not a.drain_wanted and n != node
            ]
            for zone in self.zones.values():
                if zone.record.replicas > len(others) and zone.names(node):
                    return (
                        f"node {node}: zone {zone.record.name} needs {zone.record.replicas} agents "
                        f"and {len(others)} would remain; add an agent first"
                    )
        if agent.drain_wanted != draining:
            agent.drain_wanted = draining
            newest = self._write_node(node, agent, agent.newest)
            if agent.pending is not None:
                agent.pending = newest
        self.decide(now)
        return ""

    def forget(self, node: str, now: Now) -> str:
        """Remove the registration of a node that no row names; a sentence why not, or empty.

        If it comes back, it is a new node: not draining, data node at once."""
        agent = self.agents.get(node)
        if agent is None:
            return ""
        held = [z.record.name for z in self.zones.values() if z.names(node)]
        if held:
            return f"node {node}: still holds copies of zone {', '.join(held)}"
        # Nothing that is still heard of it may write its record again.
        agent.online = agent.connected = False
        agent.left_ms = now.boot_ms if agent.left_ms < 0 else agent.left_ms
        agent.pending = agent.newest = None
        self._node_writes[node] = None
        return ""

    # --- messages --------------------------------------------------------------------------------

    def receive(self, node: str, message: Message, now: Now) -> None:
        """One message from a registered agent."""
        agent = self.agents.get(node)
        if agent is None:
            return
        agent.heard_ms = now.boot_ms
        if isinstance(message, AgentReport):
            if message.leaving and not agent.leaving:
                agent.leaving = True
                for each in self.zones.values():
                    each.topology_changed()
            for trouble in message.troubles:
                zone_master = self.zones.get(trouble.zone)
                if zone_master is not None:
                    zone_master.trouble(node, trouble)
            self._judge(now)
            return
        if isinstance(message, Inventory):
            if message.zone:
                known = agent.inventory.setdefault(message.zone, {})
                known.update({copy.partition: copy for copy in message.copies})
            if message.last:
                agent.reported.update(self.zones)
                agent.told_all = True
            self.decide(now)
            return
        zone = self.zones.get(getattr(message, "zone", ""))
        if zone is None:
            return
        match message:
            case Activated():
                zone.activated(node, message, now)
            case ActivationBlocked():
                zone.blocked(node, message)
            case CaughtUp():
                zone.caught_up(node, message)
            case Frozen():
                zone.frozen(node, message)
            case Prepared():
                zone.prepared(message)
            case CopyReady():
                zone.copy_ready(node, message)
            case RowsStored():
                zone.rows_stored(node, message)
            case TransferProgress():
                zone.progress(node, message, now)
            case ZoneReady():
                zone.ready(node, message)
            case _:
                return
        self.decide(now)

    # --- zones -----------------------------------------------------------------------------------

    def set_zone(self, record: ZoneRecord, now: Now) -> None:
        """A zone was declared or changed; `deleting` removes it and its data."""
        zone = self.zones.get(record.uid)
        if zone is None:
            if record.deleting:
                return
            zone = self.zones[record.uid] = ZoneMaster(self, record)
            for agent in self.agents.values():
                if agent.told_all:
                    agent.reported.add(record.uid)  # it cannot have copies of a zone made just now
            self._zone_writes[record.uid] = record
        else:
            wanted = msgspec.structs.replace(record, ports=zone.record.ports)
            if wanted == zone.record:
                return
            zone.record = wanted
            zone.topology_changed()
            self._zone_writes[record.uid] = wanted
        self.decide(now)

    def write_zone(self, record: ZoneRecord) -> None:
        """The zone's record changed by our own doing (its ports)."""
        self._zone_writes[record.uid] = record

    # --- time and decisions ----------------------------------------------------------------------

    def tick(self, now: Now) -> None:
        """Everything that is due by time."""
        if now.boot_ms - self._pinged_ms >= PING_MS:
            self._pinged_ms = now.boot_ms
            self._ping += 1
            for node in sorted(self.agents):
                if self.agents[node].connected:
                    self._sends.append((node, MasterPing(self.master_term, self._ping)))
        self._judge(now)
        self.decide(now)

    def decide(self, now: Now) -> None:
        """Look at every zone; cheap where nothing changed."""
        for uid in sorted(self.zones):
            self.zones[uid].decide(now)
        self.next_deadline_ms = now.boot_ms + 100

    def publish(self, nodes: Iterable[str], message: Message) -> None:
        """Send to all of `nodes` that are connected and registered."""
        for node in nodes:
            agent = self.agents[node]
            if agent.connected and agent.record is not None:
                self._sends.append((node, message))

    def event(
        self, zone: str, partition: int | None, reason: str, message: str, kind: str = "Normal"
    ) -> None:
        """Note something for users."""
        self._events.append(Event(zone, partition, reason, message, kind))

    # --- the shell's side ------------------------------------------------------------------------

    def take_outputs(self) -> Outputs:
        """Writes not yet under way, messages that may leave now, events."""
        writes: list[tuple[Key, Value | None]] = []
        for node in sorted(self._node_writes):
            if NodeKey(node) not in self._writing:
                self._writing.add(NodeKey(node))
                writes.append((NodeKey(node), self._node_writes.pop(node)))
        for uid in sorted(self._zone_writes):
            if ZoneKey(uid) not in self._writing:
                self._writing.add(ZoneKey(uid))
                writes.append((ZoneKey(uid), self._zone_writes.pop(uid)))
        for uid in sorted(self.zones):
            for key, rows in self.zones[uid].take_writes():
                self._writing.add(key)
                writes.append((key, rows))
        if self._members_changed:
            self._members_changed = False
            records = tuple(
                agent.record for _, agent in sorted(self.agents.items()) if agent.record is not None
            )
            self.publish(sorted(self.agents), Members(self.master_term, records))
            # Members first: an agent takes rows only once its own incarnation is registered.
            self._sends.sort(key=lambda send: not isinstance(send[1], Members))
        sends, self._sends = self._sends, []
        events, self._events = self._events, []
        return Outputs(writes, sends, events)

    def written(self, key: Key, value: Value | None, now: Now) -> None:
        """The metastore holds `value` under `key`: what depends on it may be sent."""
        self._writing.discard(key)
        if isinstance(key, NodeKey):
            self._node_written(key.name, value if isinstance(value, NodeRecord) else None)
        elif isinstance(key, ZoneKey):
            zone = self.zones.get(key.uid)
            if zone is not None:
                zone.record_written(value if isinstance(value, ZoneRecord) else None, now)
        else:
            zone = self.zones.get(key.uid)
            if zone is not None and isinstance(value, tuple):
                zone.rows_written(key, value, now)
            elif zone is not None and value is None:
                zone.shard_deleted(key)
        self.decide(now)

    def reloaded(self, key: Key, value: Value | None, now: Now) -> None:
        """A write did not happen, or nobody knows: this is what the metastore holds now."""
        self._writing.discard(key)
        if isinstance(key, NodeKey):
            agent = self.agents.get(key.name)
            record = value if isinstance(value, NodeRecord) else None
            if agent is not None:
                wanted = agent.pending
                self._take_record(agent, record)
                agent.newest = self._node_writes.get(key.name) or record
                if wanted is not None and wanted == record:
                    self._node_written(key.name, record)
                elif wanted is not None:
                    self._register(key.name, agent, wanted)
                elif agent.newest is not None and agent.newest.draining != agent.drain_wanted:
                    self._write_node(key.name, agent, agent.newest)
        elif isinstance(key, ZoneKey):
            zone = self.zones.get(key.uid)
            if zone is not None:
                zone.record_reloaded(value if isinstance(value, ZoneRecord) else None, now)
        else:
            zone = self.zones.get(key.uid)
            if zone is not None:
                zone.rows_reloaded(key, value if isinstance(value, tuple) else (), now)
        self.decide(now)

    def _node_written(self, node: str, record: NodeRecord | None) -> None:
        agent = self.agents.get(node)
        if agent is None:
            return
        if record is None:
            del self.agents[node]
            for zone in self.zones.values():
                zone.keep_ports_of(self.agents)
            self._members_changed = True
            return
        self._take_record(agent, record)
        if agent.pending == record:
            agent.pending = None
            self._welcome(node, agent)
        self._members_changed = True

    def _take_record(self, agent: Agent, record: NodeRecord | None) -> None:
        before, agent.record = agent.draining, record
        if agent.draining != before:
            for zone in self.zones.values():
                zone.topology_changed()

    def delete_zone_record(self, uid: str) -> None:
        """Nobody has data of the deleted zone any more: its record goes too."""
        self._zone_writes[uid] = None

    def is_zone_gone(self, uid: str) -> bool:
        """Whether rows and data of a deleted zone are gone wherever an agent is online."""
        zone = self.zones.get(uid)
        return zone is None or zone.is_deleted_here

    def status(self) -> ClusterStatus:
        """Everything, as users see it."""
        primaries: dict[str, int] = {}
        owners: dict[str, int] = {}
        for zone in self.zones.values():
            for part in zone.parts.values():
                for node in part.row.owners:
                    owners[node] = owners.get(node, 0) + 1
                if part.row.replicas[0] is not None:
                    first = part.row.replicas[0]
                    primaries[first] = primaries.get(first, 0) + 1
        nodes = tuple(
            NodeStatus(
                name,
                agent.record.store,
                agent.record.incarnation,
                agent.online,
                _agent_state(agent),
                f"{agent.record.host}:{agent.record.peer_port}",
                agent.record.failure_domain,
                primaries.get(name, 0),
                owners.get(name, 0),
                agent.record.left_since_ms,
            )
            for name, agent in sorted(self.agents.items())
            if agent.record is not None
        )
        zones = tuple(self.zones[uid].status() for uid in sorted(self.zones))
        return ClusterStatus(self.master_term, nodes, zones)

    def check(self) -> None:
        """Every row is well-formed (called by tests and the simulator after each event)."""
        for zone in self.zones.values():
            for part in zone.parts.values():
                check_row(part.row)


def _agent_state(agent: Agent) -> str:
    if agent.draining:
        return "Draining"
    if agent.leaving:
        return "Leaving"
    return "Online" if agent.online else "Offline"
