"""The result of an export or import as its pod tells it to Kubernetes: the termination message.

As with a validation (validation_result), the operator reads it from the pod's status.
"""

import enum

import msgspec

from quorate.facts.errors import WireError
from quorate.wire.jobs.validation_result import MESSAGE_BYTES_MAX

REASON_MAX = 500
"""Characters of the reason."""
DELETED_MAX = 20
"""Older exports that one run deletes; the next run deletes the others."""
UNDELETED_MAX = 200
READ_WHOLE_MAX = 200


class RunOutcome(enum.StrEnum):
    """The end of a run that makes something."""

    COMPLETE = "Complete"
    """It is there, and was compared."""
    FAILED = "Failed"
    """It is not there, or not whole."""
    UNKNOWN = "Unknown"
    """The pod has told nothing."""


class ExportResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of an export with verification.  `reason`: why it failed, in a sentence.

    `deleted`: folders of older exports that were deleted then.  `kept`: those that were not, and
    `undeleted` says why; `half_deleted`: of these, those whose manifest is deleted.  `damaged`: the
    export was read, and is surely not as it was written.  `encryption_key_id`: of an encrypted
    export, of which no digest is told: of few rows it would tell the content.  `base`: the id of
    the export from which rows were taken.  `partitions_from_base`, `partitions_read_whole`: None:
    there was none; `read_whole`: why partitions were, in words.  `keys_kept`, `rows_expired`: of an
    import, keys that had another row, which stayed, and rows of the export that had expired; None:
    the pod has not counted them.  `absent`: of a run that makes an export and has failed, its place
    had no export of this run then, which another of its pods may have made.
    """

    outcome: RunOutcome
    export_id: str = ""
    rows: int = 0
    bytes: int = 0
    digest: str = ""
    reason: str = ""
    deleted: tuple[str, ...] = ()
    undeleted: str = ""
    kept: tuple[str, ...] = ()
    half_deleted: tuple[str, ...] = ()
    damaged: bool = False
    encryption_key_id: str = ""
    base: str = ""
    partitions_from_base: int | None = None
    partitions_read_whole: int | None = None
    read_whole: str = ""
    keys_kept: int | None = None
    rows_expired: int | None = None
    absent: bool = False


def made_of_base(base: str, taken: int, whole: int, why: str) -> str:
    """Return how many partitions have rows of a base, in words.

    `base`: the base in words; `whole`: how many were read whole, `why`: why.
    """
    text = f"{taken} of {taken + whole} partitions are made of {base} and of updates since"
    verb = "was" if whole == 1 else "were"
    return f"{text}; {whole} {verb} read whole: {why}" if whole else text


def encode_export_result(result: ExportResult) -> bytes:
    """Return the message, at most MESSAGE_BYTES_MAX bytes."""
    reason = _shortened(result.reason, REASON_MAX)
    undeleted = _shortened(result.undeleted, UNDELETED_MAX)
    whole = _shortened(result.read_whole, READ_WHOLE_MAX)
    shorter = msgspec.structs.replace(result, reason=reason, undeleted=undeleted, read_whole=whole)
    message = msgspec.json.encode(shorter)
    assert len(message) <= MESSAGE_BYTES_MAX
    return message


def _shortened(text: str, length_max: int) -> str:
    return text if len(text) <= length_max else f"{text[: length_max - 1]}…"


def decode_export_result(message: str) -> ExportResult:
    """Return the result in a termination message.  Raises WireError if it is none."""
    try:
        return msgspec.json.decode(message, type=ExportResult)
    except msgspec.DecodeError as error:
        raise WireError(f"the termination message is no result of an export: {error}") from error
