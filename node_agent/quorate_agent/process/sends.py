"""Sends the core's messages on the links to the master and to the other agents.

Most messages of a turn share a write per link.  Exceptions:

- messages about leases leave at once, before all others
- bulk (pieces of rows) leaves between the others
- an Append beside bulk, or with a long update, lets others pass it (overtaking)
"""

from __future__ import annotations

from quorate.protocol.messages.message import Message
from quorate.protocol.messages.outbox import MASTER
from quorate.protocol.messages.replication import Append, Heartbeat, HeartbeatAck
from quorate.protocol.messages.transfer import is_bulk
from quorate.wire.frames import encode_to_send
from quorate.wire.long_frames import LongFrame
from quorate_agent.process.overtaking import Overtaking
from quorate_agent.process.peers import Peers
from quorate_link import Link

_OF_LEASES = (Heartbeat, HeartbeatAck)


class Sends:
    """The messages that one agent sends.  A message without a link is dropped."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._overtaking = Overtaking()

    def send(self, sends: list[tuple[str, Message]], master: Link | None) -> None:
        """Send messages, each with the node that it is for; `master`: the link to the master."""
        last: Message | None = None
        frame: bytes | LongFrame = b""
        for node, message in sends:
            link = master if node == MASTER else self._peers.link(node)
            if link is None:
                continue
            if isinstance(message, _OF_LEASES):
                link.send_urgent(message)
                continue
            if is_bulk(message):
                link.send_bulk(message)
                continue
            if message is not last:
                frame, last = encode_to_send(message), message
            if (link.bulk_bytes or isinstance(frame, LongFrame)) and isinstance(message, Append):
                self._overtaking.send(link, message, frame)
            else:
                link.send_frame(type(message), frame)

    def link_down(self, link: Link) -> None:
        """Forget what waits on a link that is gone."""
        self._overtaking.link_down(link)
