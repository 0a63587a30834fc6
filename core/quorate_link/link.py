"""One connection to a peer: the handshake, then frames; one write per turn of the event loop.

What is sent leaves in three classes: urgent, ordinary, bulk. Before the other side has proven that
it knows the cluster's secret (handshake.py), no message is handed on, and only the handshake is
answered.

    CONNECTED --their Hello proven and accepted--> UP --lost, refused, too slow, garbage--> CLOSED
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol, cast

from quorate.facts.addresses import join_address
from quorate.facts.errors import WireError
from quorate.protocol.messages.formats import unknown_in
from quorate.protocol.messages.handshake import Hello, RefusalCode, Refused
from quorate.protocol.messages.message import Message
from quorate.wire.frames import FrameReader, decoder_of, encode_frame, encode_to_send
from quorate.wire.long_frames import LongFrame
from quorate_link.handshake import Handshake, Unproven
from quorate_link.secret import RoleKeys
from quorate_link.settings import LinkCounters, LinkSettings

_log = logging.getLogger("quorate.link")

PASSED_WINDOWS = 4
"""After this many windows of ordinary messages in a row, one piece of bulk is sent. So bulk also
reaches a peer to which ordinary messages never end."""


class Receiver(Protocol):
    """Takes the messages of links."""

    def on_message(self, link: "Link", message: Message) -> None:
        """A message other than Hello and Refused has come."""


class Dialer(Protocol):
    """Dials one peer, and is told of the links to it."""

    address: tuple[str, int]
    refused: Refused | None
    """The last refusal by either side, until a link is up."""

    def judge(self, hello: Hello) -> Refused | None:
        """Return a refusal if another node, or another process of it, than expected answers."""

    def link_up(self, link: "Link") -> None:
        """Note that the handshake is done."""

    def link_lost(self, link: "Link", refused: Refused | None) -> None:
        """Note that the connection has ended, after a handshake or before one."""


class LinkEndpoint(Protocol):
    """The endpoint, as far as its links need it."""

    hello: Callable[[], Hello]
    accept: Callable[[Hello], Refused | None]
    keys: RoleKeys
    settings: LinkSettings
    counters: LinkCounters
    loop: asyncio.AbstractEventLoop

    @property
    def handler(self) -> Receiver:
        """The owner, which gets the messages."""

    def admit(self, link: "Link") -> bool:
        """Take one more connection. False: this endpoint is closed."""

    def why_full(self) -> Refused | None:
        """Return why there is no place for an accepted and proven connection, or None."""

    def stranger(self, link: "Link", reason: str) -> None:
        """Count and log a connection whose other side has not proven that it knows the secret."""

    def refuse(self, link: "Link", hello: Hello, refused: Refused) -> None:
        """Count and log a connection whose other side has proven itself and is refused."""

    def proven(self, link: "Link") -> None:
        """Count a connection as a member's."""

    def link_up(self, link: "Link", hello: Hello) -> None:
        """Note that the handshake is done."""

    def link_lost(self, link: "Link", refused: Refused | None) -> None:
        """Note that the connection has ended."""

    def flush_later(self, link: "Link") -> None:
        """Flush this link at the end of the turn."""


class Link(asyncio.Protocol):
    """One connection. `data` belongs to the owner. Public attributes may be read at any time."""

    def __init__(self, endpoint: LinkEndpoint, peer: Dialer | None) -> None:
        self.peer = peer
        self.peer_hello: Hello | None = None
        self.up = False
        self.down_reason = ""
        self.data: Any = None
        self.bulk_bytes = 0
        self.bulk_written = 0  # bytes of bulk that can no longer be overtaken
        self._endpoint = endpoint
        self._transport: asyncio.Transport | None = None
        self.ended = asyncio.Event()
        self._handshake: Handshake | None = Handshake(
            endpoint.keys,
            endpoint.hello,
            dialed=peer is not None,
            judge=self._judge,
            bytes_max=endpoint.settings.opening_bytes_max,
            formats=endpoint.settings.formats,
        )
        self._unknown: frozenset[type] = frozenset()  # messages of later formats than this link's
        self._reader: FrameReader | None = None
        self._urgent: list[bytes] = []
        self._buffer: deque[bytes | Iterator[bytes]] = deque()  # frames, or pieces of long ones
        self._long_count = 0  # long messages in it
        self._buffer_bytes = 0  # of `_urgent` and `_buffer`
        self._dirty = False  # the endpoint will flush it
        self._bulk: deque[Iterator[bytes]] = deque()
        self._passed = 0  # bytes of ordinary messages that have overtaken the next piece of bulk
        self._hello_timer: asyncio.TimerHandle | None = None
        self._refused: Refused | None = None
        self._closing = False
        self._address = ""
        self.host = ""
        """The host of the other side."""

    @property
    def dialed(self) -> bool:
        """Whether this side opened the connection."""
        return self.peer is not None

    @property
    def peer_name(self) -> str:
        """The other side's node, or its address until that is known."""
        if self.peer_hello is not None and self.peer_hello.node:
            return self.peer_hello.node
        return self._address

    @property
    def pending_bytes(self) -> int:
        """Bytes that are to be sent and that the socket has not taken yet."""
        return self._buffer_bytes + self.bulk_bytes + self._transport_bytes()

    @property
    def incoming_bytes(self) -> int:
        """Bytes received of a message that is not complete."""
        return 0 if self._reader is None else self._reader.pending_bytes

    @property
    def is_proven(self) -> bool:
        """Whether the other side has proven that it knows the cluster's secret."""
        return self._handshake is None

    # --- sending

    def send(self, message: Message) -> bool:
        """Send with this turn's write, or when the peer has taken what is queued before.

        False: the message is dropped, because the link is down or the other side does not know it.
        """
        return self.send_frame(type(message), encode_to_send(message))

    def send_frame(self, kind: type, frame: bytes | LongFrame) -> bool:
        """Send a message of type `kind` that was encoded once for several peers; see `send`."""
        if not self.up or self._is_unknown(kind):
            return False
        if isinstance(frame, LongFrame):
            self._buffer.append(frame.pieces())
            self._long_count += 1
        else:
            self._buffer.append(frame)
        self._buffer_bytes += len(frame)
        self._flush_later()
        return True

    def send_urgent(self, message: Message) -> bool:
        """Send before everything that is queued: for short messages that may overtake others."""
        if not self.up or self._is_unknown(type(message)):
            return False
        frame = encode_frame(message)
        self._urgent.append(frame)
        self._buffer_bytes += len(frame)
        self._flush_later()
        return True

    def send_bulk(self, message: Message) -> bool:
        """Send when no ordinary message waits, or when many of them have overtaken it.

        Bulk may be overtaken by `send`, and keeps its own order.
        """
        return self.send_bulk_frame(type(message), encode_to_send(message))

    def send_bulk_frame(self, kind: type, frame: bytes | LongFrame) -> bool:
        """Send a message of type `kind` that is already encoded; see `send_bulk`."""
        if not self.up or self._is_unknown(kind):
            return False
        if isinstance(frame, LongFrame):
            self._bulk.append(frame.pieces(bulk=True))
        else:
            self._bulk.append(iter([frame]))
        self.bulk_bytes += len(frame)
        self._flush_later()
        return True

    def _is_unknown(self, kind: type) -> bool:
        """Return whether the other side speaks an earlier format, without this message."""
        if kind not in self._unknown:
            return False
        self._endpoint.counters.unspoken += 1
        return True

    def _flush_later(self) -> None:
        if not self._dirty:
            self._dirty = True
            self._endpoint.flush_later(self)

    def flush(self) -> None:
        """Write what was queued, as far as the window permits; in one piece if all of it fits.

        A link on which too many bytes wait is dropped as too slow.
        """
        self._dirty = False
        if self._transport is None or self._closing:
            return
        self._pump()
        if self.pending_bytes > self._endpoint.settings.pending_bytes_max:
            self._endpoint.counters.slow_dropped += 1
            self.abort(f"too slow: {self.pending_bytes} bytes wait for it")

    def _pump(self) -> None:
        """Write while the transport's buffer is short: nothing overtakes what waits in it."""
        transport = self._transport
        if transport is None or self._closing:
            return
        if self._urgent:
            urgent, self._urgent = self._urgent, []
            self._write_pieces(transport, urgent)
        window = self._endpoint.settings.window_bytes
        buffer = self._buffer
        if buffer and self._bulk and self._passed >= PASSED_WINDOWS * window:
            self._write_bulk(transport)
        while buffer and (room := window - transport.get_write_buffer_size()) > 0:
            if self._buffer_bytes <= room and not self._long_count:
                frames = cast(list[bytes], list(buffer))
                buffer.clear()
            else:
                frames = self._take_frames(room)
            if frames:
                if self._bulk:
                    self._passed += sum(map(len, frames))
                self._write_pieces(transport, frames)
        while self._bulk and transport.get_write_buffer_size() < window:
            self._write_bulk(transport)

    def _write_bulk(self, transport: asyncio.Transport) -> None:
        """Write the next piece of bulk, if there is one."""
        self._passed = 0
        while self._bulk:
            frame = next(self._bulk[0], None)
            if frame is not None:
                self.bulk_bytes -= len(frame)
                self.bulk_written += len(frame)
                self._write(transport, frame, 1)
                return
            self._bulk.popleft()

    def _take_frames(self, room: int) -> list[bytes]:
        """Take frames and pieces from the front of the buffer, until they fill `room` bytes."""
        buffer = self._buffer
        frames: list[bytes] = []
        while room > 0 and buffer:
            frame = buffer[0]
            if not isinstance(frame, bytes):
                piece = next(frame, None)
                if piece is None:
                    buffer.popleft()
                    self._long_count -= 1
                    continue
                frame = piece
            else:
                buffer.popleft()
            frames.append(frame)
            room -= len(frame)
        return frames

    def _write_held(self, transport: asyncio.Transport) -> None:
        """Write everything but bulk, however long the transport's buffer gets: it is the last."""
        frames = [*self._urgent, *self._take_frames(self._buffer_bytes)]
        self._urgent.clear()
        if frames:
            self._write_pieces(transport, frames)

    def _write_pieces(self, transport: asyncio.Transport, frames: list[bytes]) -> None:
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        self._buffer_bytes -= len(data)
        self._write(transport, data, len(frames))

    def _write(self, transport: asyncio.Transport, data: bytes, frames: int) -> None:
        counters = self._endpoint.counters
        counters.frames_out += frames
        counters.bytes_out += len(data)
        transport.write(data)

    def _transport_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    # --- closing

    def close(self, reason: str, code: str = "", master_term: int = 0) -> None:
        """Tell the other side the reason, after what was sent before (see Refused), then close."""
        if self._closing or self._transport is None:
            return
        self.flush()
        if self._closing:
            return
        self._write_held(self._transport)
        self._write(self._transport, encode_frame(Refused(reason, code, master_term)), 1)
        self._end_behind_what_was_sent(reason)

    def _end_behind_what_was_sent(self, reason: str) -> None:
        self._end(reason)
        if self._transport is None:
            return
        self._transport.close()
        # A peer that does not read must not keep the connection for ever.
        patience = self._endpoint.settings.hello_timeout_ms / 1000
        self._hello_timer = self._endpoint.loop.call_later(patience, self.kill)

    def abort(self, reason: str) -> None:
        """Close at once. What the socket has not taken is lost."""
        if self._closing or self._transport is None:
            return
        self._end(reason)
        self._transport.abort()

    def kill(self) -> None:
        """Stop waiting for a close that is in progress."""
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        """Read nothing from the socket until `resume_reading`."""
        if self._transport is not None and not self._closing:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Go on reading."""
        if self._transport is not None and not self._closing:
            self._transport.resume_reading()

    def _end(self, reason: str) -> None:
        """Stop sending and receiving. The owner is told when the connection is lost."""
        self._closing = True
        self.up = False
        self.down_reason = self.down_reason or reason
        self._urgent.clear()
        self._buffer.clear()
        self._bulk.clear()
        self._buffer_bytes = self.bulk_bytes = self._long_count = 0
        if self._hello_timer is not None:
            self._hello_timer.cancel()
            self._hello_timer = None

    # --- asyncio.Protocol

    def connection_made(self, made: asyncio.BaseTransport) -> None:
        """Begin the handshake if this side dialed, and start its timeout."""
        transport = cast(asyncio.Transport, made)  # uvloop's transports are not subclasses
        self._transport = transport
        # asyncio calls `resume_writing` only after `pause_writing`. So the transport must call its
        # buffer long at the length at which `_pump` stops.
        window = self._endpoint.settings.window_bytes
        transport.set_write_buffer_limits(high=window - 1, low=window // 4)
        name = transport.get_extra_info("peername")
        self.host = name[0] if name else "unknown"
        self._address = join_address(name[0], name[1]) if name else "unknown"
        endpoint = self._endpoint
        _set_up(transport, endpoint.settings, self.dialed)
        if not endpoint.admit(self):
            # Not within this call: uvloop takes a dialed socket from its object only afterwards.
            # Else both close the descriptor, the second when its number is another connection's.
            endpoint.loop.call_soon(self.abort, "this process is stopping")
            return
        self._hello_timer = endpoint.loop.call_later(
            endpoint.settings.hello_timeout_ms / 1000, self._hello_is_late
        )
        if self._handshake is not None:
            self._answer(self._handshake.take_outgoing())

    def data_received(self, data: bytes) -> None:
        """Cut the bytes into messages and hand them on."""
        if self._closing:
            return
        counters = self._endpoint.counters
        counters.bytes_in += len(data)
        if self._handshake is not None:
            data = self._shake_hands(self._handshake, data)
        if self._reader is None or not data or self._closing:
            return
        try:
            messages = self._reader.feed(data)
        except WireError as error:
            counters.garbage += 1
            _log.warning("link to %s closed: %s", self.peer_name, error)
            self.abort(f"garbage: {error}")
            return
        counters.frames_in += len(messages)
        on_message = self._endpoint.handler.on_message
        for message in messages:
            if type(message) is Refused:
                self._take_refusal(message)
            else:
                on_message(self, message)
            if self._closing:
                return

    def eof_received(self) -> bool:
        """Close this side too, after what was sent before."""
        if self._transport is not None and not self._closing:
            self._write_held(self._transport)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the owner and the peer's dialer, once."""
        was_closing = self._closing
        self._end("lost" if exc is None else f"lost: {exc}")
        self._transport = None
        if not was_closing:
            # Tools and probes hang up as a matter of course. Only the loss of a member is worth
            # INFO.
            role = "" if self.peer_hello is None else self.peer_hello.role
            is_missed = self.dialed if role == "" else role != "tool"
            level = logging.INFO if is_missed else logging.DEBUG
            _log.log(level, "link to %s: %s", self.peer_name, self.down_reason)
        self.ended.set()
        self._endpoint.link_lost(self, self._refused)

    def resume_writing(self) -> None:
        """Go on writing: the transport's buffer is short again."""
        self._pump()

    # --- handshake

    def _shake_hands(self, handshake: Handshake, data: bytes) -> bytes:
        """Go on with the handshake. Return the bytes that came behind its end."""
        endpoint = self._endpoint
        try:
            rest = handshake.feed(data)
        except WireError as error:
            endpoint.counters.garbage += 1
            self._not_proven(f"garbage: {error}", "")
            return b""
        except Unproven as error:
            self._not_proven(str(error), error.code)
            return b""
        self._answer(handshake.take_outgoing())
        if rest is None:
            return b""
        if handshake.is_proven:
            endpoint.proven(self)
        refused = handshake.rejected
        if handshake.hello is not None and self.dialed:
            refused = self._refused = self._judge(handshake.hello)
            if refused is not None:
                self._answer(encode_frame(refused))
        if refused is not None:  # by us
            self._end_behind_what_was_sent(refused.reason)
        elif handshake.refused is not None:
            if not handshake.is_proven and not self.dialed:  # else its owner is told
                endpoint.stranger(self, f"it refuses, without a proof: {handshake.refused.reason}")
            self._take_refusal(handshake.refused)
        elif handshake.hello is not None:
            self._begin(handshake.hello)
        return rest

    def _begin(self, hello: Hello) -> None:
        """Open the link for messages: both sides are proven and accepted."""
        endpoint = self._endpoint
        if self._hello_timer is not None:
            self._hello_timer.cancel()
            self._hello_timer = None
        if self._handshake is not None:
            self._unknown = unknown_in(self._handshake.format)
        self._handshake = None
        self._reader = FrameReader(
            endpoint.settings.frame_bytes_max, decoder_of(hello.role, endpoint.hello().role)
        )
        self.peer_hello = hello
        if not self.dialed and hello.role != "tool" and self._transport is not None:
            _bound_unacknowledged(self._transport, endpoint.settings.unacknowledged_ms_max)
        self.up = True
        endpoint.link_up(self, hello)

    def _answer(self, data: bytes) -> None:
        if data and self._transport is not None:
            self._write(self._transport, data, 1)

    def _judge(self, hello: Hello) -> Refused | None:
        """Return why the proven other side is refused by this one, or None."""
        refused = self._reason_against(hello)
        if refused is not None:
            self._endpoint.refuse(self, hello, refused)
        return refused

    def _reason_against(self, hello: Hello) -> Refused | None:
        mine = self._endpoint.hello()
        if hello.cluster != mine.cluster:
            return Refused(
                f"cluster {hello.cluster!r} of {hello.node or hello.role} is not {mine.cluster!r}:"
                f" check the address and the cluster's name",
                RefusalCode.CLUSTER,
            )
        if self.peer is not None:
            return self.peer.judge(hello)
        return self._endpoint.accept(hello) or self._endpoint.why_full()

    def _take_refusal(self, refused: Refused) -> None:
        if self.peer_hello is not None and self.peer_hello.role == "tool":
            refused = Refused(refused.reason)  # agents act on some codes; a tool has none to say
        self._refused = refused
        self._end_behind_what_was_sent(refused.reason)

    def _not_proven(self, reason: str, code: str) -> None:
        """Close. The other side, which is unknown, is told one sentence at most."""
        endpoint = self._endpoint
        endpoint.stranger(self, reason)
        if self.dialed and code:
            self._refused = Refused(reason, code)
        if code:
            self._answer(encode_frame(Refused(reason, code)))
            self._end_behind_what_was_sent(reason)
        else:
            self.abort(reason)

    def _hello_is_late(self) -> None:
        self._hello_timer = None
        self._endpoint.counters.hello_timeouts += 1
        self._not_proven("no Hello in time", "")


def _set_up(transport: asyncio.Transport, settings: LinkSettings, dialed: bool) -> None:
    """Set the socket's keepalive, its bound on what is not acknowledged, and kernel buffers.

    The kernel ends an idle connection whose other host is silent for about 25 s (a dialed one:
    15 s). While anything is not acknowledged it sends no keepalives: it retransmits, at intervals
    that double up to two minutes. A link over a mended network would stay dead for as long again.
    So the kernel ends a dialed link long before, and it is dialed anew. An accepted link has no
    such bound until its other side has proven to be no tool: those may read slowly.

    The kernel buffers little, because nothing can overtake what it has.
    """
    connection = transport.get_extra_info("socket")
    _bound_unacknowledged(transport, settings.unacknowledged_ms_max if dialed else 0)
    for level, option, value in (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
        (socket.SOL_SOCKET, socket.SO_SNDBUF, settings.kernel_bytes),
        (socket.SOL_SOCKET, socket.SO_RCVBUF, settings.kernel_bytes),
    ):
        connection.setsockopt(level, option, value)


def _bound_unacknowledged(transport: asyncio.Transport, ms_max: int) -> None:
    """Have the kernel end the link if what was sent is not acknowledged for so long; 0: minutes."""
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, ms_max)
