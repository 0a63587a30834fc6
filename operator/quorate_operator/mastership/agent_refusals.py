"""Decides which agents are refused; remembers why no agent is registered from an address."""

import logging
from collections.abc import Collection, Mapping

from quorate.protocol.master.master import Master
from quorate.protocol.members.membership import is_same_process
from quorate.protocol.messages.handshake import Hello, RefusalCode, Refused
from quorate.wire.schema.names import is_short_name
from quorate_link import Link
from quorate_operator.mastership.dialing import Dialing, address_of

_log = logging.getLogger("quorate.runner")


def judge(hello: Hello, links: Mapping[str, Link], master: Master | None) -> Refused | None:
    """Return why a greeting agent is refused, else None; end the link of an older process of it."""
    if not is_short_name(hello.node):
        return Refused(
            f"node {hello.node!r}: --name takes lower-case letters, digits and '-' only",
            RefusalCode.NAME,
        )
    present = links.get(hello.node)
    known = present.peer_hello if present is not None else None
    if known is not None and is_same_process(known, hello):
        return Refused(f"node {hello.node} is connected already", RefusalCode.CONNECTED)
    refused = master.refusal(hello) if master is not None else None
    if refused is None and present is not None:
        present.abort("replaced by a newer process")
    return refused


def recovery_waits(unreached: Collection[str]) -> str:
    """Return what a recovery waits for, as a sentence; `unreached`: the addresses of its agents."""
    sentence = "nothing is stored of this cluster: agents are being asked which zones they have"
    if not unreached:
        return sentence
    return (
        f"{sentence}; not reached yet: {', '.join(sorted(unreached))}: start these with their data"
        " folders, or remove those that will never come back from the StorageCluster"
    )


class AgentRefusals:
    """The last refusal at each address of one cluster, by either side."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._reasons: dict[str, str] = {}

    def note(self, link: Link, reason: str) -> None:
        """Note that the agent at the other side was refused, or refuses."""
        if link.peer is None:
            return
        address = address_of(link.peer)
        if self._reasons.get(address) != reason:
            self._reasons[address] = reason
            _log.warning("cluster %s: agent at %s: %s", self._cluster, address, reason)

    def forget(self, link: Link) -> None:
        """Note that the agent at the other side is accepted."""
        if link.peer is not None:
            self._reasons.pop(address_of(link.peer), None)

    def keep(self, addresses: Collection[str]) -> None:
        """Forget refusals at other addresses: they are no longer dialed."""
        self._reasons = {at: why for at, why in self._reasons.items() if at in addresses}

    def unreached(self, dialing: Dialing) -> dict[str, str]:
        """Return address -> why no agent is registered from there now."""
        return {
            address: peer.problem or self._reasons.get(address, "no agent answers there")
            for address, peer in sorted(dialing.peers.items())
            if peer.link is None and address in dialing.declared
        }
