"""How messages become frames on a peer connection, and frames messages again.

A frame is a four-byte big-endian length, then one message in msgpack.  A length above the limit, an
unknown tag or a field of the wrong type is a WireError: the connection that sent it is closed.
A long message is several frames (long_frames.py).
"""

import msgspec

from quorate.facts.errors import WireError
from quorate.protocol.messages import FRAME_BYTES_MAX, Message
from quorate.wire.long_frames import HEADER_BYTES, LongFrames

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


def encode_frame(message: Message) -> bytes:
    """One message as a frame."""
    body = _encoder.encode(message)
    if len(body) > FRAME_BYTES_MAX:
        raise WireError(f"{type(message).__name__} of {len(body)} bytes: limit {FRAME_BYTES_MAX}")
    return len(body).to_bytes(HEADER_BYTES, "big") + body


class FrameReader:
    """Cuts a byte stream into messages.  After a WireError it must not be fed again."""

    __slots__ = ("_buffer", "_bytes_max", "_long")

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._buffer = bytearray()
        self._bytes_max = bytes_max
        self._long = LongFrames()

    def allow(self, bytes_max: int) -> None:
        """From the next frame on, take frames up to this size (the sender is known now)."""
        self._bytes_max = bytes_max

    @property
    def pending_bytes(self) -> int:
        """Bytes held of incomplete messages."""
        return len(self._buffer) + self._long.pending_bytes

    def feed(self, data: bytes) -> list[Message]:
        """The messages that `data` completes."""
        buffer = self._buffer
        source: bytes | bytearray = data  # most often whole frames
        if buffer:
            buffer += data
            source = buffer
        messages: list[Message] = []
        at = 0
        end = len(source)
        while end - at >= HEADER_BYTES:
            start = at + HEADER_BYTES
            header = length = int.from_bytes(source[at:start], "big")
            is_piece = length > self._bytes_max
            if is_piece:
                length = self._long.length(header, self._bytes_max)
            if end - start < length:
                break
            at = start + length
            if not is_piece:
                messages.append(decode_message(source[start:at]))
            elif (body := self._long.take(header, source[start:at])) is not None:
                messages.append(decode_message(body))
        if source is buffer:
            del buffer[:at]
        elif at < end:
            buffer += data[at:]
        return messages


def decode_message(body: bytes | bytearray) -> Message:
    """One message from its msgpack form."""
    try:
        message: Message = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"not a message: {error}") from error
    return message
