"""The calls of an endpoint to its owner."""

from typing import Protocol

from quorate.protocol.messages.handshake import Hello, Refused
from quorate.protocol.messages.message import Message
from quorate_link.link import Link, Receiver


class Handler(Receiver, Protocol):
    """The owner of an endpoint. Calls come on the event loop, never from inside `send`."""

    def on_up(self, link: Link, hello: Hello) -> None:
        """Both sides said Hello and accepted: messages may flow."""

    def on_down(self, link: Link, refused: Refused | None) -> None:
        """The link is lost; once per on_up. `refused`: the reason that the other side gave."""

    def on_gone(self, link: Link) -> None:
        """The redial of a lost dialed link was refused by the peer's host.

        Called after on_down and before the next on_up. Together with the loss it is evidence that
        the process is gone.
        """

    def on_refused(self, link: Link, refused: Refused) -> None:
        """A dialed peer refused our Hello, or its own was not acceptable. It is dialed again."""


class BaseHandler:
    """A handler that does nothing, for owners that need only some of the calls."""

    def on_up(self, link: Link, hello: Hello) -> None:
        """Ignore."""

    def on_message(self, link: Link, message: Message) -> None:
        """Ignore."""

    def on_down(self, link: Link, refused: Refused | None) -> None:
        """Ignore."""

    def on_gone(self, link: Link) -> None:
        """Ignore."""

    def on_refused(self, link: Link, refused: Refused) -> None:
        """Ignore."""
