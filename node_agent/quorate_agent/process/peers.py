"""Links to the other agents: members are dialed all the time, others only to greet them.

An agent's greeting says which mastership it obeys.  If an agent does not believe a master, the
master has the other agents greet it again, members or not.  Source: docs/protocol.md, section 7, "A
number that was never counted is not believed".

A member may have moved after a restart.  A new address in the registry moves the link.  A DNS name
stays the same, and a host that vanished closes no connection; so a link to an earlier process than
the registered one is dropped, and the name is looked up again.  If an earlier process still answers
there, or one over a store that is not registered or over a copied folder, it is refused.  The name
is looked up again after a pause, and at once when another process is registered.
"""

import asyncio
import logging
from collections.abc import Mapping

from quorate.facts.addresses import join_address
from quorate.facts.topology import NodeRecord
from quorate.protocol.agent.peer_processes import is_another
from quorate.protocol.messages.handshake import Hello, RefusalCode, Refused
from quorate_link import DialedPeer, Dialer, Endpoint, Link

_log = logging.getLogger("quorate.agent")

GREETING_S = 2.0
"""How long an agent that is no member is dialed; the master asks again."""


class Peers:
    """The agents that agent `mine` dials."""

    def __init__(self, mine: str, links: Endpoint) -> None:
        self._mine = mine
        self._links = links
        self._members: dict[str, DialedPeer] = {}
        self._records: Mapping[str, NodeRecord] = {}
        self._greeted: dict[
            tuple[str, int], DialedPeer
        ] = {}  # dialed only to greet them, by address
        self._ended: dict[str, tuple[str, int]] = {}
        """By node: store and incarnation of the process whose refusal was logged last."""

    def link(self, node: str) -> Link | None:
        """Return the link to a member; None while there is none."""
        peer = self._members.get(node)
        return peer.link if peer is not None else None

    def is_up(self, node: str) -> bool:
        """Return whether there is a link to a member."""
        return self.link(node) is not None

    def dial(self, members: Mapping[str, NodeRecord]) -> None:
        """Dial the present members at their present addresses; stop dialing former ones."""
        earlier, self._records = self._records, dict(members)
        for name, record in members.items():
            peer = self._members.get(name)
            if name == self._mine:
                continue
            if peer is None:
                self._members[name] = self._links.dial(
                    record.host, record.peer_port, name, self._judge
                )
            else:
                peer.move(record.host, record.peer_port)
                if _has_to_redial(peer.link, earlier[name], record):
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

    def refuse_ended(self, link: Link, hello: Hello) -> None:
        """Refuse an agent because a later process of its store has greeted; log it once.

        That one may have been of a copied folder, and have ended: then only a restart of this
        process forgets it.
        """
        why = (
            f"agent {hello.node}, start {hello.incarnation}: refused by {self._mine}, because start"
            f" {hello.incarnation + 1} or a later one of its store has greeted; if that was of a"
            f" copy of its folder, restart {self._mine}"
        )
        process = hello.store, hello.incarnation
        if self._ended.get(hello.node) != process:
            self._ended[hello.node] = process
            _log.warning("%s", why)
        if not link.dialed:
            link.close(why, RefusalCode.OLDER_PROCESS)

    def _judge(self, hello: Hello) -> Refused | None:
        record = self._records.get(hello.node)
        if record is None or not is_another(hello, record):
            return None
        return Refused(
            f"node {hello.node}: store {hello.store}, incarnation {hello.incarnation}, process"
            f" {hello.process}, answers at {join_address(record.host, record.peer_port)};"
            f" registered is store {record.store}, incarnation {record.incarnation}, process"
            f" {record.process}",
            RefusalCode.NODE,
        )

    def _has_greeted(self, peer: Dialer) -> None:
        greeted = self._greeted.get(peer.address)
        if greeted is peer:
            del self._greeted[peer.address]
            self._links.undial(greeted)


def _has_to_redial(link: Link | None, earlier: NodeRecord, record: NodeRecord) -> bool:
    """Return whether the link to a member is to be made anew, or now if there is none."""
    if link is None:
        was, now = ((each.store, each.incarnation, each.process) for each in (earlier, record))
        return was != now
    return link.peer_hello is not None and is_another(link.peer_hello, record)
