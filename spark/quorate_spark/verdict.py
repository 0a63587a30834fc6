"""The result of a validation, for people and programs: agree, differ, could not tell.

A proven difference outweighs what could not be told elsewhere.  Agreement requires that everything
could be told.
"""

import enum
import hashlib
from collections.abc import Iterator, Mapping

import msgspec

from quorate.facts.read_limit import MIB
from quorate.wire.jobs.zone_history import ZoneHistory


class Outcome(enum.StrEnum):
    """The answer to "do all copies agree?"."""

    AGREE = "agree"
    DIFFER = "differ"
    UNKNOWN = "could not tell"

    @property
    def exit_code(self) -> int:
        """The exit code of the process."""
        return {Outcome.AGREE: 0, Outcome.DIFFER: 1, Outcome.UNKNOWN: 2}[self]


class Level(enum.StrEnum):
    """How deeply copies are compared."""

    COUNTERS = "counters"
    DIGEST = "digest"
    ROWS = "rows"


class Mode(enum.StrEnum):
    """Treatment of writes during the run.

    LIVE: clients may write meanwhile.  IDLE: nothing was written, or the verdict is UNKNOWN.
    """

    LIVE = "live"
    IDLE = "idle"


class CopyCounters(msgspec.Struct, frozen=True):
    """The counter state of one copy in a report.

    Ranges are inclusive; lineage entries are (term, first counter) above a base (term, counter).
    """

    node: str
    replica_index: int
    version: int
    term: int
    lwm: int
    hwm: int
    above: tuple[tuple[int, int], ...]
    lineage_base: tuple[int, int]
    lineage: tuple[tuple[int, int], ...]


class CounterDifference(msgspec.Struct, frozen=True):
    """Copies of one partition whose counters cannot all be right.

    `what`: lwm (a copy lacks updates and does not catch up), hwm (a copy knows of counters that no
    copy holds), lineage (the same counter in different terms).
    """

    partition: int
    what: str
    detail: str
    copies: tuple[CopyCounters, ...]


class CopyChange(msgspec.Struct, frozen=True):
    """A copy that was not the same before and after a run in which nothing may be written.

    None: there was, or is, no copy.  A copy whose agent's process is another one has changed, too.
    """

    partition: int
    node: str
    before: CopyCounters | None
    after: CopyCounters | None


class CopyRow(msgspec.Struct, frozen=True):
    """One copy's row of a key in a report; not `present`: the copy has no row.

    `expires_at`: wall milliseconds, 0 never.  A tombstone has no value: `value_bytes` is -1.
    """

    node: str
    replica_index: int
    present: bool
    counter: int = 0
    term: int = 0
    expires_at: int = 0
    tombstone: bool = False
    value_bytes: int = -1
    value_sha256: str = ""


class KeyDifference(msgspec.Struct, frozen=True):
    """One settled key on which the copies of its partition differ.

    `key` is for people (bytes that are not printable UTF-8 are escaped), `key_hex` exact.  `what`
    names what differs: missing, tombstone, counter, term, expires_at, value, repeated, hwm (a
    counter that was never given out).  `settled_upto`: every copy held all updates up to it before
    the key was read again.
    """

    partition: int
    key: str
    key_hex: str
    what: tuple[str, ...]
    copies: tuple[CopyRow, ...]
    settled_upto: int = 0


class CopyDigestTold(msgspec.Struct, frozen=True):
    """One copy's digest in a report, in hex."""

    node: str
    digest: str


class OutvotedCopy(msgspec.Struct, frozen=True):
    """A copy that a majority of its partition's copies contradicts.

    Rows may be taken from the copies of `suppliers`.
    """

    partition: int
    node: str
    suppliers: tuple[str, ...]


class DigestDifference(msgspec.Struct, frozen=True):
    """One partition whose copies told different digests at `counter`.

    `buckets`: the differing ranges of the keys' hash (0 to 255); only their rows were read.
    `rows_read`: of all copies together.  `keys`: of the confirmed differences that are listed, for
    people: none if the list was full before.  `confirmed`: a key is confirmed to differ.
    """

    partition: int
    counter: int
    copies: tuple[CopyDigestTold, ...]
    buckets: tuple[int, ...]
    rows_read: int
    keys: tuple[str, ...] = ()
    confirmed: bool = False


class DigestFigures(msgspec.Struct, frozen=True):
    """The figures of level digest.

    `rows_unread`: rows found equal by digest alone, each counted once; `rows_read`: rows of
    differing buckets, counted once per copy and reading.
    """

    partitions_compared: int
    partitions_differing: int
    rows_unread: int
    rows_read: int
    differing: tuple[DigestDifference, ...]


class ClientTimes(msgspec.Struct, frozen=True):
    """Times in which a zone's clients got replies while it was validated, in milliseconds.

    `p99_before_ms`: of all commands since the agents began; `added_p99_ms`: the difference.
    """

    commands: int
    p99_ms: float
    p99_before_ms: float
    added_p99_ms: float


class AnswerRate(msgspec.Struct, frozen=True):
    """The bytes that agents answered in a run, of counters, digests and rows, without attempts of
    Spark's tasks that failed.  For digests of a range they read its rows, and answer less.

    `bytes`: of all agents.  `busiest_node` answered the most; `busiest_mib_per_s`: how many in each
    second, on average over the `seconds` of the run.
    """

    bytes: int
    seconds: float
    busiest_node: str
    busiest_mib_per_s: float


def answer_rate(received: Mapping[str, int], seconds: float) -> AnswerRate | None:
    """Return the rate of a run from the bytes of each agent; None if no agent answered."""
    if not received or seconds <= 0:
        return None
    node = max(sorted(received), key=received.__getitem__)
    mib_per_s = received[node] / MIB / seconds
    return AnswerRate(sum(received.values()), round(seconds, 3), node, round(mib_per_s, 3))


class Verdict(msgspec.Struct, frozen=True):
    """The whole result.  Counts of keys are over the partitions whose rows were compared.

    `reasons`: why it could not be told (for some part, if the outcome is differ).  `notes`: what a
    reader should know that does not change the outcome.  `differing_keys`: all keys seen to differ;
    `confirmed_keys`: those that were read again and differed in the same way;
    `differing_partitions`: those with differing counters.  `started_ms`: wall milliseconds.
    `rows_compared`: compared keys times their copies.  `keys_hashed`: see with_hashed_keys.
    `classes`: how many differ or were not
    judged, by DifferenceClass.  `digests`: only at level digest.
    `outvoted` copies can be refilled; in `undecided` partitions no majority agrees.  The lists are
    bounded, the counts are not.  `copies_expected`: as the zone declares them, 0: not known.
    `client_reads`, `client_writes`: None: too few to tell, or agents do not tell.
    `history`: the zone's recent past as the operator has told it; None: it has not.
    `max_mib_per_second_per_agent`: the limit of the run; None: none.
    `zone_uid`: of the zone, as its agents tell it; empty: they do not, they tell of two zones, or
    an earlier version made the record.  `changes`: what kept mode idle from being told, of
    `changed_partitions`.  `answered`: None: nothing was read, a Spark job failed, so
    that it is not known, or an earlier version made the record.
    """

    zone: str
    level: Level
    outcome: Outcome
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    partitions: int = 0
    copies: int = 0
    settled_keys: int = 0
    unsettled_keys: int = 0
    differing_keys: int = 0
    confirmed_keys: int = 0
    differing_partitions: int = 0
    classes: dict[str, int] = {}
    counter_differences: tuple[CounterDifference, ...] = ()
    key_differences: tuple[KeyDifference, ...] = ()
    digests: DigestFigures | None = None
    outvoted: tuple[OutvotedCopy, ...] = ()
    undecided: tuple[int, ...] = ()
    duration_ms: int = 0
    started_ms: int = 0
    rows_compared: int = 0
    keys_hashed: bool = False
    copies_expected: int = 0
    client_reads: ClientTimes | None = None
    client_writes: ClientTimes | None = None
    history: ZoneHistory | None = None
    max_mib_per_second_per_agent: int | None = None
    answered: AnswerRate | None = None
    zone_uid: str = ""
    mode: Mode = Mode.LIVE
    changes: tuple[CopyChange, ...] = ()
    changed_partitions: int = 0

    @property
    def exit_code(self) -> int:
        """The exit code: 0 agree, 1 differ, 2 could not tell."""
        return self.outcome.exit_code


CHANGE_HEADINGS = ("partition", "node", "", "replica index", "version", "term", "LWM", "HWM")


def change_title(verdict: Verdict) -> str:
    """Return how many partitions changed, and how many of them are listed."""
    count, listed = verdict.changed_partitions, len({each.partition for each in verdict.changes})
    more = f", {listed:,} listed" if listed < count else ""
    return f"{count:,} partition{'' if count == 1 else 's'} changed meanwhile{more}"


def change_rows(verdict: Verdict) -> Iterator[tuple[str, ...]]:
    """Yield the cells under CHANGE_HEADINGS: two rows for each copy that changed."""
    for change in verdict.changes:
        place = (str(change.partition), change.node)
        yield (*place, "before", *_change_cells(change.before))
        yield (*place, "after", *_change_cells(change.after))


def _change_cells(copy: CopyCounters | None) -> tuple[str, ...]:
    if copy is None:
        return ("no copy", "-", "-", "-", "-")
    index = str(copy.replica_index)
    return (index, str(copy.version), str(copy.term), str(copy.lwm), str(copy.hwm))


def rate_text(rate: AnswerRate, level: Level) -> str:
    """Return the rate in words."""
    told = (
        f"{rate.bytes / MIB:,.1f} MiB in {rate.seconds:,.1f} s; most by {rate.busiest_node}:"
        f" {rate.busiest_mib_per_s:,.2f} MiB/s"
    )
    if level is Level.DIGEST:
        told += "; at this level agents read more than they answer"
    return told


def with_hashed_keys(verdict: Verdict) -> Verdict:
    """Return the verdict with a hash in place of each key, so that it names no data.

    Equal keys have equal hashes: so a reader who knows a key finds it.
    """

    def hashed(difference: KeyDifference) -> KeyDifference:
        name = _hash(bytes.fromhex(difference.key_hex))
        return msgspec.structs.replace(difference, key=name, key_hex="")

    named: dict[int, list[str]] = {}
    keys = tuple(hashed(each) for each in verdict.key_differences)
    for each in keys:
        named.setdefault(each.partition, []).append(each.key)
    digests = verdict.digests
    if digests is not None:
        differing = tuple(
            msgspec.structs.replace(each, keys=tuple(named.get(each.partition, ())))
            for each in digests.differing
        )
        digests = msgspec.structs.replace(digests, differing=differing)
    return msgspec.structs.replace(verdict, key_differences=keys, digests=digests, keys_hashed=True)


def _hash(key: bytes) -> str:
    return f"sha256:{hashlib.sha256(key).hexdigest()[:16]}"


def could_not_tell(zone: str, level: Level, *reasons: str) -> Verdict:
    """Return the verdict of a validation that could not begin."""
    return Verdict(zone, level, Outcome.UNKNOWN, reasons)
