"""The rules for registering under a node's name, and what is known of an agent.

This includes what each zone knows of it (ZoneNodes). node_registry.py decides about agents that
come and go. Source: docs/protocol.md, section 7.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

import msgspec

from quorate.facts.addresses import join_address
from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.facts.topology import Happening, Holder, NodeRecord, Voter
from quorate.facts.zone import RESETS_FORMAT
from quorate.protocol.messages.handshake import Hello, RefusalCode, Refused
from quorate.protocol.messages.master import CopyReport

FOREVER_MS = 1 << 60
"""Longer ago, or later, than anything that happens."""


class Past(NamedTuple):
    """A change of the topology, as it was last stored, and when it was by this master's clock.

    `at_ms`: on the boot clock; negative if it was before the machine's start.
    """

    stored: Happening
    at_ms: int

    def aged(self, now: Now) -> Happening:
        """Return it with its age of now."""
        return msgspec.structs.replace(self.stored, age_ms=max(now.boot_ms - self.at_ms, 0))


class KnownAgent:
    """One registered (or registering) agent.

    - `record`: the registration that the metastore holds. `newest`: the one last written, perhaps
      still on its way. `pending`: the one that must be written before the agent takes part.
      `removing`: the registration is to be removed.
    - `drain_wanted`, `external_host`: written with every registration. `external_host` is where
      clients outside reach it; `awaits_external`: the operator tells it, and not the agent.
    - `said_domain`, `told_domain`: the failure domain by its own word and by the operator's, which
      tells it only of agents that are `in_pod`. `said_attributes`, `said_profiles`: by its own
      word, or as registered until it greets. `pod`: what the operator told of its pod.
    - `followed`: its former stores, which were followed by others. `unrecorded`: of the store that
      it has now; see NodeRecord.
    - `inventory`: its reported copies by zone. `reported`: the zones whose copies it has reported.
      `told_all`: whether it has reported everything. `rows`: what it reported of zones with lost
      rows, by partition. `kept`: the zones of which it has anything stored.
    - `has_left`: it was taken for left, and is not back. `since`: when it left or else joined; None
      until its first registration is to be written.
    - `asked_ms`: since when it is expected to report its copies; -1: it is not online.
    - `heard_ping`: the last ping that it answered; 0: none since it greeted.
    - `unreached`: members that it does not reach, by its last report.
    - `cordoned`: it is the last choice as a primary, as long as the caller of
      Master.keep_primaries_off says so.
    """

    __slots__ = (
        "asked_ms",
        "awaits_external",
        "connected",
        "cordoned",
        "drain_wanted",
        "external_host",
        "followed",
        "gone",
        "has_left",
        "heard_ms",
        "heard_ping",
        "in_pod",
        "inventory",
        "kept",
        "leaving",
        "newest",
        "online",
        "pending",
        "pod",
        "record",
        "removing",
        "reported",
        "rows",
        "said_attributes",
        "said_domain",
        "said_profiles",
        "since",
        "told_all",
        "told_domain",
        "unreached",
        "unrecorded",
    )

    def __init__(self, record: NodeRecord | None, heard_ms: int) -> None:
        self.record = record
        self.newest = record
        self.pending: NodeRecord | None = None
        self.connected = False
        self.online = False
        self.gone = False
        self.removing = False
        self.leaving = False
        self.cordoned = False
        self.drain_wanted = record is not None and record.draining
        self.external_host = record.external_host if record is not None else ""
        self.awaits_external = False
        self.in_pod = record is not None and record.client_ports is not None
        domain = record.failure_domain if record is not None else ""
        self.said_domain, self.told_domain = ("", domain) if self.in_pod else (domain, "")
        self.said_attributes = record.attributes if record is not None else {}
        self.said_profiles = record.storage_profiles if record is not None else ()
        self.pod = record.pod if record is not None else None
        self.followed: set[str] = set()
        self.unrecorded = record.unrecorded if record is not None else None
        self.heard_ms = heard_ms
        self.heard_ping = 0
        self.has_left = False
        self.since: Past | None = None
        self.asked_ms = -1
        self.reported: set[str] = set()
        self.told_all = False
        self.unreached: frozenset[str] = frozenset()
        self.inventory: dict[str, dict[int, CopyReport]] = {}
        self.rows: dict[str, dict[int, CopyReport]] = {}
        self.kept: frozenset[str] = frozenset()

    @property
    def draining(self) -> bool:
        """Whether it is to hold no copies, as written in its registration."""
        return self.record is not None and self.record.draining

    def comes_with(self, store: str) -> None:
        """Note its store: a new one may have data of zones that were deleted before it came."""
        if self.newest is None or self.newest.store != store:
            self.unrecorded = None

    def take_unrecorded(self, stored: NodeRecord | None) -> None:
        """Take what the metastore holds, if it is of its store, besides what is known here.

        What is known here may be what could not be written. A store that is to be registered in
        place of another is still to be compared.
        """
        if stored is None:
            self.unrecorded = None
        elif self.newest is not None and self.newest.store == stored.store:
            both = [each for each in (stored.unrecorded, self.unrecorded) if each is not None]
            self.unrecorded = tuple(dict.fromkeys(chain(*both))) if both else None

    def note_unrecorded(self, uid: str, most: int) -> None:
        """Note a deleted zone; of more than `most`, forget the first of which it has no data."""
        noted = [*filter(lambda each: each != uid, self.unrecorded or ()), uid]
        gone = [each for each in noted if self.told_all and each not in self.kept]
        forgotten = {*gone[: max(len(noted) - most, 0)]}
        self.unrecorded = tuple(each for each in noted if each not in forgotten)

    def forget_reports(self) -> None:
        """Forget what it reported of its copies and of other agents: it will be asked again."""
        self.asked_ms = -1
        self.reported.clear()
        self.rows.clear()
        self.unreached = frozenset()
        self.told_all = False


def record_of(hello: Hello) -> NodeRecord:
    """Return the registration that an agent's Hello asks for."""
    return NodeRecord(
        hello.node,
        hello.store,
        hello.incarnation,
        hello.host,
        hello.peer_port,
        hello.client_host,
        hello.failure_domain,
        hello.weight,
        process=hello.process,
        client_ports=hello.client_ports,
        external_host=hello.external_host or "",
        attributes=hello.attributes,
        storage_profiles=hello.storage_profiles,
        frame_format=hello.format_version,
    )


def refusal(agent: KnownAgent | None, hello: Hello) -> Refused | None:
    """Return why this agent must not take part; None if it may."""
    known = None if agent is None else agent.pending or agent.record
    if agent is None or known is None:
        return None
    if is_same_process(known, hello):
        return _ended(hello) if known.ended else None
    is_there = not agent.has_left or (agent.pending is not None and agent.connected)
    if (known.store, known.incarnation) == (hello.store, hello.incarnation):
        return _copied_folder(hello) if is_there else _older_twin(hello)
    has_moved = (known.host, known.peer_port) != (hello.host, hello.peer_port)
    if known.store == hello.store and hello.incarnation > known.incarnation:
        # No other process can be at the same IP address, so the old one is gone. At another
        # address, wait until the old one has left. An announced DNS name is the same for both, and
        # tells nothing: Kubernetes is trusted to run one pod of an agent at a time.
        return _still_there(known, hello) if is_there and has_moved else None
    if known.store == hello.store and hello.incarnation < known.incarnation:
        return older_image(hello, known.incarnation)
    if agent.online and agent.connected and known.store != hello.store:
        return Refused(
            f"node {hello.node}: another process of that name is online with store {known.store}; "
            "start this one under another --name",
            RefusalCode.NAME_IN_USE,
        )
    return None


def _ended(hello: Hello) -> Refused:
    """Return the refusal of a process whose votes others may have done without by now."""
    return Refused(
        f"node {hello.node}: Kubernetes has shown that this process (incarnation "
        f"{hello.incarnation}) ended; start it again",
        RefusalCode.OLDER_PROCESS,
    )


def is_same_process(known: NodeRecord | Hello, hello: Hello) -> bool:
    """Return whether the process that greets is the known one."""
    return (known.store, known.incarnation, known.process) == (
        hello.store,
        hello.incarnation,
        hello.process,
    )


def older_image(hello: Hello, registered: int) -> Refused:
    """Return the refusal of a process over a store of which a later incarnation is known."""
    return Refused(
        f"node {hello.node}: its data folder is an older image of itself (incarnation "
        f"{hello.incarnation}, but {registered} is registered); it must be set aside",
        RefusalCode.OLDER_IMAGE,
    )


def _copied_folder(hello: Hello) -> Refused:
    """Return the refusal of a process whose incarnation another, perhaps online, has."""
    return Refused(
        f"node {hello.node}: incarnation {hello.incarnation} of store {hello.store} is registered "
        "for another process, so the data folder of this one is a copy; stop it, then start it "
        "with another --name and an empty --data folder",
        RefusalCode.COPIED_FOLDER,
    )


def _still_there(known: NodeRecord, hello: Hello) -> Refused:
    """Return the refusal of a newer process at another address while the older one may be alive.

    It may be over a copy of the folder.
    """
    return Refused(
        f"node {hello.node}: incarnation {known.incarnation} of store {hello.store} is still online"
        f" at {join_address(known.host, known.peer_port)}; this process is accepted once that one"
        " has left, unless its data folder is a copy: two processes must not share a name and"
        " store",
        RefusalCode.NAME_IN_USE,
    )


def _older_twin(hello: Hello) -> Refused:
    """Return the refusal of a process whose incarnation another process had, which has left."""
    return Refused(
        f"node {hello.node}: incarnation {hello.incarnation} of store {hello.store} was another "
        "process, so this data folder is a copy or an older image; it must be set aside",
        RefusalCode.OLDER_IMAGE,
    )


class ZoneRefusal(NamedTuple):
    """A process's report that it cannot open a zone, first made at `since_ms`, and the reason."""

    process: str
    reason: str
    since_ms: int


class ZoneNodes:
    """The agents as one zone sees them (its copies live in stores of its own kind).

    An agent that refuses the zone has nothing of it open: for the zone it has left.
    """

    def __init__(self, agents: dict[str, KnownAgent], zone: str, persistent: bool) -> None:
        self._agents = agents
        self._zone = zone
        self._persistent = persistent
        self._refusals: dict[str, ZoneRefusal] = {}

    def refused(self, node: str, reason: str, now: Now) -> bool:
        """Note that `node` cannot open the zone. Return whether that is new."""
        agent = self._agents.get(node)
        if agent is None or agent.record is None:
            return False
        known = self.refusal(node)
        since_ms = now.boot_ms if known is None else known.since_ms
        self._refusals[node] = ZoneRefusal(agent.record.process, reason, since_ms)
        return known is None

    def opened(self, node: str) -> bool:
        """Note that `node` has the zone open. Return whether it refused the zone before."""
        return self._refusals.pop(node, None) is not None

    def refusal(self, node: str) -> ZoneRefusal | None:
        """Return why the present process of `node` refuses the zone; None if it does not."""
        refusal = self._refusals.get(node)
        agent = self._agents.get(node)
        if refusal is None or agent is None or agent.record is None:
            return None
        return refusal if agent.record.process == refusal.process else None

    def refusals(self) -> tuple[tuple[str, str], ...]:
        """Return (node, reason) of each agent that is online and refuses the zone."""
        told = [(node, self.refusal(node)) for node in sorted(self._refusals)]
        return tuple((n, each.reason) for n, each in told if each and self._agents[n].online)

    def holder(self, node: str) -> Holder | None:
        """Return the online incarnation of `node`; None if it is offline or refuses the zone."""
        agent = self._agents.get(node)
        if agent is None or not agent.online or agent.record is None or self.refusal(node):
            return None
        return agent.record.holder(self._persistent)

    def voter_holder(self, voter: Voter) -> Holder | None:
        """Return the online incarnation of the voter's node with the very store that votes."""
        holder = self.holder(voter.node)
        return holder if holder is not None and holder.store == voter.store else None

    def holders(self) -> tuple[Holder | None, ...]:
        """Return `holder` of each agent, in the order of their names."""
        return tuple(self.holder(node) for node in sorted(self._agents))

    def gone(self, node: str, store: str) -> bool:
        """Return whether `node` has left, refuses the zone, or is online with another store.

        It has also left if it is not registered.
        """
        agent = self._agents.get(node)
        if agent is None or agent.record is None or self.refusal(node):
            return True
        if agent.online:
            return agent.record.zone_store(self._persistent) != store
        return agent.has_left

    def unchanged_ms(self, voter: Voter, now: Now) -> int:
        """Return how long ago the voter's node last joined, left, or began to refuse the zone."""
        agent = self._agents.get(voter.node)
        if agent is None or agent.since is None:
            return FOREVER_MS
        refusal = self.refusal(voter.node)
        if refusal is not None and agent.online:
            return max(now.boot_ms - refusal.since_ms, 0)
        return agent.since.aged(now).age_ms

    def was_there(self, voter: Voter, lost: Voter, now: Now) -> bool:
        """Return whether the voter's node last joined before `lost` was lost.

        Joins and leaves are numbered over all masters. Of a refusal only the time is known.
        """
        there, gone = self._agents.get(voter.node), self._agents.get(lost.node)
        if there is None or there.since is None or gone is None or gone.since is None:
            return False
        if gone.online and self.refusal(lost.node) is not None:
            return self.unchanged_ms(voter, now) >= self.unchanged_ms(lost, now)
        return there.since.stored.revision < gone.since.stored.revision

    def gone_voters(self, row: PartitionRow) -> tuple[str, ...]:
        """Return the row's voters that have left, or whose store is not the one that votes."""
        return tuple(v.node for v in row.voters if self.gone(v.node, v.store))

    def dead_voters(self, row: PartitionRow) -> tuple[str, ...]:
        """Return the voters whose store is gone for good: their node registered another one.

        These include the voters of the row's sets.
        """
        voters = dict.fromkeys(voter for each in row.voter_sets for voter in each)
        return tuple(voter.node for voter in voters if self.is_dead(voter))

    def is_dead(self, voter: Voter) -> bool:
        """Return whether the voter's store is gone for good: its node registered another one."""
        agent = self._agents.get(voter.node)
        record = agent.record if agent is not None else None
        return record is not None and record.zone_store(self._persistent) != voter.store

    def is_lost(self, row: PartitionRow) -> bool:
        """Return whether the stores of all the row's voters are gone for good: its data is lost."""
        return all(self.is_dead(voter) for each in row.voter_sets for voter in each)

    def reported(self, node: str) -> bool:
        """Return whether `node` reported its inventory of the zone, has left, or refuses it."""
        agent = self._agents.get(node)
        if agent is None or self.refusal(node):
            return True
        return self._zone in agent.reported or (not agent.online and agent.has_left)

    def asked_ms(self, node: str) -> int:
        """Return the time since when the inventory of `node` is expected; -1: it is not online."""
        agent = self._agents.get(node)
        return -1 if agent is None else agent.asked_ms

    def heard_ms(self, node: str) -> int:
        """Return when `node` was last heard (boot ms); -1: it is not known."""
        agent = self._agents.get(node)
        return agent.heard_ms if agent is not None else -1

    def is_registered(self, node: str) -> bool:
        """Return whether the metastore holds a registration of `node`."""
        agent = self._agents.get(node)
        return agent is not None and agent.record is not None

    def is_too_old_for_resets(self, node: str) -> bool:
        """Return whether `node` is online and does not know that a reset leaves copies."""
        agent = self._agents.get(node)
        record = agent.record if agent is not None and agent.online else None
        return record is not None and record.frame_format < RESETS_FORMAT

    def registered(self) -> tuple[str, ...]:
        """Return the names of all nodes of which the metastore holds a registration."""
        return tuple(node for node in sorted(self._agents) if self.is_registered(node))

    def has_told(self, voter: Voter) -> bool:
        """Return whether the agent with this very store is online and reported its inventory."""
        agent = self._agents.get(voter.node)
        is_there = self.voter_holder(voter) is not None
        return is_there and agent is not None and self._zone in agent.reported

    def report(self, node: str, partition: int) -> CopyReport | None:
        """Return what `node` last reported of its copy."""
        agent = self._agents.get(node)
        return agent.inventory.get(self._zone, {}).get(partition) if agent else None

    def leaving(self, node: str) -> bool:
        """Return whether other agents that can are to take over the primaries of `node`."""
        agent = self._agents.get(node)
        return agent is not None and (agent.leaving or agent.draining or agent.cordoned)

    def reach_each_other(self, one: str, other: str) -> bool:
        """Return whether neither of the two has reported that it does not reach the other."""
        first, second = self._agents.get(one), self._agents.get(other)
        if first is None or second is None:
            return True
        return other not in first.unreached and one not in second.unreached


def left(record: NodeRecord, wall_ms: int) -> NodeRecord:
    """Return the registration of a node that has left at `wall_ms`."""
    return msgspec.structs.replace(record, left_since_ms=wall_ms)
