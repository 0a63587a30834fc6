"""The addresses that the master dials: the declared ones, and those of agents with copies.

A user who removes an address wants one agent less.  That agent is drained first, as by hand, and
dialed until no row names it; then its registration is removed.  The next step always follows from
the declared addresses, the links and the registry, so a later master continues.  An address may
also be removed while no master leads: then the registration says where the agent is.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from quorate.facts.addresses import join_address, split_address
from quorate.facts.time import Now
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
            if address not in self.peers:
                self.peers[address] = endpoint.dial(*split_address(address))
            self.peers[address].node = None  # any agent may be at a declared address

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
            is_replaced = at is None and self._is_taken(master, address)
            if at in (None, address) and node in held and not is_replaced:
                self._drain(master, node, at, now)
            else:
                endpoint.undial(self.peers.pop(address))
                self._reached.pop(address, None)
                if at in (None, address) and node in {*master.agents} - held:
                    self._release(master, node, now)
        for node in list(self.kept):
            if self._address(node) in wanted or node not in master.agents:
                del self.kept[node]
        for node in sorted(self._drained):
            if self._address(node) in wanted:  # declared again
                self._drained.discard(node)
                master.drain(node, False, now)
        if self.declared and all(self._is_linked(address) for address in self.declared):
            # No other agent is at a declared address.
            for node in sorted({*master.agents} - {*self._links}):
                self._look_at_absent(master, node, node in held, endpoint, now)

    def _look_at_absent(
        self, master: Master, node: str, is_held: bool, endpoint: Endpoint, now: Now
    ) -> None:
        """Dial an agent without a link where it is registered, or release it if it holds nothing.

        Its address was no longer declared when this master began.
        """
        record = master.registration(node)
        if record is None:
            return
        if not is_held:
            if master.has_recovered:  # until then, not all rows may be known
                self._release(master, node, now)
            return
        address = join_address(record.host, record.peer_port)
        if address not in self.peers and not self._is_taken(master, address):
            self.peers[address] = endpoint.dial(record.host, record.peer_port, node)
            self._reached[address] = node
        if record.draining:
            self._drained.add(node)

    def _release(self, master: Master, node: str, now: Now) -> None:
        master.forget(node, now)
        self._drained.discard(node)
        _log.info("cluster %s: %s has no copies and is released", self._cluster, node)

    def _is_taken(self, master: Master, address: str) -> bool:
        """Return whether a linked agent is registered at the address.

        It must not be dialed in the name of another one: it takes the newest link of a master for
        the only one, and a link to the wrong agent is ended.
        """
        records = [master.registration(node) for node in self._links]
        return address in {join_address(r.host, r.peer_port) for r in records if r is not None}

    def _is_linked(self, address: str) -> bool:
        """Return whether an agent is accepted at the address."""
        link = self._links.get(self._reached.get(address, ""))
        return link is not None and link is self.peers[address].link

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
