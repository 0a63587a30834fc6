"""The limits and delays of an endpoint's links, and what is counted of them."""

from dataclasses import dataclass

from quorate.protocol.messages.formats import SPOKEN, Formats
from quorate.protocol.messages.handshake import FRAME_BYTES_MAX
from quorate_link.handshake import OPENING_BYTES_MAX


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Limits and delays of an endpoint's links."""

    hello_timeout_ms: int = 5_000
    """From the connection to the other side's proof and Hello; then the connection is closed."""

    opening_bytes_max: int = OPENING_BYTES_MAX
    """Largest frame before the proof, so that an unknown side can occupy only little memory."""

    formats: Formats = SPOKEN
    """The formats of frames that this side speaks. The other side must speak one of them."""

    strangers_max: int = 512
    """The most accepted connections without a proof, beside `links_max`. When one more comes, the
    oldest one of the host with the most of them is closed. So a host that opens many keeps out no
    other host, and on the host itself no connection whose handshake takes a few round trips."""

    frame_bytes_max: int = FRAME_BYTES_MAX
    """Largest frame after the proof."""

    pending_bytes_max: int = 192 * 1024 * 1024
    """Bytes that a peer has not taken yet. Above this the peer is too slow and the link is dropped.
    It must have room for two of the largest frames, or large values could never pass."""

    connect_timeout_ms: int = 2_000
    """Time for one attempt to reach a host that does not answer."""

    unacknowledged_ms_max: int = 4_000
    """Bound for what a link has sent to stay unacknowledged, or a peer whose buffers are full may
    read nothing; then the kernel ends the link, and the peer is dialed again. Accepted links of
    tools have no bound. Agents and masters read all the time: only one that is suspended reads
    nothing for so long. Much less would end links over a network that loses many packets."""

    redial_first_ms: int = 50
    redial_max_ms: int = 500
    """Pauses between attempts, doubled from first to max. The first attempt after a loss is
    immediate. They are short, so that a restarted agent is found fast; a refused attempt on a LAN
    costs nothing."""

    links_max: int = 4_096
    """The most connections that were dialed, or accepted and proven. More are refused."""

    window_bytes: int = 256 * 1024
    """Frames are written only while less than this waits in the transport. So an urgent message
    waits behind at most this and one frame. A long message is many frames."""

    kernel_bytes: int = 512 * 1024
    """Bytes that the kernel is asked to buffer of a connection, each side. Nothing overtakes these.
    Linux takes twice as much, or less if its net.core.*mem_max are lower. By default it would take
    megabytes, which a busy peer needs seconds to read. About this much goes through in one round
    trip."""


@dataclass(slots=True)
class LinkCounters:
    """Counters of an endpoint since it was made (for metrics)."""

    bytes_in: int = 0
    bytes_out: int = 0
    frames_in: int = 0
    frames_out: int = 0
    links_opened: int = 0
    links_lost: int = 0
    dials_refused: int = 0
    """By a host where no process listens."""
    garbage: int = 0
    refused: int = 0
    slow_dropped: int = 0
    hello_timeouts: int = 0
    unspoken: int = 0
    """Messages that were not sent because the other side's format does not have them."""
    strangers: int = 0
    """Connections closed because the other side did not prove that it knows the secret."""
