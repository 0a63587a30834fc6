"""The registry of agents: which are registered, online, left or draining, and what is written.

    unknown --Hello--> pending --written--> online --silent, gone or followed--> left
                          ^--------------------- back ---------------------------'

No agent takes part before the metastore holds its registration. An agent is online from then until
it has been silent for `failure_detection_ms`, or its process is known to be gone. A master that has
just started judges no agent before `failure_detection_ms` of its own. admission.py has the rules
of which agents may take part. Source: docs/protocol.md, section 7.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from quorate.facts.addresses import join_address
from quorate.facts.time import Now
from quorate.facts.topology import Happening, NodeRecord, PodFacts
from quorate.facts.zone import NEVER_MS, ZoneRecord
from quorate.protocol.master.admission import Admission
from quorate.protocol.master.told_places import ToldPlaces
from quorate.protocol.members.cluster import Cluster
from quorate.protocol.members.membership import (
    KnownAgent,
    Past,
    left,
    record_of,
)
from quorate.protocol.members.zone_ports import ZonePorts
from quorate.protocol.messages.events import Reason
from quorate.protocol.messages.handshake import Hello, RefusalCode, Refused
from quorate.protocol.messages.master import AskInventory
from quorate.protocol.status import NodeStatus
from quorate.protocol.zone_master.zone_master import ZoneMaster

STALL_MS = 1000
"""If `judge` was not called for this long, this process was suspended or overloaded."""

AGES_MS = 15_000
"""How often the ages of joins and leaves are stored while a timer counts from them."""
ALL_AGES_MS = 3_600_000
"""How often they are stored while something waits for a timer that is Never."""


class NodeRegistry:
    """The master's agents. `writes`: registrations to be written; None removes one."""

    def __init__(
        self, cluster: Cluster, zones: Mapping[str, ZoneMaster], ports: ZonePorts, now: Now
    ) -> None:
        self.writes: dict[str, NodeRecord | None] = {}
        self.members_changed = False
        self.admission = Admission(cluster.agents, zones)
        self.places = ToldPlaces(cluster.agents, zones, self.wishes_changed)
        self._cluster = cluster
        self._agents = cluster.agents
        self._zones = zones
        self._ports = ports
        self._started_ms = now.boot_ms
        self._judged_ms = now.boot_ms
        self._ended: Mapping[str, Collection[str]] = {}
        self._aged_ms = self._all_aged_ms = now.boot_ms

    def load(self, record: NodeRecord, now: Now) -> None:
        """Take a registration that the metastore holds."""
        agent = self._agents[record.name] = KnownAgent(record, now.boot_ms)
        self._take_since(agent, record, now)

    # --- who comes and goes ----------------------------------------------------------------------

    def connected(self, hello: Hello, now: Now) -> None:
        """Take the greeting of an agent: refuse it, or register it before it takes part."""
        agent = self._agents.get(hello.node)
        refused = self.admission.refusal(hello)
        if refused is not None:
            self._cluster.send(hello.node, refused)
            return
        if agent is None:
            agent = self._agents[hello.node] = KnownAgent(None, now.boot_ms)
        agent.connected, agent.gone, agent.removing = True, False, False
        agent.heard_ms, agent.heard_ping = now.boot_ms, 0
        self.places.greeted(agent, hello)
        agent.comes_with(hello.store)
        wanted = _with_wishes(record_of(hello), agent)
        if agent.record is not None and (
            (agent.record.store, agent.record.incarnation) != (wanted.store, wanted.incarnation)
        ):
            self._set_left(hello.node, agent, now, "a new process")
            self._cluster.retries.returned(hello.node)
            if agent.record.store != wanted.store:
                agent.followed.add(agent.record.store)
                agent.followed.discard(wanted.store)
                self._cluster.event(
                    "",
                    None,
                    Reason.NEW_STORE,
                    f"{hello.node} came back with a new store: the votes of its old store are "
                    "given up, then it gets new copies",
                    "Warning",
                )
        if agent.record == wanted and agent.newest == wanted:
            self._welcome(hello.node, agent)
        else:
            self._register(hello.node, agent, wanted, now)

    def _welcome(self, node: str, agent: KnownAgent) -> None:
        """Let the agent take part: its incarnation is registered."""
        if agent.connected and not agent.online:
            self._cluster.event("", None, Reason.NODE_JOINED, f"{node} joined")
        agent.online = agent.connected
        agent.has_left = False
        agent.leaving = False
        agent.forget_reports()
        agent.inventory.clear()
        self.members_changed = True
        for zone in self._zones.values():
            zone.topology_changed()
            if zone.is_published:
                self._cluster.send(node, zone.table_message())
        cluster = self._cluster
        cluster.send(node, AskInventory(cluster.master_term, cluster.recovering))

    def disconnected(self, node: str, process_gone: bool, now: Now) -> None:
        """Note a lost link to an agent. `process_gone`: its host refuses new connections."""
        agent = self._agents.get(node)
        if agent is None:
            return
        agent.connected = False
        if process_gone:
            agent.gone = True
            if agent.online or not agent.has_left:
                self._set_left(node, agent, now, "its process has ended")

    def _set_left(self, node: str, agent: KnownAgent, now: Now, why: str) -> None:
        agent.online = False
        if not agent.has_left or agent.since is None:
            agent.since = self._happened(now, now.wall_ms)
        agent.has_left = True
        agent.forget_reports()
        agent.pending = None
        if agent.newest is not None:
            self._write_node(node, agent, left(agent.newest, agent.since.stored.wall_ms))
        for zone in self._zones.values():
            zone.topology_changed()
        self._cluster.event("", None, Reason.NODE_LEFT, f"{node} left: {why}", "Warning")

    def judge(self, now: Now) -> None:
        """Mark agents that are silent for too long as left, and register those that are back."""
        silence = self._cluster.settings.failure_detection_ms
        if now.boot_ms - self._judged_ms > STALL_MS:
            # This process did not run: what agents sent meanwhile is still unread.
            self._started_ms = now.boot_ms
            if now.boot_ms - self._judged_ms >= silence:  # less is a slow machine, not a sleep
                self._pause(now.boot_ms - self._judged_ms, now)
            for zone in self._zones.values():
                zone.stood_still(now)
        self._judged_ms = now.boot_ms
        for node in sorted(self._agents):
            agent = self._agents[node]
            if agent.record is None:
                continue
            if agent.online:  # its messages may be unread after a stall
                asked_ms = agent.asked_ms if agent.asked_ms >= 0 else now.boot_ms
                agent.asked_ms = max(asked_ms, self._started_ms)
            since = max(agent.heard_ms, self._started_ms)
            silent = now.boot_ms - since >= silence
            if silent and (agent.online or not agent.has_left):
                self._set_left(node, agent, now, f"silent for {silence} ms")
            elif node in self._ended and agent.has_left and not agent.connected:
                self._note_ended(node, agent)
            elif not silent and not agent.online and agent.connected and agent.pending is None:
                back = msgspec.structs.replace(agent.record, left_since_ms=None)
                self._register(node, agent, back, now)

    def processes_ended(self, ended: Mapping[str, Collection[str]]) -> None:
        """Take by node the words (`NodeRecord.process`) of processes that have surely ended.

        That of the registered process counts even if it is not shown again: before the node has
        left, a next process may have ended in its place, or the pod may be gone.
        """
        kept = {
            node: (*ended.get(node, ()), agent.newest.process)
            for node, agent in self._agents.items()
            if agent.newest is not None and agent.newest.process in self._ended.get(node, ())
        }
        self._ended = {**ended, **kept}

    def _note_ended(self, node: str, agent: KnownAgent) -> None:
        """Write that the registered process has ended, if that is proven: its memory is gone.

        Only once it has left, so that all that it sent was heard.
        """
        newest, has_memory = (
            agent.newest,
            any(not z.record.persistent for z in self._zones.values()),
        )
        if newest is None or newest.ended or not has_memory or agent.pending:
            return
        if newest.process and newest.process in self._ended[node]:
            self._write_node(node, agent, msgspec.structs.replace(newest, ended=True))
            said = f"{node} has lost its copies in memory with its process: they vote no more"
            self._cluster.event("", None, Reason.MEMORY_GONE, said)

    # --- who is to hold nothing ------------------------------------------------------------------

    def keep_primaries_off(self, nodes: Collection[str]) -> bool:
        """Make exactly these agents the last choice as primaries. Return whether any changed."""
        changed = [
            agent for name, agent in self._agents.items() if agent.cordoned != (name in nodes)
        ]
        for agent in changed:
            agent.cordoned = not agent.cordoned
        if changed:
            for zone in self._zones.values():
                zone.topology_changed()
        return bool(changed)

    def drain(self, node: str, draining: bool) -> str:
        """Start or stop draining `node`. Return a sentence on why that is impossible, or "".

        Draining begins once it is written, so that it outlives this master. The record is written
        even if it does not change, so that the caller can be told when that is done.
        """
        agent = self._agents.get(node)
        if agent is None or agent.newest is None:
            known = ", ".join(sorted(n for n, a in self._agents.items() if a.newest is not None))
            return f"node {node} is not registered: registered nodes are {known or 'none'}"
        if draining and (unknown := self._why_unknown(node)):
            return unknown
        if draining:
            others = [
                n for n, a in self._agents.items() if a.online and not a.drain_wanted and n != node
            ]
            for zone in self._zones.values():
                usable = [n for n in others if zone.is_data_node(n)]
                # Of an agent that is away the copies are missing anyway.
                counted = others if agent.has_left else usable
                if zone.record.replicas > len(counted) and zone.names(node):
                    waits = [n for n in others if n not in usable and self._fits(n, zone)]
                    return (
                        f"node {node}: zone {zone.record.name} needs {zone.record.replicas} agents "
                        f"and {len(counted)} would remain; {_way_out(waits, zone.record)}"
                    )
        agent.drain_wanted = draining
        self._write_wishes(node, agent, agent.newest)
        return ""

    def _why_unknown(self, node: str) -> str:
        """Return that nobody knows whether copies of `node` are needed, if so; else ""."""
        zones = [z.record.name for z in self._zones.values() if z.may_hold(node)]
        if not zones:
            return ""
        return (
            f"node {node}: rows of zone {', '.join(zones)} are not known, and it may have the last"
            " copies of them: wait until they are rebuilt; the zone says which agents that needs"
        )

    def _fits(self, node: str, zone: ZoneMaster) -> bool:
        record = self._agents[node].record
        return record is not None and zone.fitting.fits(record, zone.record)

    def wishes_changed(self, node: str) -> None:
        """Write the registration of `node` again, because what is wanted of it has changed."""
        agent = self._agents.get(node)
        if agent is not None and agent.newest is not None:
            self._write_wishes(node, agent, agent.newest)

    def _write_wishes(self, node: str, agent: KnownAgent, newest: NodeRecord) -> None:
        newest = self._write_node(node, agent, newest)
        if agent.pending is not None:
            agent.pending = newest

    def forget(self, node: str, now: Now) -> str:
        """Remove the registration of a node that no row names.

        Return a sentence on why that is impossible, or "". If the node comes back, it is a new
        node: it is not draining, and joins like any other.
        """
        agent = self._agents.get(node)
        if agent is None:
            return ""
        unknown = self._why_unknown(node)
        if unknown:
            return unknown
        held = [z.record.name for z in self._zones.values() if z.names(node)]
        if held:
            return f"node {node}: still holds copies of zone {', '.join(held)}"
        # No late message or write may write its record again.
        agent.online = agent.connected = False
        agent.has_left = True
        agent.pending = agent.newest = None
        agent.drain_wanted = False
        agent.removing = True
        self.writes[node] = None
        return ""

    # --- what happened, for the timers of zones --------------------------------------------------

    def _happened(self, now: Now, wall_ms: int = 0) -> Past:
        """Return a change of the topology that happens now; `wall_ms`: see Happening."""
        self._cluster.revision += 1
        return Past(Happening(self._cluster.revision, 0, wall_ms), now.boot_ms)

    def _take_since(self, agent: KnownAgent, record: NodeRecord, now: Now) -> None:
        """Take when the agent joined or left from a registration that another master wrote.

        If it does not say so, or says it of an earlier leave, that counts from now: a timer may be
        late, but not early.
        """
        since, left_ms = record.since, record.left_since_ms or 0
        agent.has_left = record.left_since_ms is not None
        if since is None or since.wall_ms != left_ms:
            agent.since = self._happened(now, left_ms)
            return
        self._cluster.revision = max(self._cluster.revision, since.revision)
        agent.since = Past(since, now.boot_ms - since.age_ms)

    def _pause(self, stalled_ms: int, now: Now) -> None:
        """Let no timer count a time in which this process did not run."""
        for agent in self._agents.values():
            if agent.since is not None:
                at_ms = min(agent.since.at_ms + stalled_ms, now.boot_ms)
                agent.since = agent.since._replace(at_ms=at_ms)

    def store_ages(self, now: Now) -> None:
        """Store, now and then, how long ago the joins and leaves were that timers count from.

        The next master counts on from there. So a timer is late by at most this interval and the
        time without a master, and never early. What waits for a timer that is Never is stored, too,
        but rarely: the zone may get another time.
        """
        if now.boot_ms - self._aged_ms < AGES_MS:
            return
        self._aged_ms = now.boot_ms
        awaited = {name for zone in self._zones.values() for name in zone.timers.awaited}
        if now.boot_ms - self._all_aged_ms >= ALL_AGES_MS:
            self._all_aged_ms = now.boot_ms
            awaited |= {n for z in self._zones.values() for t in z.timers.running for n in t.nodes}
        for node in sorted(awaited & self._agents.keys()):
            agent = self._agents[node]
            if agent.since is not None and agent.newest is not None:
                agent.since = agent.since._replace(stored=agent.since.aged(now))
                self._write_wishes(node, agent, agent.newest)

    # --- writes ----------------------------------------------------------------------------------

    def _register(self, node: str, agent: KnownAgent, record: NodeRecord, now: Now) -> None:
        """Write `record`; the agent takes part once it is written. It joins now, unless it is here.

        It joins once, however often its registration has to be written.
        """
        is_back = agent.has_left and record.left_since_ms is None
        if not agent.online and (agent.since is None or is_back) and not agent.pending:
            agent.since = self._happened(now)
        agent.pending = self._write_node(node, agent, record)

    def _write_node(self, node: str, agent: KnownAgent, record: NodeRecord) -> NodeRecord:
        record = _with_wishes(record, agent)
        agent.newest = self.writes[node] = record
        return record

    def written(self, node: str, record: NodeRecord | None) -> None:
        """Take what the metastore holds of `node` now. None: its registration is removed."""
        agent = self._agents.get(node)
        if agent is None:
            return
        if record is None:
            if agent.pending is None:
                del self._agents[node]
            else:  # it greeted meanwhile as a new node; its registration follows
                self._take_record(agent, None)
            for zone in self._zones.values():
                zone.keep_ports_of(self._agents)
            self.members_changed = True
            return
        self._take_record(agent, record)
        if agent.pending == record:
            agent.pending = None
            self._welcome(node, agent)

    def _take_record(self, agent: KnownAgent, record: NodeRecord | None) -> None:
        before, was_draining, agent.record = agent.record, agent.draining, record
        told, told_before = (each and each.as_told() for each in (record, before))
        self.members_changed |= told != told_before
        if record is not None and record.client_ports:
            self._ports.give()
        for zone in self._zones.values():
            if agent.draining != was_draining or _is_elsewhere(before, record, zone):
                zone.topology_changed()

    def reloaded(self, node: str, record: NodeRecord | None, now: Now) -> None:
        """Take the stored registration after a write that failed or whose outcome is unknown."""
        agent = self._agents.get(node)
        if agent is None:
            return
        meant, wanted = agent.newest, agent.pending
        agent.take_unrecorded(record)
        if record is None and self._is_lost(agent):
            assert meant is not None
            self._write_node(node, agent, meant)
            about = f"another client deleted the registration of {node}; it was restored"
            self._cluster.event("", None, Reason.RECORD_RESTORED, about, "Warning")
            return
        if wanted is None and meant is not None and _is_past(record, meant, agent):
            self._write_node(node, agent, meant)  # an earlier master wrote last, or none
            return
        self._take_record(agent, record)
        if agent.removing and record is not None:
            self.writes[node] = None  # its removal was promised
            return
        if record is not None and agent.newest is not None and _is_later(record, agent):
            self._take_later(node, agent, record, now)
            wanted = agent.pending
        agent.newest = self.writes.get(node) or record
        if wanted is not None and wanted == record:
            self.written(node, record)
        elif wanted is not None:
            agent.pending = self._write_node(node, agent, wanted)
        elif agent.newest is not None and agent.newest != _with_wishes(agent.newest, agent):
            self._write_node(node, agent, agent.newest)

    def _take_later(self, node: str, agent: KnownAgent, record: NodeRecord, now: Now) -> None:
        """Give up the earlier process that is known here: another master registered a later one.

        Nothing more is written of the earlier process. Otherwise the next master would take the
        later one's memory for a store that is gone for good.
        """
        self.writes.pop(node, None)
        if agent.newest is None or agent.newest.store != record.store:
            agent.unrecorded = record.unrecorded
        self._take_since(agent, record, now)
        if agent.pending is None:
            return
        agent.pending = None
        agent.connected = False
        reason = (
            f"node {node}: incarnation {record.incarnation} of store {record.store} is registered, "
            "so this process is an earlier one"
        )
        self._cluster.send(node, Refused(reason, RefusalCode.OLDER_PROCESS))

    def _is_lost(self, agent: KnownAgent) -> bool:
        """Return whether a missing registration was not removed by this master."""
        is_meant = agent.newest is not None and agent.pending is None and not agent.removing
        return self._cluster.rebuilds and is_meant

    # --- status ----------------------------------------------------------------------------------

    def statuses(
        self, primaries: Mapping[str, int], owners: Mapping[str, int]
    ) -> tuple[NodeStatus, ...]:
        """Return every registered node as users see it, with its number of primaries and copies."""
        return tuple(
            NodeStatus(
                name,
                agent.record.store,
                agent.record.incarnation,
                agent.online,
                _agent_state(agent),
                join_address(agent.record.host, agent.record.peer_port),
                agent.record.failure_domain,
                primaries.get(name, 0),
                owners.get(name, 0),
                agent.record.left_since_ms,
                agent.record.client_host,
                agent.record.external_host,
                agent.record.attributes,
                agent.record.storage_profiles,
                self._unrecorded(agent),
                agent.draining,
            )
            for name, agent in sorted(self._agents.items())
            if agent.record is not None
        )

    def _unrecorded(self, agent: KnownAgent) -> tuple[str, ...]:
        """Return the zones of which it has data without a record; a recovery makes the records."""
        if self._cluster.recovering or not agent.told_all:
            return ()
        return tuple(sorted(agent.kept.difference(self._zones)))


def _with_wishes(record: NodeRecord, agent: KnownAgent) -> NodeRecord:
    """Return the registration with what is wanted of the agent, whatever its process."""
    pod = agent.pod or PodFacts({})
    return msgspec.structs.replace(
        record,
        draining=agent.drain_wanted,
        external_host=agent.external_host,
        failure_domain=agent.told_domain or agent.said_domain,
        attributes={**(pod.of_node or {}), **pod.of_pod, **agent.said_attributes},
        since=agent.since.stored if agent.since is not None else None,
        storage_profiles=tuple(sorted({*agent.said_profiles, *filter(None, [pod.storage_class])})),
        pod=agent.pod,
        unrecorded=agent.unrecorded,
    )


def _way_out(waits: Sequence[str], zone: ZoneRecord) -> str:
    """Return what lets a zone do with fewer agents; `waits`: those that are no data nodes yet."""
    if not waits:
        return "add an agent first"
    if zone.scale_up_ms >= NEVER_MS:
        return f"{', '.join(waits)} joined: write a time for dataNodesAutoAdjustScaleUpSeconds"
    return f"wait until it may use {', '.join(waits)}"


def _is_elsewhere(before: NodeRecord | None, after: NodeRecord | None, zone: ZoneMaster) -> bool:
    """Return whether other copies of `zone` than before may be meant for the node."""
    if before is None or after is None:
        return False
    if before.ended != after.ended and not zone.record.persistent:
        return True
    did_fit, fits = (zone.fitting.fits(each, zone.record) for each in (before, after))
    return before.failure_domain != after.failure_domain or did_fit != fits


def _is_past(record: NodeRecord | None, meant: NodeRecord, agent: KnownAgent) -> bool:
    """Return whether `record`, as stored, is outdated by `meant`, the intended registration.

    That is so if it is of an earlier process, or if only one of the two says that the node has
    left, or if it does not say that the process has ended. If it is missing or of another store, it
    is outdated if the agent takes part, or if its store was followed.
    """
    if record is None or record.store != meant.store:
        return agent.online or (record is not None and record.store in agent.followed)
    if record.incarnation != meant.incarnation:
        return record.incarnation < meant.incarnation
    has_left = record.left_since_ms is not None
    return has_left != (meant.left_since_ms is not None) or (meant.ended and not record.ended)


def _is_later(record: NodeRecord, agent: KnownAgent) -> bool:
    """Return whether `record` is of a later process than the one known or about to be registered.

    That is so if its incarnation is higher, or if its store is another one and no registration of
    the node is pending here.
    """
    assert agent.newest is not None
    if record.store != agent.newest.store:
        return agent.pending is None
    return record.incarnation > agent.newest.incarnation


def _agent_state(agent: KnownAgent) -> str:
    if not agent.online:
        return "Offline"  # also if it said that it leaves: it did
    if agent.draining:
        return "Draining"
    if agent.leaving:
        return "Leaving"
    return "Cordoned" if agent.cordoned else "Online"
