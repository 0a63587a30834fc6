"""Links to the other agents: members are dialed all the time, others only to greet them.

An agent's greeting says which mastership it obeys.  If an agent does not believe a master, the
master has the other agents greet it again, members or not.  Source: docs/protocol.md, section 7, "A
number that was never counted is not believed".

A member may have moved after a restart.  A new address in the registry moves the link.  A DNS name
stays the same, and a host that vanished closes no connection; so a link to an earlier process than
the registered one is dropped, and the name is looked up again.
"""

import asyncio
from collections.abc import Mapping

from quorate.facts.topology import NodeRecord
from quorate_link import DialedPeer, Dialer, Endpoint, Link

GREETING_S = 2.0
"""How long an agent that is no member is dialed; the master asks again."""


class Peers:
    """The agents that agent `mine` dials."""

    def __init__(self, mine: str, links: Endpoint) -> None:
        self._mine = mine
        self._links = links
        self._members: dict[str, DialedPeer] = {}
        self._greeted: dict[
            tuple[str, int], DialedPeer
        ] = {}  # dialed only to greet them, by address

    def link(self, node: str) -> Link | None:
        """Return the link to a member; None while there is none."""
        peer = self._members.get(node)
        return peer.link if peer is not None else None

    def is_up(self, node: str) -> bool:
        """Return whether there is a link to a member."""
        return self.link(node) is not None

    def dial(self, members: Mapping[str, NodeRecord]) -> None:
        """Dial the present members at their present addresses; stop dialing former ones."""
        for name, record in members.items():
            peer = self._members.get(name)
            if name == self._mine:
                continue
            if peer is None:
                self._members[name] = self._links.dial(record.host, record.peer_port, name)
            else:
                peer.move(record.host, record.peer_port)
                if peer.link is not None and _is_followed(peer.link, record):
                    peer.redial("its node has a later process")
        for name in [name for name in self._members if name not in members]:
            self._links.undial(self._members.pop(name))

    def greet(self, host: str, port: int) -> None:
        """Make a new link to the agent at this address."""
        address = (host, port)
        for peer in self._members.values():
            if peer.address == address:
                if peer.link is not None:
                    peer.link.abort("the handshake starts again")  # its dialer goes on at once
                return
        if address not in self._greeted:
            peer = self._greeted[address] = self._links.dial(host, port)
            asyncio.get_running_loop().call_later(GREETING_S, self._has_greeted, peer)

    def up(self, link: Link) -> None:
        """Take note that a link is up; one that was made only to greet is ended."""
        if link.peer is not None and link.peer in self._greeted.values():
            self._has_greeted(link.peer)

    def _has_greeted(self, peer: Dialer) -> None:
        greeted = self._greeted.get(peer.address)
        if greeted is peer:
            del self._greeted[peer.address]
            self._links.undial(greeted)


def _is_followed(link: Link, record: NodeRecord) -> bool:
    """Return whether the other side's process is older than the registered one, or over another
    store."""
    hello = link.peer_hello
    return hello is not None and (
        hello.store != record.store or hello.incarnation < record.incarnation
    )
