"""The result of a validation as its program tells it to Kubernetes: the termination message.

A pod of a validation has no rights at the API server.  Its last words are this JSON, at most 4 KiB,
which the kubelet copies into the pod's status and the operator reads from there.
"""

import enum
from collections.abc import Sequence

import msgspec

from quorate.facts.errors import WireError

MESSAGE_BYTES_MAX = 4096
"""The kubelet keeps no more of a termination message."""
REASONS_MAX = 5
OUTVOTED_MAX = 20
TEXT_MAX = 200
"""Characters of one reason."""


class ValidationVerdict(enum.StrEnum):
    """The answer to "do all copies agree?"."""

    AGREE = "Agree"
    DIFFER = "Differ"
    COULD_NOT_TELL = "CouldNotTell"


class ValidationMode(enum.StrEnum):
    """Treatment of writes during the run."""

    LIVE = "Live"
    IDLE = "Idle"


class DifferenceClass(enum.StrEnum):
    """What differs, or was not proven; the counts of a verdict are by these."""

    COUNTER = "counter"
    """Partitions in which a copy lacks updates that others have, and does not catch up."""
    LINEAGE = "lineage"
    """Partitions with the same counter from different terms."""
    GAP = "gap"
    """Partitions with counters that some copy knows of and no copy holds."""
    KEY_COUNTER = "keyCounter"
    """Keys whose rows are of different updates."""
    VALUE = "value"
    """Keys with different values of one length."""
    SIZE = "size"
    """Keys with values of different lengths."""
    EXPIRY = "expiry"
    """Keys that expire at different times."""
    MISSING = "missing"
    """Keys that some copy has and another has not, or has as deleted."""
    OTHER = "other"
    """Keys that differ otherwise."""
    SKIPPED = "skipped"
    """Partitions that could not be judged: nothing is proven about them."""


class Outvoted(msgspec.Struct, frozen=True):
    """A copy that a majority of its partition's copies contradicts."""

    partition: int
    node: str
    suppliers: tuple[str, ...] = ()


class ValidationResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """A verdict in short.  `classes`: counts above 0, by DifferenceClass.

    `reasons`: why something could not be told.  `outvoted`: copies that can be refilled.
    `mode`: None: an earlier version has told the result, or no pod.  `zone_uid`: of the data that
    was compared, as its agents tell it; empty: they do not, or an earlier version has told it.
    """

    verdict: ValidationVerdict
    classes: dict[str, int] = {}
    partitions: int = 0
    copies: int = 0
    settled_keys: int = 0
    unsettled_keys: int = 0
    differing_keys: int = 0
    reasons: tuple[str, ...] = ()
    outvoted: tuple[Outvoted, ...] = ()
    duration_ms: int = 0
    mode: ValidationMode | None = None
    zone_uid: str = ""


def encode_result(result: ValidationResult) -> bytes:
    """Return the message, at most MESSAGE_BYTES_MAX bytes: lists are cut until it fits."""
    outvoted, reasons = result.outvoted[:OUTVOTED_MAX], _shortened(result.reasons)
    while True:
        fitting = msgspec.structs.replace(result, outvoted=outvoted, reasons=reasons)
        message = msgspec.json.encode(fitting)
        if len(message) <= MESSAGE_BYTES_MAX:
            return message
        if outvoted:
            outvoted = outvoted[:-1]
        else:
            reasons = reasons[:-1]


def decode_result(message: str) -> ValidationResult:
    """Return the result in a termination message.  Raises WireError if it is none."""
    try:
        return msgspec.json.decode(message, type=ValidationResult)
    except msgspec.DecodeError as error:
        raise WireError(f"the termination message is no result of a validation: {error}") from error


def _shortened(reasons: Sequence[str]) -> tuple[str, ...]:
    kept = [
        each if len(each) <= TEXT_MAX else f"{each[: TEXT_MAX - 1]}…"
        for each in reasons[:REASONS_MAX]
    ]
    if len(reasons) > REASONS_MAX:
        kept.append(f"and {len(reasons) - REASONS_MAX} more")
    return tuple(kept)
