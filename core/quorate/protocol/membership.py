"""Which agents are there: registration, silence, return, leaving.  The master's view of nodes.

A node is online from the moment its incarnation is registered durably until it has been silent for
failureDetectionTimeout, or its process is known to be gone.  A master that has just started judges
nobody before one such time of its own.  Source: docs/protocol.md, section 6.
"""

from __future__ import annotations

import msgspec

from quorate.facts.time import Now
from quorate.facts.topology import Holder, NodeRecord
from quorate.protocol.messages import CopyReport, Hello, Refused


class Agent:
    """One registered (or registering) agent.  `record` is what the metastore holds; `reported` the
    zones whose copies it told of, `told_all` whether that was all it has."""

    __slots__ = (
        "connected",
        "draining",
        "gone",
        "heard_ms",
        "inventory",
        "leaving",
        "left_ms",
        "online",
        "pending",
        "record",
        "reported",
        "told_all",
    )

    def __init__(self, record: NodeRecord | None, heard_ms: int) -> None:
        self.record = record
        self.pending: NodeRecord | None = None
        self.connected = False
        self.online = False
        self.gone = False
        self.leaving = False
        self.draining = False
        self.heard_ms = heard_ms
        self.left_ms = -1
        self.reported: set[str] = set()
        self.told_all = False
        self.inventory: dict[str, dict[int, CopyReport]] = {}

    def forget_reports(self) -> None:
        """What it told of its copies is old: it will be asked again."""
        self.reported.clear()
        self.told_all = False


def record_of(hello: Hello) -> NodeRecord:
    """The registration an agent's Hello asks for."""
    return NodeRecord(
        hello.node,
        hello.store,
        hello.incarnation,
        hello.host,
        hello.peer_port,
        hello.client_host,
        hello.failure_domain,
        hello.weight,
    )


def refusal(agent: Agent | None, hello: Hello) -> Refused | None:
    """Why this agent must not take part; None when it may."""
    if agent is None or agent.record is None:
        return None
    known = agent.record
    if known.store == hello.store and hello.incarnation < known.incarnation:
        return Refused(
            f"node {hello.node}: its data folder is an older image of itself (incarnation "
            f"{hello.incarnation}, registered is {known.incarnation}); it must be set aside",
            "older-image",
        )
    if agent.online and agent.connected and known.store != hello.store:
        return Refused(
            f"node {hello.node}: another process of that name is online with store {known.store}; "
            "start this one under another --name",
            "name-in-use",
        )
    return None


class ZoneNodes:
    """The agents as one zone sees them (its copies live in stores of its own kind)."""

    def __init__(self, agents: dict[str, Agent], zone: str, persistent: bool) -> None:
        self._agents = agents
        self._zone = zone
        self._persistent = persistent

    def holder(self, node: str) -> Holder | None:
        """The online incarnation of `node`."""
        agent = self._agents.get(node)
        if agent is None or not agent.online or agent.record is None:
            return None
        return agent.record.holder(self._persistent)

    def gone(self, node: str, store: str) -> bool:
        """Whether `node` was judged to have left, or is online with another store than `store`."""
        agent = self._agents.get(node)
        if agent is None or agent.record is None:
            return True
        if agent.online:
            return agent.record.zone_store(self._persistent) != store
        return agent.left_ms >= 0

    def reported(self, node: str) -> bool:
        """Whether `node` told its inventory of this zone, or has left."""
        agent = self._agents.get(node)
        if agent is None:
            return True
        return self._zone in agent.reported or (not agent.online and agent.left_ms >= 0)

    def report(self, node: str, partition: int) -> CopyReport | None:
        """What `node` last told of its copy."""
        agent = self._agents.get(node)
        return agent.inventory.get(self._zone, {}).get(partition) if agent else None

    def leaving(self, node: str) -> bool:
        """Whether `node` asked for its primaries to be taken over."""
        agent = self._agents.get(node)
        return agent is not None and (agent.leaving or agent.draining)


def left(record: NodeRecord, now: Now) -> NodeRecord:
    """The registration of a node that has left now."""
    return msgspec.structs.replace(record, left_since_ms=now.wall_ms)
