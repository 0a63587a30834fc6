"""The handshake: both sides of a connection prove that they know the cluster's secret.

No I/O: bytes in, bytes out.

    dialing side                                   accepting side
    Challenge(role, cluster id, nonce)   ------>
                                         <------   Challenge(role, cluster id, nonce)
    Proof(mac, Hello)                    ------>   checked
    checked                              <------   Proof(mac, Hello or Refused)

Both proofs are made with the key of the dialing side's role. So a process that has only a tool's
key is believed as a tool and nothing else. A proof covers its direction, both challenges and what
is said: it is of no use on another connection, in the other direction, or beside another Hello.
Until the other side is proven, only small frames are taken, and of what it says only the sentence
of a refusal is used. The challenges say which formats each side speaks; the link speaks the highest
common one. Source: docs/protocol.md, section 3.
"""

import hmac
import secrets
from collections.abc import Callable
from typing import Final

import msgspec

from quorate.facts.errors import QuorateError
from quorate.protocol.messages.formats import SPOKEN, Formats
from quorate.protocol.messages.handshake import (
    NONCE_BYTES,
    Challenge,
    Hello,
    Proof,
    RefusalCode,
    Refused,
)
from quorate.protocol.messages.message import MAY_SEND
from quorate.wire.frames import (
    decode_opening,
    decode_said,
    encode_frame,
    encode_said,
    next_frame,
)
from quorate.wire.long_frames import HEADER_BYTES
from quorate_link.secret import RoleKeys

OPENING_BYTES_MAX: Final = 8 * 1024
"""Largest frame before the proofs, so that an unknown side can occupy only little memory."""
_DIALING: Final = b"quorate link 2, dialing side"
_ACCEPTING: Final = b"quorate link 2, accepting side"
_OF_STRANGERS: Final = (RefusalCode.FORMAT, RefusalCode.CLUSTER, RefusalCode.SECRET)
"""Codes that an unproven side may refuse with. They have no effect."""

SayHello = Callable[[], Hello]
Judge = Callable[[Hello], Refused | None]


class Unproven(QuorateError):
    """The other side is not believed. `code`: the reason, for programs."""

    def __init__(self, reason: str, code: str) -> None:
        super().__init__(reason)
        self.code = code


class Handshake:
    """One side of the handshake of one connection. It must not be fed after Unproven or WireError.

    When it is over, `hello` is the other side's proven Hello, or `refused` is its refusal.
    """

    def __init__(
        self,
        keys: RoleKeys,
        hello: SayHello,
        *,
        dialed: bool,
        judge: Judge = lambda hello: None,
        bytes_max: int = OPENING_BYTES_MAX,
        formats: Formats = SPOKEN,
    ) -> None:
        """Begin. `judge`: whether the accepting side takes a proven Hello. `formats`: ours."""
        self.hello: Hello | None = None
        self.refused: Refused | None = None
        self.rejected: Refused | None = None
        """The refusal that `judge` returned; None if it accepted the Hello."""
        self.is_proven = False
        """Whether the other side has proven that it knows the secret, even if it is refused."""
        self.format = formats.lowest
        """The format that both sides speak, once the other side's Challenge has come."""
        self._formats = formats
        self._keys = keys
        self._say_hello = hello
        self._judge = judge
        self._dialed = dialed
        self._bytes_max = bytes_max
        self._buffer = bytearray()
        self._outgoing = bytearray()
        self._over = False
        self._key = b""
        mine = hello()
        self._challenge = Challenge(
            formats.lowest,
            mine.role,
            mine.cluster,
            keys.cluster_id,
            secrets.token_bytes(NONCE_BYTES),
            formats.highest,
        )
        self._sent = encode_frame(self._challenge)
        self._said = b""
        self._theirs: Challenge | None = None
        self._received = b""
        if dialed:
            self._outgoing += self._sent

    def take_outgoing(self) -> bytes:
        """Take the bytes that are to be sent now."""
        data = bytes(self._outgoing)
        self._outgoing.clear()
        return data

    def feed(self, data: bytes) -> bytes | None:
        """Take received bytes. Return None until the handshake is over, then the bytes after it."""
        self._buffer += data
        while not self._over:
            body = next_frame(self._buffer, self._bytes_max)
            if body is None:
                return None
            self._take(body)
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    def _take(self, body: bytes) -> None:
        match decode_opening(body):
            case Refused(reason=reason, code=code):
                # Its other fields, as a master's term, have no proof.
                self.refused = Refused(reason, code if code in _OF_STRANGERS else "")
                self._over = True
            case Hello(role=role, node=node):
                raise Unproven(
                    f"{node or role} says Hello without a proof that it knows the cluster's secret:"
                    " run the same version of Quorate on both sides",
                    RefusalCode.FORMAT,
                )
            case Challenge() as challenge if self._theirs is None:
                self._take_challenge(challenge, body)
            case Proof() as proof if self._theirs is not None:
                self._take_proof(proof, self._theirs)
            case opening:
                raise Unproven(
                    f"{type(opening).__name__} came out of order: its cluster's secret was not"
                    " proven to be known",
                    RefusalCode.SECRET,
                )

    def _take_challenge(self, theirs: Challenge, body: bytes) -> None:
        self._check(theirs)
        self._theirs, self._received = theirs, body
        self._key = self._keys.by_role[self._challenge.role if self._dialed else theirs.role]
        if self._dialed:
            self._said = encode_said(self._my_hello())
            mac = self._mac(_DIALING, self._said)
            self._outgoing += encode_frame(Proof(mac, self._said))
        else:
            self._outgoing += self._sent

    def _check(self, theirs: Challenge) -> None:
        mine = self._challenge
        spoken = Formats(theirs.format_version, theirs.format_highest or theirs.format_version)
        common = self._formats.common(spoken)
        if common is None:
            raise Unproven(
                f"this {mine.role} speaks {self._formats}, the {theirs.role} on the other side"
                f" {spoken}: upgrade the older one, first to a version of Quorate that lies"
                " between them and speaks a format of each",
                RefusalCode.FORMAT,
            )
        self.format = common
        if theirs.cluster_id != mine.cluster_id:
            raise Unproven(
                f"this {mine.role} belongs to cluster {mine.cluster!r} (id {mine.cluster_id}), the"
                f" {theirs.role} on the other side to cluster {theirs.cluster!r} (id"
                f" {theirs.cluster_id}): check the address, and that both have the same secret",
                RefusalCode.CLUSTER,
            )
        dialing, accepting = (mine, theirs) if self._dialed else (theirs, mine)
        if (dialing.role, accepting.role) not in MAY_SEND or dialing.role not in self._keys.by_role:
            raise Unproven(
                f"a {dialing.role!r} has nothing to say to this {accepting.role}: check the"
                " address",
                RefusalCode.ROLE,
            )
        if len(theirs.nonce) != NONCE_BYTES or theirs.nonce == mine.nonce:
            raise Unproven(
                "its challenge is none, or our own sent back: its cluster's secret was not proven"
                " to be known",
                RefusalCode.SECRET,
            )

    def _take_proof(self, proof: Proof, theirs: Challenge) -> None:
        if self._dialed:
            expected = self._mac(_ACCEPTING, self._said, proof.said)
        else:
            expected = self._mac(_DIALING, proof.said)
        if not hmac.compare_digest(expected, proof.mac):
            raise Unproven(
                f"this {theirs.role} does not prove that it knows the secret of cluster"
                f" {self._challenge.cluster!r} (id {theirs.cluster_id}): give it the secret that"
                " the operator has",
                RefusalCode.SECRET,
            )
        said = decode_said(proof.said)
        if isinstance(said, Hello) and said.role != theirs.role:
            raise Unproven(
                f"{said.node or said.role} says it is a {said.role} and has proven to be a"
                f" {theirs.role}",
                RefusalCode.ROLE,
            )
        self.is_proven = True
        if isinstance(said, Refused):
            self.refused = said
        elif self._dialed:
            self.hello = said
        else:
            self._answer(said, proof.said)
        self._over = True

    def _answer(self, hello: Hello, said: bytes) -> None:
        """Prove this side to a dialing side that is proven, even if it is refused.

        What the other side does about a refusal depends on which process says it.
        """
        self.rejected = self._judge(hello)
        answer = encode_said(self.rejected or self._my_hello())
        self._outgoing += encode_frame(Proof(self._mac(_ACCEPTING, said, answer), answer))
        if self.rejected is None:
            self.hello = hello

    def _my_hello(self) -> Hello:
        return msgspec.structs.replace(self._say_hello(), format_version=self.format)

    def _mac(self, direction: bytes, *said: bytes) -> bytes:
        mine, theirs = self._sent[HEADER_BYTES:], self._received
        challenges = (mine, theirs) if self._dialed else (theirs, mine)
        parts = [direction, *challenges, *said]
        covered = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(self._key, covered, "sha256")
