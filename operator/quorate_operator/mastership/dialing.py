"""The addresses that the master dials: the declared ones, and those of agents with copies.

A user who removes an address wants one agent less.  That agent is drained first, as by hand, and
dialed until no row names it; then its registration is removed.  The next step always follows from
the declared addresses, the links and the registry, so a later master continues.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from quorate.facts.addresses import join_address, split_address
from quorate.facts.time import Now
from quorate.facts.topology import NodeRecord
from quorate.protocol.master.master import Master
from quorate_link import DialedPeer, Dialer, Endpoint, Link

_log = logging.getLogger("quorate.dialing")


class Dialing:
    """The dialed addresses of one cluster.  `links` are the runner's, by node."""

    def __init__(self, cluster: str, links: Mapping[str, Link]) -> None:
        self.declared: tuple[str, ...] = ()
        self.peers: dict[str, DialedPeer] = {}
        self._cluster = cluster
        self._links = links
        self._reached: dict[str, str] = {}  # address -> the node last reached there
        self._drained: set[str] = set()  # because their address is no longer declared
        self.kept: dict[str, str] = {}
        """Agents that are no longer declared and cannot be drained -> why."""

    def declare(self, addresses: Sequence[str], endpoint: Endpoint) -> None:
        """Set the declared addresses and dial them."""
        self.declared = tuple(addresses)
        for address in self.declared:
            self._dial(address, endpoint)

    def _dial(self, address: str, endpoint: Endpoint) -> None:
        if address not in self.peers:
            self.peers[address] = endpoint.dial(*split_address(address))

    def reached(self, link: Link, node: str) -> None:
        """Note that an agent answered over this link."""
        if link.peer is not None:
            self._reached[address_of(link.peer)] = node

    def look(self, master: Master, endpoint: Endpoint, now: Now) -> None:
        """Drain agents that are no longer declared; stop dialing those that hold nothing."""
        wanted = {*self.declared}
        held = {n for n in master.agents if any(z.names(n) for z in master.zones.values())}
        for address in sorted({*self.peers} - wanted):
            node = self._reached.get(address, "")
            at = self._address(node)
            if at in (None, address) and node in held:
                self._drain(master, node, at, now)
            else:
                endpoint.undial(self.peers.pop(address))
                self._reached.pop(address, None)
                if at in (None, address) and node in master.agents:
                    master.forget(node, now)
                    self._drained.discard(node)
                    _log.info("cluster %s: %s has no copies and is released", self._cluster, node)
        for node in list(self.kept):
            if self._address(node) in wanted or node not in master.agents:
                del self.kept[node]
        for node in sorted(self._drained):
            if self._address(node) in wanted:  # declared again
                self._drained.discard(node)
                master.drain(node, False, now)
        if all(peer.link is not None for peer in self.peers.values()):
            # Draining nodes without a link were no longer declared under an earlier master.
            for node in sorted(held - {*self._links}):
                record = master.agents[node].record
                if record is not None and record.draining:
                    self._dial(_registered_at(record), endpoint)
                    self._drained.add(node)

    def _drain(self, master: Master, node: str, at: str | None, now: Now) -> None:
        agent = master.agents[node]
        if at is None or agent.drain_wanted or not agent.online:
            return  # a silent agent may have moved to another, declared address
        refused = master.drain(node, True, now)
        if not refused:
            self._drained.add(node)
            self.kept.pop(node, None)
            _log.info("cluster %s: %s is no longer declared, and is drained", self._cluster, node)
        elif self.kept.get(node) != refused:
            self.kept[node] = refused
            _log.warning("cluster %s: stays a member: %s", self._cluster, refused)

    def _address(self, node: str) -> str | None:
        """Return the address at which the node is connected now, None if it is not."""
        link = self._links.get(node)
        return address_of(link.peer) if link is not None and link.peer is not None else None


def address_of(peer: Dialer) -> str:
    """Return HOST:PORT as users write it."""
    return join_address(*peer.address)


def _registered_at(record: NodeRecord) -> str:
    return join_address(record.host, record.peer_port)
