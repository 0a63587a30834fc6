"""A master's links to the agents that it has accepted: what is sent, and which are silent."""

from collections.abc import Sequence

from quorate.protocol.master.node_registry import STALL_MS
from quorate.protocol.messages.events import ToldEvent
from quorate.protocol.messages.handshake import Refused
from quorate.protocol.messages.master import EventsTold
from quorate.protocol.messages.message import Message
from quorate.wire.frames import encode_to_send
from quorate.wire.long_frames import LongFrame
from quorate_link import Link
from quorate_operator.mastership.agent_refusals import AgentRefusals

TELL_MS = 100


class AgentLinks:
    """The links of one cluster.  Times are milliseconds of the boot clock."""

    def __init__(self, refusals: AgentRefusals, silence_max_ms: int) -> None:
        """`silence_max_ms`: a link that has received nothing for longer is ended."""
        self.by_node: dict[str, Link] = {}
        self._refusals = refusals
        self._silence_max_ms = silence_max_ms
        self._heard_ms: dict[str, int] = {}
        self._looked_ms = 0
        self._untold: list[ToldEvent] = []
        self._told_ms = -(1 << 40)

    def take(self, link: Link, node: str, now_ms: int) -> None:
        """Make this the link to `node`."""
        link.data = node
        self.by_node[node] = link
        self._heard_ms[node] = now_ms

    def refuse(self, link: Link, refused: Refused) -> None:
        """End a link, and remember why."""
        self._refusals.note(link, refused.reason)
        link.close(refused.reason, refused.code)

    def heard(self, link: Link, now_ms: int) -> str | None:
        """Note traffic on a link; return its node, None if the node has another link."""
        node = self._node_of(link)
        if node is not None:
            self._heard_ms[node] = now_ms
        return node

    def ended(self, link: Link) -> str | None:
        """Note that a link is down; return its node, None if the node has another link."""
        node = self._node_of(link)
        if node is not None:
            del self.by_node[node]
        return node

    def _node_of(self, link: Link) -> str | None:
        node: str | None = link.data
        return node if node is not None and self.by_node.get(node) is link else None

    def abort_silent(self, now_ms: int) -> None:
        """End links that have received nothing for too long; called with every tick.

        A host that vanished sends no reset: only a new connection can tell.
        """
        if now_ms - self._looked_ms > STALL_MS:
            # This process did not run: what the agents sent is still unread.
            self._heard_ms = dict.fromkeys(self._heard_ms, now_ms)
        self._looked_ms = now_ms
        for node, link in list(self.by_node.items()):
            silent_ms = now_ms - self._heard_ms[node]
            if silent_ms > self._silence_max_ms:
                self._heard_ms[node] = now_ms
                link.abort(f"silent for {silent_ms} ms")

    def send(self, sends: Sequence[tuple[str, Message]]) -> None:
        """Send messages to nodes, in order; those to nodes without a link are dropped."""
        encoded: dict[int, bytes | LongFrame] = {}
        for node, message in sends:
            link = self.by_node.get(node)
            if link is None:
                continue
            if isinstance(message, Refused):
                # The end of this connection says nothing about the agent with this name.
                del self.by_node[node]
                link.data = None
                self.refuse(link, message)
                continue
            # The master hands one object to many nodes: encode it once.
            frame = encoded.get(id(message))
            if frame is None:
                frame = encoded[id(message)] = encode_to_send(message)
            link.send_frame(type(message), frame)

    def add_news(self, events: Sequence[ToldEvent]) -> None:
        """Add events that all agents are told of with the next `tell_news`."""
        self._untold += events

    def tell_news(self, master_term: int, now_ms: int) -> None:
        """Send the added events to all agents in one message, at most once per TELL_MS."""
        if not self._untold or now_ms - self._told_ms < TELL_MS:
            return
        self._told_ms = now_ms
        told = EventsTold(master_term, tuple(self._untold))
        self._untold.clear()
        self.send_to_all(told)

    def send_to_all(self, message: Message) -> None:
        """Send one message to every agent that is linked."""
        self.send([(node, message) for node in self.by_node])
