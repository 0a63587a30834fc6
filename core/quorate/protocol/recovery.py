"""A person's decision for partitions that do not help themselves, and the master's answer."""

import enum

import msgspec

from quorate.facts.partition_row import PartitionRow


class RecoveryAction(enum.StrEnum):
    """The decisions that are a person's."""

    CANCEL = "Cancel"
    """Give up the running migrations."""
    RESET = "Reset"
    """Narrow the voters to one copy: the majority of the others is given up."""
    REOPEN = "Reopen"
    """Begin again without data: every copy is gone for good."""
    REBUILD = "Rebuild"
    """Discard an invalid stored row, and make one from what agents durably know."""
    RESTART = "Restart"
    """Have one copy promise and catch up anew, or drop it and make it anew."""


def commands_of(action: RecoveryAction) -> str:
    """Return the commands by which a person takes this decision, for sentences of a status."""
    word = action.value.lower()
    return f"`quorate recover {word}`, on Kubernetes `kubectl quorate recover {word}`"


class Recovery(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One decision about partitions of a zone: it is done for all of them, or for none.

    - `versions`: partition -> version of its row that the person saw; 0: it was not looked at yet,
      as only a dry run may say.
    - `node`: the agent that the action is about; empty: the master chooses.
    - `erase`: of a restart: the copy is dropped, and made anew.
    - `dry_run`: say what it would do, and change nothing.
    """

    action: RecoveryAction
    versions: dict[int, int]
    node: str = ""
    erase: bool = False
    dry_run: bool = True


class PartitionAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The effect of a decision on one partition, or the effect that it would have.

    `version`: of its row before. `row`: the one that was decided, for the operator itself. It is
    never sent, so that a CLI and an operator of different versions understand each other.
    """

    partition: int
    version: int
    sentence: str
    row: PartitionRow | None = None


class RecoveryAnswer(msgspec.Struct, frozen=True):
    """The answer to a Recovery: nothing is done if there are `refusals`, a sentence for each."""

    partitions: tuple[PartitionAnswer, ...] = ()
    refusals: tuple[str, ...] = ()
