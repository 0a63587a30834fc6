"""The messages of a turn: sent once the batch is written, or once it is durable."""

from quorate.protocol.messages.message import Message

MASTER = ""
"""The destination that means the present master."""


class Outbox:
    """Messages gathered during a turn, in order.  The node MASTER is the master."""

    __slots__ = ("after_sync", "at_once")

    def __init__(self) -> None:
        self.at_once: list[tuple[str, Message]] = []
        self.after_sync: list[tuple[str, Message]] = []

    def send(self, node: str, message: Message) -> None:
        """Send the message when the turn's batch is written."""
        self.at_once.append((node, message))

    def send_durable(self, node: str, message: Message) -> None:
        """Send the message when the turn's batch is durable, because the message relies on that."""
        self.after_sync.append((node, message))
