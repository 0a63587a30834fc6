"""The strategies of a repair, and its result as its pod tells it to Kubernetes.

As with a validation (validation_result), the operator reads the result, which is the termination
message, from the pod's status.
"""

import enum
from collections.abc import Mapping

import msgspec

from quorate.facts.errors import WireError
from quorate.wire.jobs.validation_result import MESSAGE_BYTES_MAX

REASONS_MAX = 5
REASON_MAX = 300
"""Characters of one reason."""


class RepairStrategy(enum.StrEnum):
    """The rule by which the row of a key is chosen."""

    LWW = "LWW"
    PRIMARY = "PRIMARY"
    RELATIVE_MAJORITY = "RELATIVE_MAJORITY"
    REMOVE = "REMOVE"
    CHECK_ONLY = "CHECK_ONLY"


class RepairOutcome(enum.StrEnum):
    """The end of a repair."""

    PLANNED = "Planned"
    """A plan was made; nothing is changed."""
    NOTHING_TO_REPAIR = "NothingToRepair"
    """No key differs, and everything could be judged."""
    REPAIRED = "Repaired"
    """Every key of the plan is repaired."""
    INCOMPLETE = "Incomplete"
    """The plan was executed, and at least one of its keys is not repaired."""
    FAILED = "Failed"
    """Nothing was changed, and there is no plan, or it was refused."""
    UNKNOWN = "Unknown"
    """The pods have told nothing."""

    @property
    def is_good(self) -> bool:
        """Whether the run did all that it was to do."""
        good = (RepairOutcome.PLANNED, RepairOutcome.NOTHING_TO_REPAIR, RepairOutcome.REPAIRED)
        return self in good


class RepairResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of a repair.

    - `digest`: SHA-256 of the plan's file, in hex; empty: there is no plan
    - `planned`: keys of the plan, by what it does with them (write, remove, irreparable)
    - `keys`: keys of the plan, by what became of them; empty: it was not executed
    - `reasons`: why it failed, or why another plan may be needed, in sentences
    - `untouched`: when its pod ended, no pod of its run had begun to change keys, as the place of
      the plan shows
    """

    outcome: RepairOutcome
    digest: str = ""
    planned: Mapping[str, int] = {}
    keys: Mapping[str, int] = {}
    reasons: tuple[str, ...] = ()
    untouched: bool = False


def encode_repair_result(result: RepairResult) -> bytes:
    """Return the message, at most MESSAGE_BYTES_MAX bytes: reasons are cut until it fits."""
    reasons = tuple(
        each if len(each) <= REASON_MAX else f"{each[: REASON_MAX - 1]}…"
        for each in result.reasons[:REASONS_MAX]
    )
    while True:
        message = msgspec.json.encode(msgspec.structs.replace(result, reasons=reasons))
        if len(message) <= MESSAGE_BYTES_MAX:
            return message
        reasons = reasons[:-1]


def decode_repair_result(message: str) -> RepairResult:
    """Return the result in a termination message.  Raises WireError if it is none."""
    try:
        return msgspec.json.decode(message, type=RepairResult)
    except msgspec.DecodeError as error:
        raise WireError(f"the termination message is no result of a repair: {error}") from error
