"""Which process of each other agent is heard, and when its leases begin anew.

The registration decides between stores.  Of one store the latest process counts, which may have
greeted before the master tells of it.  Source: docs/protocol.md, section 4.
"""

from collections.abc import Mapping

from quorate.facts.topology import NodeRecord
from quorate.protocol.copies.leases import Leases
from quorate.protocol.messages.handshake import Hello


def is_another(hello: Hello, member: NodeRecord) -> bool:
    """Return whether a process is neither the registered one nor a later one of its store.

    It is an earlier one, or it is over another store, which is no member before that is registered,
    or over a copy of the registered agent's folder.
    """
    if hello.store != member.store:
        return True
    if hello.incarnation == member.incarnation:
        return hello.process != member.process
    return hello.incarnation < member.incarnation


def is_earlier_start(member: NodeRecord, store: str, incarnation: int) -> bool:
    """Return whether a registration is of an earlier start of this store, which has ended.

    A metastore that was put back has such ones until it has taken in what agents greet with.
    """
    return member.store == store and member.incarnation < incarnation


class PeerProcesses:
    """The latest store and incarnation of each other agent."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._known: dict[str, tuple[str, int]] = {}

    def is_ended(self, hello: Hello) -> bool:
        """Return whether a later process of the same store is known."""
        store, incarnation = self._known.get(hello.node, ("", 0))
        return store == hello.store and hello.incarnation < incarnation

    def begins(self, hello: Hello) -> bool:
        """Take in a greeting; return whether the process is a new one, without leases."""
        known, this = self._known.get(hello.node), (hello.store, hello.incarnation)
        if known == this:
            return False
        self._known[hello.node] = this
        if known is not None:
            self._leases.restarted(hello.node)
        return True

    def hears(self, hello: Hello, member: NodeRecord | None) -> bool:
        """Return whether messages of this process are taken in; `member`: the registered one."""
        return member is not None and not is_another(hello, member) and not self.is_ended(hello)

    def members_changed(
        self, earlier: Mapping[str, NodeRecord], members: Mapping[str, NodeRecord]
    ) -> list[str]:
        """Forget the leases of stores that others followed, and of removed nodes; return whose."""
        forgotten: list[str] = []
        for node, (store, _) in list(self._known.items()):
            member = members.get(node)
            is_gone = node in earlier if member is None else member.store != store
            if is_gone:
                del self._known[node]
                self._leases.restarted(node)
                forgotten.append(node)
        return forgotten
