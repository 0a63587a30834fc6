"""The nodes and their slots as clients see them: CLUSTER SLOTS, SHARDS, NODES, INFO and MOVED.

Only primaries are shown, each as a master.  Backups are left out on purpose: a node is primary of
some partitions and backup of others, and redis-py keeps the role it saw first, so it would leave
such a node out of DBSIZE, SCAN and FLUSHALL.
"""

from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha1

from quorate.facts.addresses import is_ip
from quorate.facts.keyspace import SLOT_COUNT, slot_shift
from quorate_agent.resp.replies import array, bulk, integer, map_, moved, verbatim


@dataclass(frozen=True)
class ClusterNode:
    """A node's client port for one zone.  `host`: an address or a DNS name."""

    name: str
    host: str
    port: int

    @cached_property
    def id(self) -> bytes:
        """The node's id in CLUSTER replies: 40 hex digits."""
        return sha1(self.name.encode(), usedforsecurity=False).hexdigest().encode()

    @cached_property
    def endpoint(self) -> bytes:
        """`host:port`."""
        return f"{self.host}:{self.port}".encode()


@dataclass(frozen=True)
class ClusterView:
    """One state of the zone's ownership.

    Replies are encoded once and kept: a table in random order takes megabytes, and every client
    asks for it."""

    me: ClusterNode
    nodes: tuple[ClusterNode, ...]  # all data nodes, this one included
    primaries: tuple[int, ...]  # per partition an index into nodes; without gaps
    epoch: int = 0
    _kept: dict[tuple[str, bool], bytes] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def _shift(self) -> int:
        return slot_shift(len(self.primaries))

    @cached_property
    def ranges(self) -> tuple[tuple[int, int, ClusterNode], ...]:
        """(first slot, last slot, node), ascending, covering all slots, as few as possible."""
        width = SLOT_COUNT // len(self.primaries)
        merged: list[tuple[int, int, ClusterNode]] = []
        since = 0
        for partition, index in enumerate(self.primaries):
            if index != self.primaries[since]:
                node = self.nodes[self.primaries[since]]
                merged.append((since * width, partition * width - 1, node))
                since = partition
        merged.append((since * width, SLOT_COUNT - 1, self.nodes[self.primaries[since]]))
        return tuple(merged)

    def slot_node(self, slot: int) -> ClusterNode:
        """Return the node that serves `slot`."""
        return self.nodes[self.primaries[slot >> self._shift]]

    def moved(self, slot: int) -> bytes:
        """Return the redirection to that node."""
        node = self.slot_node(slot)
        return moved(slot, node.host, node.port)

    def slots(self, resp3: bool) -> bytes:
        """CLUSTER SLOTS"""
        key = ("slots", resp3)
        if key not in self._kept:
            nodes = {
                node.name: array(
                    [bulk(node.host.encode()), integer(node.port), bulk(node.id), map_((), resp3)]
                )
                for node in self.nodes
            }
            self._kept[key] = array(
                [
                    array([integer(first), integer(last), nodes[node.name]])
                    for first, last, node in self.ranges
                ]
            )
        return self._kept[key]

    def shards(self, resp3: bool) -> bytes:
        """CLUSTER SHARDS: one shard for each node, even for one that serves nothing"""
        key = ("shards", resp3)
        if key not in self._kept:
            self._kept[key] = array([self._shard(node, resp3) for node in self.nodes])
        return self._kept[key]

    def node_lines(self, resp3: bool) -> bytes:
        """CLUSTER NODES"""
        key = ("nodes", resp3)
        if key not in self._kept:
            lines = [self._node_line(node) for node in self.nodes]
            self._kept[key] = verbatim(b"".join(lines), resp3)
        return self._kept[key]

    def info(self, slots_served: int, resp3: bool) -> bytes:
        """CLUSTER INFO, while so many slots are served"""
        serving = len({node.name for _, _, node in self.ranges})
        facts = {
            "cluster_state": "ok" if slots_served == SLOT_COUNT else "fail",
            "cluster_slots_assigned": SLOT_COUNT,
            "cluster_slots_ok": slots_served,
            "cluster_slots_pfail": 0,
            "cluster_slots_fail": SLOT_COUNT - slots_served,
            "cluster_known_nodes": len(self.nodes),
            "cluster_size": serving,
            "cluster_current_epoch": self.epoch,
            "cluster_my_epoch": self.epoch,
            "cluster_stats_messages_sent": 0,
            "cluster_stats_messages_received": 0,
            "total_cluster_links_buffer_limit_exceeded": 0,
        }
        text = "".join(f"{name}:{value}\r\n" for name, value in facts.items())
        return verbatim(text.encode(), resp3)

    def _ranges_of(self, node: ClusterNode) -> list[tuple[int, int]]:
        return self._ranges_by_name.get(node.name, [])

    @cached_property
    def _ranges_by_name(self) -> dict[str, list[tuple[int, int]]]:
        found: dict[str, list[tuple[int, int]]] = {}
        for first, last, node in self.ranges:
            found.setdefault(node.name, []).append((first, last))
        return found

    def _shard(self, node: ClusterNode, resp3: bool) -> bytes:
        bounds = [integer(slot) for range_ in self._ranges_of(node) for slot in range_]
        host = bulk(node.host.encode())
        shown = map_(
            (
                (bulk(b"id"), bulk(node.id)),
                (bulk(b"port"), integer(node.port)),
                (bulk(b"ip"), host),
                (bulk(b"endpoint"), host),
                *(() if is_ip(node.host) else ((bulk(b"hostname"), host),)),
                (bulk(b"role"), bulk(b"master")),
                (bulk(b"replication-offset"), integer(0)),
                (bulk(b"health"), bulk(b"online")),
            ),
            resp3,
        )
        return map_(((bulk(b"slots"), array(bounds)), (bulk(b"nodes"), array([shown]))), resp3)

    def _node_line(self, node: ClusterNode) -> bytes:
        flags = b"myself,master" if node.name == self.me.name else b"master"
        ranges = [
            b" %d" % first if first == last else b" %d-%d" % (first, last)
            for first, last in self._ranges_of(node)
        ]
        # The port behind `@` is Redis' cluster bus; 0 says that there is none.
        return b"%b %b@0 %b - 0 0 %d connected%b\n" % (
            node.id,
            node.endpoint,
            flags,
            self.epoch,
            b"".join(ranges),
        )
