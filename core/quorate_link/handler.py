"""What an endpoint tells its owner, what it can be set to, and what it counts."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from quorate.protocol.messages.formats import SPOKEN, Formats
from quorate.protocol.messages.handshake import FRAME_BYTES_MAX, Hello, Refused
from quorate.protocol.messages.message import Message
from quorate_link.handshake import OPENING_BYTES_MAX

if TYPE_CHECKING:
    from quorate_link.link import Link


class Handler(Protocol):
    """The owner of an endpoint.  Calls come on the event loop, never from inside `send`."""

    def on_up(self, link: "Link", hello: Hello) -> None:
        """Both sides said Hello and accepted: messages may flow."""

    def on_message(self, link: "Link", message: Message) -> None:
        """A message other than Hello and Refused."""

    def on_down(self, link: "Link", refused: Refused | None) -> None:
        """The link is lost; once per on_up.  `refused`: the other side said why."""

    def on_gone(self, link: "Link") -> None:
        """After on_down of a dialed link, before its next on_up: the redial was refused by the
        peer's host.  With the connection lost before, evidence that the process is gone."""

    def on_refused(self, link: "Link", refused: Refused) -> None:
        """A dialed peer refused our Hello, or its own was not acceptable.  Tried again later."""


class BaseHandler:
    """Does nothing; to be subclassed by owners that want only some of the calls."""

    def on_up(self, link: "Link", hello: Hello) -> None:
        """Ignore."""

    def on_message(self, link: "Link", message: Message) -> None:
        """Ignore."""

    def on_down(self, link: "Link", refused: Refused | None) -> None:
        """Ignore."""

    def on_gone(self, link: "Link") -> None:
        """Ignore."""

    def on_refused(self, link: "Link", refused: Refused) -> None:
        """Ignore."""


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Bounds and delays of an endpoint's links."""

    hello_timeout_ms: int = 5_000
    """From the connection to the other side's proof and Hello; then the connection is closed."""

    opening_bytes_max: int = OPENING_BYTES_MAX
    """Largest frame before that: who is not known yet gets little memory."""

    formats: Formats = SPOKEN
    """Formats of frames that are spoken; another side must speak one of them."""

    strangers_max: int = 512
    """Accepted connections that have not proven anything yet, besides `links_max`.  When one more
    comes, the oldest of the host with the most of them is closed: whoever opens many keeps out
    nobody on another host, and on its own nobody whose handshake takes a few round trips."""

    frame_bytes_max: int = FRAME_BYTES_MAX
    """Largest frame after it."""

    pending_bytes_max: int = 192 * 1024 * 1024
    """Not yet taken by a peer.  Above, the peer is too slow and the link is dropped; two of the
    largest frames must fit, or large values could never pass."""

    connect_timeout_ms: int = 2_000
    """A host that answers nothing: how long one attempt takes."""

    redial_first_ms: int = 50
    redial_max_ms: int = 500
    """Between attempts; doubled from first to max.  The first attempt after a loss is immediate.
    Small: a restarted agent is found that fast, and a refused attempt on a LAN costs nothing."""

    links_max: int = 4_096
    """Connections at a time that were dialed, or accepted and proven.  More are refused."""

    window_bytes: int = 256 * 1024
    """Frames are written only while less than this waits in the transport: urgent messages wait
    behind so much, and one frame, at most.  A long message is many frames."""

    kernel_bytes: int = 512 * 1024
    """What the kernel is asked to keep of a connection, on each side, with nothing overtaking it;
    Linux takes twice that, or less when its net.core.*mem_max are lower.  Left alone it takes
    megabytes, which a busy peer reads in seconds.  So much goes through in one round trip."""


@dataclass(slots=True)
class LinkCounters:
    """What an endpoint has seen since it was made (for metrics)."""

    bytes_in: int = 0
    bytes_out: int = 0
    frames_in: int = 0
    frames_out: int = 0
    links_opened: int = 0
    links_lost: int = 0
    dials_refused: int = 0
    """By a host where nobody listens."""
    garbage: int = 0
    refused: int = 0
    slow_dropped: int = 0
    hello_timeouts: int = 0
    unspoken: int = 0
    """Messages that were not sent because the other side's format does not have them."""
    strangers: int = 0
    """Connections closed because the other side did not prove that it knows the secret."""
