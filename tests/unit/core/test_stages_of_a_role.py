"""A role's stage follows the table, and agrees with what the role has done."""

from itertools import product

import pytest

from quorate.facts.errors import InvariantError
from quorate.facts.lineage import EMPTY_LINEAGE
from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Holder, Voter
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.role_state import (
    NEVER_MS,
    TRANSITIONS,
    FrozenFor,
    Retries,
    Retry,
    Stage,
)
from quorate_lone_copies.copies import empty_copy

ME = Holder("a", "store-a", 1)


def _role() -> Primary:
    """A role that has just begun."""
    row = PartitionRow(0, 1, 1, ME, ("a",), (Voter("a", "store-a"),))
    return Primary(empty_copy(), row, ME, {}, 0)


def _way_to(stage: Stage) -> list[Stage]:
    """The stages from the first one to this one."""
    return [each for each in Stage if each <= stage]


@pytest.mark.parametrize(("before", "after"), [*product(Stage, Stage)])
def test_only_a_transition_of_the_table_changes_the_stage(before: Stage, after: Stage) -> None:
    role = _role()
    for stage in _way_to(before):
        role.enter(stage)

    if before is after or (before, after) in TRANSITIONS:
        role.enter(after)
        assert role.stage is after
    else:
        with pytest.raises(InvariantError, match=f"{before.name} becomes {after.name}"):
            role.enter(after)
        assert role.stage is before


def test_no_way_back_behind_the_lineage_entry_and_none_past_a_quorum() -> None:
    """It is written once in a term, and only what a quorum has adopted may be served."""
    for before, after in TRANSITIONS:
        assert before is not Stage.SERVING
        if before >= Stage.ADOPTING:
            assert after == before + 1
        else:
            assert after <= Stage.ADOPTING


@pytest.mark.parametrize(
    ("stage", "what"),
    [
        (Stage.ADOPTING, "ADOPTING with the lineage None"),
        (Stage.WAITING, "WAITING with the lineage None"),
        (Stage.SERVING, "SERVING with the lineage None"),
    ],
)
def test_a_stage_without_its_lineage_entry_is_found(stage: Stage, what: str) -> None:
    role = _role()
    role.check()
    for each in _way_to(stage):
        role.enter(each)

    with pytest.raises(InvariantError, match=what):
        role.check()


@pytest.mark.parametrize("stage", [Stage.WAITING, Stage.SERVING])
def test_a_stage_that_needs_a_durable_entry_and_has_none_is_found(stage: Stage) -> None:
    role = _role()
    role.lineage = EMPTY_LINEAGE
    for each in _way_to(stage):
        role.enter(each)

    with pytest.raises(InvariantError, match=f"{stage.name} before its lineage entry is durable"):
        role.check()


def test_a_stage_that_was_set_beside_the_table_is_found() -> None:
    role = _role()
    role.stage = Stage.GATHERING

    with pytest.raises(InvariantError, match="GATHERING was not entered from FENCING"):
        role.check()


def test_a_role_that_does_not_serve_is_not_frozen() -> None:
    role = _role()
    role.frozen = FrozenFor("migration-1", 0)

    with pytest.raises(InvariantError, match="FENCING in joint mode, or frozen"):
        role.check()


def test_what_is_repeated_is_kept_by_what_it_is_and_for_whom() -> None:
    retries = Retries()
    retries.note_sent(Retry.UPDATES, 7, "b")
    retries.note_sent(Retry.POSITION, 8, "b")
    retries.note_sent(Retry.FROZEN, 9)

    retries.note_answered(Retry.UPDATES, "b")
    retries.note_answered(Retry.KEYS)

    assert [retries.sent_ms(what, "b") for what in (Retry.UPDATES, Retry.POSITION)] == [NEVER_MS, 8]
    assert retries.sent_ms(Retry.POSITION, "c") == NEVER_MS
    assert retries.sent_ms(Retry.FROZEN) == 9
    retries.forget()
    assert retries.sent_ms(Retry.FROZEN) == NEVER_MS
