"""Encodes messages as frames of a peer connection, and decodes frames.

A frame is a four-byte big-endian length, then one message in msgpack.  A length above the limit, an
unknown tag or a field of the wrong type is a WireError: the connection that sent it is closed.
A long message is several frames (long_frames.py).
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from quorate.facts.errors import WireError
from quorate.protocol.messages.handshake import FRAME_BYTES_MAX, Challenge, Hello, Proof, Refused
from quorate.protocol.messages.message import MAY_SEND, Message
from quorate.wire.long_frames import HEADER_BYTES, LONG_BYTES, LongFrame, LongFrames

Opening = Challenge | Proof | Refused | Hello
"""Frames allowed before the proofs; earlier versions sent a Hello so early."""
Said = Hello | Refused
Decode = Callable[[bytes | bytearray], Message]
T = TypeVar("T")

_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
_opening_decoder: msgspec.msgpack.Decoder[Opening] = msgspec.msgpack.Decoder(Opening)
_said_decoder: msgspec.msgpack.Decoder[Said] = msgspec.msgpack.Decoder(Said)


def encode_frame(message: Message | Challenge | Proof) -> bytes:
    """One message as a frame."""
    body = _encode(message)
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def encode_to_send(message: Message) -> bytes | LongFrame:
    """One message as a link sends it: as a frame, or in pieces when it is long."""
    body = _encode(message)
    if HEADER_BYTES + len(body) > LONG_BYTES:
        return LongFrame(body)
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def _encode(message: Message | Challenge | Proof) -> bytes:
    body = _encoder.encode(message)
    if len(body) > FRAME_BYTES_MAX:
        raise WireError(f"{type(message).__name__} of {len(body)} bytes: limit {FRAME_BYTES_MAX}")
    return body


def decode_message(body: bytes | bytearray) -> Message:
    """One message from its msgpack form, whoever may send it."""
    return _decoded(_decoder, body, "not a message")


def decoder_of(sender: str, receiver: str) -> Decode:
    """Make a decoder of the messages that `sender` may send to `receiver`; refuses all others."""
    decoder = msgspec.msgpack.Decoder(MAY_SEND[sender, receiver])

    def decode(body: bytes | bytearray) -> Message:
        try:
            message: Message = decoder.decode(body)
        except _ERRORS:
            name = type(decode_message(body)).__name__  # WireError where it is no message at all
            raise WireError(f"{name}: a {sender} may not send it to a {receiver}") from None
        return message

    return decode


def decode_opening(body: bytes | bytearray) -> Opening:
    """A frame that came before the proofs."""
    return _decoded(_opening_decoder, body, "not the beginning of a link")


def encode_said(said: Said) -> bytes:
    """Encode the Hello or Refused of a Proof, in the form that its `mac` covers."""
    return _encoder.encode(said)


def decode_said(body: bytes) -> Said:
    """Decode the Hello or Refused inside a Proof."""
    return _decoded(_said_decoder, body, "the proof contains no Hello")


def _decoded(decoder: msgspec.msgpack.Decoder[T], body: bytes | bytearray, what: str) -> T:
    try:
        return decoder.decode(body)
    except _ERRORS as error:
        raise WireError(f"{what}: {error}") from error


def next_frame(buffer: bytearray, bytes_max: int) -> bytes | None:
    """Take the first whole frame's body out of `buffer`; None while it is not whole."""
    if len(buffer) < HEADER_BYTES:
        return None
    length = int.from_bytes(buffer[:HEADER_BYTES], "big")
    if length > bytes_max:
        raise WireError(f"frame of {length} bytes: limit {bytes_max}")
    end = HEADER_BYTES + length
    if len(buffer) < end:
        return None
    body = bytes(buffer[HEADER_BYTES:end])
    del buffer[:end]
    return body


class FrameReader:
    """Cuts a byte stream into messages.  After a WireError it must not be fed again."""

    __slots__ = ("_buffer", "_bytes_max", "_decode", "_long")

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX, decode: Decode = decode_message) -> None:
        self._buffer = bytearray()
        self._bytes_max = bytes_max
        self._decode = decode
        self._long = LongFrames()

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
        decode = self._decode
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
                messages.append(decode(source[start:at]))
                continue
            with memoryview(source) as view, view[start:at] as some:
                body = self._long.take(header, some)
            if body is not None:
                messages.append(decode(body))
        if source is buffer:
            del buffer[:at]
        elif at < end:
            buffer += data[at:]
        return messages
