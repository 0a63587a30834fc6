"""What tools may ask an agent about its copies: messages of validators and people with a debugger.

They are part of `message.Message` and travel on the same links.
"""

import msgspec

from quorate.facts.lineage import Lineage

DIGESTS_ASKED_MAX = 64
"""Copies asked for their digests at once: each may have a thousand changed rows to hash."""


class AskCopies(msgspec.Struct, frozen=True, array_like=True, tag=60):
    """List this agent's copies of a zone (by name), of all partitions or of one."""

    zone_name: str
    partition: int | None = None


class CopyState(msgspec.Struct, frozen=True, array_like=True):
    """One copy for a validator: counters, gaps (held ranges above LWM), lineage, size,
    state (facts.copy_state)."""

    partition: int
    replica_index: int
    version: int
    term: int
    adopted: bool
    lwm: int
    hwm: int
    above: tuple[tuple[int, int], ...]
    lineage: Lineage
    rows: int
    bytes: int
    settled: int
    state: str = ""


class Copies(msgspec.Struct, frozen=True, array_like=True, tag=61):
    """Answer to AskCopies; `problem` is empty when the zone is here."""

    zone_name: str
    node: str
    copies: tuple[CopyState, ...]
    problem: str = ""


class AskRows(msgspec.Struct, frozen=True, array_like=True, tag=62):
    """Read a copy's rows with key > after, tombstones included; with `buckets`, only rows whose
    key is in one of them (protocol.totals)."""

    zone_name: str
    partition: int
    after: bytes | None
    bytes_max: int
    buckets: tuple[int, ...] = ()


class CopyRows(msgspec.Struct, frozen=True, array_like=True, tag=63):
    """Rows of a copy as (key, counter, term, expires_at, value); `next` None: the last of them."""

    zone_name: str
    partition: int
    next: bytes | None
    lwm: int
    rows: tuple[tuple[bytes, int, int, int, bytes | None], ...]
    problem: str = ""


class Damage(msgspec.Struct, frozen=True, array_like=True, tag=64):
    """Debug (off by default): overwrite one row of this copy behind the protocol's back."""

    zone_name: str
    key: bytes
    value: bytes


class Damaged(msgspec.Struct, frozen=True, array_like=True, tag=65):
    """Answer to Damage."""

    problem: str = ""


class AskDigests(msgspec.Struct, frozen=True, array_like=True, tag=66):
    """Digests of these copies now, of DIGESTS_ASKED_MAX at most; with `marks` (one per partition,
    0: none) also the digest each has when its LWM is that counter, told by a later answer."""

    zone_name: str
    partitions: tuple[int, ...]
    marks: tuple[int, ...] = ()


class CopyDigest(msgspec.Struct, frozen=True, array_like=True):
    """What the rows of one copy add up to at `lwm`, and what they did at `mark` (0: none)."""

    partition: int
    term: int
    adopted: bool
    lwm: int
    rows: int
    digest: bytes
    mark: int = 0
    mark_digest: bytes = b""


class Digests(msgspec.Struct, frozen=True, array_like=True, tag=67):
    """Answer to AskDigests: of the copies that are here and need not be counted for longer than an
    agent may; who asks again hears of more."""

    zone_name: str
    node: str
    copies: tuple[CopyDigest, ...]
    problem: str = ""


class AskBuckets(msgspec.Struct, frozen=True, array_like=True, tag=68):
    """Where in a copy's rows a difference may be: digests by range of the keys' hash, of rows with
    key > after and counter <= upto."""

    zone_name: str
    partition: int
    upto: int
    after: bytes | None


class Buckets(msgspec.Struct, frozen=True, array_like=True, tag=69):
    """Answer to AskBuckets: (bucket, rows, digest) of the rows looked at; `next` None: the last."""

    zone_name: str
    partition: int
    next: bytes | None
    lwm: int
    shares: tuple[tuple[int, int, bytes], ...]
    problem: str = ""


class Refill(msgspec.Struct, frozen=True, array_like=True, tag=70):
    """Fetch the rows of this agent's copy anew, from the copies of `suppliers`.  Asked again and
    again with the same `token` until it is done; given up when nobody asks any more."""

    zone_name: str
    partition: int
    token: str
    suppliers: tuple[str, ...]


class Refilling(msgspec.Struct, frozen=True, array_like=True, tag=71):
    """Answer to Refill: how far it is, or the problem on account of which it is not done."""

    zone_name: str
    partition: int
    done: bool = False
    waits_for: str = ""
    bytes_done: int = 0
    bytes_total: int = 0
    problem: str = ""


FromTool = AskCopies | AskRows | AskDigests | AskBuckets | Damage | Refill
ToTool = Copies | CopyRows | Digests | Buckets | Damaged | Refilling
