"""Messages between tools (validation, debugging) and an agent about its copies.

They are part of `message.Message` and use the same links.
"""

import msgspec

from quorate.facts.lineage import Lineage

DIGESTS_ASKED_MAX = 64
"""Copies per request for digests: each may have a thousand changed rows to hash."""

ASKED_MS_MAX = 10_000
"""An agent gives up a refill, or the repair of a key, not requested again for this long."""


class AskCopies(msgspec.Struct, frozen=True, array_like=True, tag=60):
    """Lists this agent's copies of a zone (by name), of all partitions or of one."""

    zone_name: str
    partition: int | None = None


class CopyState(msgspec.Struct, frozen=True, array_like=True):
    """One copy for a validator: counters, held ranges above LWM (`above`), lineage, size, state.

    `state` is a value of facts.copy_state.  `majority`: up to this counter the copy has every
    update, and knows that a quorum has; -1: an agent of an earlier version does not say.
    """

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
    majority: int = -1


class Copies(msgspec.Struct, frozen=True, array_like=True, tag=61):
    """Reply to AskCopies.  `problem` is empty if the zone is here.

    `partitions`: of the zone; 0: an agent of an earlier version does not say.  `uid`: of the zone;
    empty: such an agent, or no zone.  `times`: how long the reads of the zone's clients took since
    the agent's process began, and then its writes: (upper bound in microseconds, commands), -1: no
    bound; empty: such an agent, or no zone.
    """

    zone_name: str
    node: str
    copies: tuple[CopyState, ...]
    problem: str = ""
    partitions: int = 0
    uid: str = ""
    times: tuple[tuple[tuple[int, int], ...], ...] = ()


class AskRows(msgspec.Struct, frozen=True, array_like=True, tag=62):
    """Reads a copy's rows with key > after, tombstones included.

    With `buckets`, only rows whose key is in one of them (copies/totals.py).
    """

    zone_name: str
    partition: int
    after: bytes | None
    bytes_max: int
    buckets: tuple[int, ...] = ()


class CopyRows(msgspec.Struct, frozen=True, array_like=True, tag=63):
    """Rows of a copy as (key, counter, term, expires_at, value).  `next` None: these are the last
    ones."""

    zone_name: str
    partition: int
    next: bytes | None
    lwm: int
    rows: tuple[tuple[bytes, int, int, int, bytes | None], ...]
    problem: str = ""


class Damage(msgspec.Struct, frozen=True, array_like=True, tag=64):
    """Debugging (off by default): overwrites one row of this copy, bypassing the protocol."""

    zone_name: str
    key: bytes
    value: bytes


class Damaged(msgspec.Struct, frozen=True, array_like=True, tag=65):
    """Reply to Damage."""

    problem: str = ""


class AskDigests(msgspec.Struct, frozen=True, array_like=True, tag=66):
    """Asks for the present digests of at most DIGESTS_ASKED_MAX copies.

    `marks` (one per partition, 0: none) also asks for the digest that each copy has when its LWM is
    that counter; a later reply contains it.
    """

    zone_name: str
    partitions: tuple[int, ...]
    marks: tuple[int, ...] = ()


class CopyDigest(msgspec.Struct, frozen=True, array_like=True):
    """The digest of one copy's rows at `lwm`, and the one at `mark` (0: none)."""

    partition: int
    term: int
    adopted: bool
    lwm: int
    rows: int
    digest: bytes
    mark: int = 0
    mark_digest: bytes = b""


class Digests(msgspec.Struct, frozen=True, array_like=True, tag=67):
    """Reply to AskDigests.

    Copies that are not here are left out, and so are those whose rows take longer to count than one
    request allows; a repeated request returns more.
    """

    zone_name: str
    node: str
    copies: tuple[CopyDigest, ...]
    problem: str = ""


class AskBuckets(msgspec.Struct, frozen=True, array_like=True, tag=68):
    """Asks for the digests of a copy's rows by bucket of the key's hash, to locate a difference.

    It covers rows with key > after and counter <= upto.
    """

    zone_name: str
    partition: int
    upto: int
    after: bytes | None


class Buckets(msgspec.Struct, frozen=True, array_like=True, tag=69):
    """Reply to AskBuckets: (bucket, rows, digest) of the rows read.  `next` None: these are the
    last ones."""

    zone_name: str
    partition: int
    next: bytes | None
    lwm: int
    shares: tuple[tuple[int, int, bytes], ...]
    problem: str = ""


class Refill(msgspec.Struct, frozen=True, array_like=True, tag=70):
    """Asks to fetch the rows of this agent's copy anew, from the copies of `suppliers`.

    The tool repeats it with the same `token` until it is done.  Without repetition the agent gives
    up.
    """

    zone_name: str
    partition: int
    token: str
    suppliers: tuple[str, ...]


class Refilling(msgspec.Struct, frozen=True, array_like=True, tag=71):
    """Reply to Refill: its progress, or the problem that prevents it."""

    zone_name: str
    partition: int
    done: bool = False
    waits_for: str = ""
    bytes_done: int = 0
    bytes_total: int = 0
    problem: str = ""


class AskAside(msgspec.Struct, frozen=True, array_like=True, tag=72):
    """Lists what this agent has set aside of a zone (by name), of partitions above `after`."""

    zone_name: str
    after: int = -1


class RowsAside(msgspec.Struct, frozen=True, array_like=True):
    """Rows of one copy that are set aside, because a reset left them.

    - `generation`: names them, with the partition
    - `since_ms`, `until_ms`: when they were set aside, and when they are dropped (wall clock)
    - `reset_term`, `last_term`, `lwm`: the term of the reset; the copy's position then
    - `rows`, `bytes`: live ones, without tombstones
    """

    partition: int
    generation: int
    since_ms: int
    until_ms: int
    reset_term: int
    last_term: int
    lwm: int
    rows: int
    bytes: int


class SetAside(msgspec.Struct, frozen=True, array_like=True, tag=73):
    """Reply to AskAside, in order of partition.  `next`: go on after this one; None: it is all."""

    zone_name: str
    node: str
    found: tuple[RowsAside, ...]
    next: int | None = None
    problem: str = ""


class AskValues(msgspec.Struct, frozen=True, array_like=True, tag=74):
    """Reads rows as clients see them, keys > after; with `key` that one alone.

    `generation`: of rows that are set aside; None: the present rows of the copy.
    """

    zone_name: str
    partition: int
    generation: int | None
    after: bytes | None = None
    key: bytes | None = None


class Value(msgspec.Struct, frozen=True, array_like=True):
    """One key as clients see it.

    - `kind`: as the command TYPE answers; `none`: the key was deleted
    - `items`: the string; or all fields and values, members or elements.  None: they are too long
      for an answer about many keys, or not readable (`kind` is then empty)
    - `bytes`: length of the stored value
    """

    key: bytes
    counter: int
    term: int
    expires_at: int
    kind: str
    items: tuple[bytes, ...] | None
    bytes: int


class Values(msgspec.Struct, frozen=True, array_like=True, tag=75):
    """Reply to AskValues.  `next`: go on after this key; None: these are the last ones."""

    zone_name: str
    partition: int
    next: bytes | None
    values: tuple[Value, ...]
    problem: str = ""


class RepairKey(msgspec.Struct, frozen=True, array_like=True, tag=76):
    """Asks the primary to write this row of a key, if its own is still that of (counter, term).

    - `term` 0: it has no row, and nothing wrote the key above `counter`
    - `value`: as stored; None: the key is deleted
    - `uid`: of the zone; an agent that has another one of this name refuses.  Empty: any will do

    The tool repeats it until it is done.
    """

    zone_name: str
    partition: int
    key: bytes
    counter: int
    term: int
    value: bytes | None
    expires_at: int
    uid: str = ""


class KeyRepaired(msgspec.Struct, frozen=True, array_like=True, tag=77):
    """Reply to RepairKey: the version of the row that is written, and whether a quorum has it.

    - `waits_for`: what it waits for; the request is to be repeated
    - `changed`: the key has another row than expected and than wanted; nothing is written
    - `problem`: why nothing is written
    """

    counter: int = 0
    term: int = 0
    done: bool = False
    waits_for: str = ""
    changed: str = ""
    problem: str = ""


class HandOver(msgspec.Struct, frozen=True, array_like=True, tag=78):
    """Asks that another agent be primary of the partition; the tool repeats it while it shall be
    so."""

    zone_name: str
    partition: int


class HandedOver(msgspec.Struct, frozen=True, array_like=True, tag=79):
    """Reply to HandOver.  `done`: the agent that was asked is not the primary."""

    done: bool = False
    problem: str = ""


class AskUpdates(msgspec.Struct, frozen=True, array_like=True, tag=90):
    """Reads updates of a copy's log, with after < counter <= upto."""

    zone_name: str
    partition: int
    after: int
    upto: int


class UpdatesTold(msgspec.Struct, frozen=True, array_like=True, tag=91):
    """Reply to AskUpdates: encoded updates of the copy's history, in order of their counters.

    - `lwm`: the copy's; no update above it is told
    - `reaches_from`: the log has everything above this counter
    - `next`: go on after this counter; None: these are the last ones
    """

    zone_name: str
    partition: int
    next: int | None
    lwm: int
    reaches_from: int
    updates: tuple[bytes, ...]
    problem: str = ""


class RestoreRows(msgspec.Struct, frozen=True, array_like=True, tag=92):
    """Asks the primary to write these rows (key, value as stored, expires_at), in one update.

    - `replaces`: they replace other rows of their keys.  Else a key that has a row is left alone
    - `written`: (counter, term) of an earlier answer to this request.  In that term the rows are
      not written again, whatever a client has made of them since
    - `uid`: of the zone; an agent that has another one of this name refuses.  Empty: any will do

    The tool repeats the request until it is done.
    """

    zone_name: str
    partition: int
    rows: tuple[tuple[bytes, bytes, int], ...]
    replaces: bool = False
    written: tuple[int, int] = (0, 0)
    uid: str = ""


class RowsRestored(msgspec.Struct, frozen=True, array_like=True, tag=93):
    """Reply to RestoreRows.

    - `done`: a quorum has the rows
    - `kept`: keys that have another row than the one asked for
    - `waits_for`: what it waits for; the request is to be repeated
    - `problem`: why nothing is written
    - `written`: with `replaces`, (counter, term) of the last update that has rows of the request
    """

    done: bool = False
    kept: tuple[bytes, ...] = ()
    waits_for: str = ""
    problem: str = ""
    written: tuple[int, int] = (0, 0)


class AskColumns(msgspec.Struct, frozen=True, array_like=True, tag=94):
    """Reads a copy's rows with first <= key < before, tombstones included, as columns.

    `before` None: to the end of the keys.  Without `values` the reply has none.
    """

    zone_name: str
    partition: int
    first: bytes
    bytes_max: int
    before: bytes | None = None
    values: bool = True


class CopyColumns(msgspec.Struct, frozen=True, array_like=True, tag=95):
    """Reply to AskColumns: rows in key order, each column in one piece.

    - `next`: go on with this key; None: these are the last ones of the range
    - `rows`: how many there are
    - `keys`, `key_sizes`; `values`, `value_sizes`: all of them one after the other; the length of
      each, as unsigned little-endian integers of 32 bits
    - `heads`: of each row counter, term and expires_at, as unsigned big-endian integers of 64 bits,
      and a byte that is 1 for a tombstone, 0 for others (storage.ROW_HEAD)
    """

    zone_name: str
    partition: int
    next: bytes | None
    lwm: int
    rows: int
    keys: bytes
    key_sizes: bytes
    heads: bytes
    values: bytes
    value_sizes: bytes
    problem: str = ""


class AskPaced(msgspec.Struct, frozen=True, array_like=True, tag=96):
    """Asks that this link's readings of rows and updates be paced, from now on.

    All paced links of an agent together get at most the lowest rate that one of them asks for;
    links that have asked nothing for a while do not count.  `bytes_per_s`: 1 MiB at least.
    """

    bytes_per_s: int


class Paced(msgspec.Struct, frozen=True, array_like=True, tag=97):
    """Reply to AskPaced: the rate that paced links of this agent have now, together."""

    bytes_per_s: int
    problem: str = ""


class AnswerLater(msgspec.Struct, frozen=True, array_like=True, tag=98):
    """Says on a paced link that the answer is still to come; repeated while its turn has not come.

    `waiting`: questions that wait at this agent.
    """

    waiting: int


PacedQuestion = AskColumns | AskRows | AskUpdates | AskBuckets
"""Questions that wait for their turn on a paced link."""

FromTool = (
    AskCopies
    | AskRows
    | AskDigests
    | AskBuckets
    | Damage
    | Refill
    | AskAside
    | AskValues
    | RepairKey
    | HandOver
    | AskUpdates
    | RestoreRows
    | AskColumns
    | AskPaced
)
ToTool = (
    Copies
    | CopyRows
    | Digests
    | Buckets
    | Damaged
    | Refilling
    | SetAside
    | Values
    | KeyRepaired
    | HandedOver
    | UpdatesTold
    | RowsRestored
    | CopyColumns
    | Paced
    | AnswerLater
)
