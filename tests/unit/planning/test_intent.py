"""What is intended with a row, and that the planner's next step is the first part of it."""

from itertools import combinations, permutations

import pytest

from quorate.facts.partition_row import Migration, PartitionRow
from quorate.facts.topology import Holder, Voter
from quorate.planning.steps.intent import Intent, intent_of
from quorate.planning.steps.plan_migrations import PlannedMigration
from quorate.planning.steps.plan_step import plan_step

Row = tuple[str | None, ...]


def _row(replicas: Row, voters: str = "", step: PlannedMigration | None = None) -> PartitionRow:
    names = voters or [node for node in replicas if node is not None]
    active = None
    if step is not None:
        to = Holder(step.destination, "", 1) if step.destination is not None else None
        after = tuple(Voter(node, "") for node in step.voters)
        active = Migration("m", step.kind, step.source, to, step.replicas, after)
    before = tuple(Voter(node, "") for node in names)
    return PartitionRow(7, 1, 1, None, replicas, before, active)


def _begun(replicas: Row, wanted: str, dead: str = "") -> PartitionRow:
    """The row with its next step active."""
    names = [node for node in replicas if node is not None]
    step = plan_step(replicas, names, tuple(wanted), tuple(dead), tuple(dead), len(wanted))
    assert step is not None
    return _row(replicas, step=step)


def test_a_row_at_its_target_is_stable_and_nothing_else() -> None:
    intent = intent_of(_row(("A", "B", "C")), "ABC", ())

    assert intent == Intent(7, ("A", "B", "C"))
    assert not intent.has_more
    assert intent.sentence == "partition 7: A, B, C"


def test_what_the_active_migration_leads_to_is_pending_and_not_planned() -> None:
    intent = intent_of(_begun(("A", "B", "C"), "ABD"), "ABD", ())

    assert (intent.pending, intent.planned) == (("A", "B", "D"), None)
    assert not intent.has_more


def test_the_newest_target_is_planned_behind_a_pending_that_does_not_lead_there() -> None:
    row = _begun(("A", "B", "C"), "ABD")

    assert intent_of(row, "ABE", ()).planned == ("A", "B", "E")
    assert intent_of(row, "ABC", ()).planned == ("A", "B", "C")
    assert intent_of(row, "ABE", ()).sentence == (
        "partition 7: A, B, C > A, B, D (pending) > A, B, E (planned)"
    )


def test_a_voter_without_its_store_is_reduced_then_appended_and_no_key_is_left() -> None:
    before = intent_of(_row(("A", "B", None), "ABC"), "ABC", ("C",))
    reducing = intent_of(_begun(("A", "B", "C"), "ABC", "C"), "ABC", ("C",))
    short = intent_of(_row(("A", "B")), "ABC", ())
    appending = intent_of(_begun(("A", "B"), "ABC"), "ABC", ())
    ended = intent_of(_row(("A", "B", "C")), "ABC", ())

    assert (before.reduce, before.append, before.planned) == (("C",), (), None)
    assert before.has_more
    assert (reducing.reduce, reducing.pending, reducing.planned) == (("C",), ("A", "B"), None)
    assert (short.reduce, short.append, short.planned) == ((), ("C",), None)
    assert short.sentence == "partition 7: A, B; to be re-added: C"
    assert (appending.append, appending.pending) == (("C",), ("A", "B", "C"))
    assert not appending.has_more
    assert ended == Intent(7, ("A", "B", "C"))


def test_what_is_planned_waits_behind_the_reduction() -> None:
    waiting = intent_of(_row(("A", "B", None), "ABC"), "ABE", ("C",))
    reducing = intent_of(_begun(("A", "B", "C"), "ABE", "C"), "ABE", ("C",))
    short = intent_of(_row(("A", "B")), "ABE", ())

    assert (waiting.reduce, waiting.append, waiting.planned) == (("C",), (), ("A", "B", "E"))
    assert (reducing.pending, reducing.planned) == (("A", "B"), ("A", "B", "E"))
    assert (short.reduce, short.append, short.planned) == ((), ("E",), None)


def test_a_change_of_roles_is_planned_and_an_offline_voter_has_no_place() -> None:
    assert intent_of(_row(("B", "A", "C")), "ABC", ()).planned == ("A", "B", "C")
    assert intent_of(_row(("B", None, "C"), "ABC"), "BCA", ()).planned == ("B", "C", "A")
    assert intent_of(_row(("B", None, "C"), "ABC"), "BAC", ()).planned is None


@pytest.mark.parametrize("voters", ["A", "AB", "ABC", "ABCD"])
def test_the_next_step_is_append_before_reduce_before_planned(voters: str) -> None:
    """Every target of one to four nodes, and every set of dead voters but the first."""
    for size in range(1, 5):
        for wanted in permutations("ABCDEF", size):
            for many in range(len(voters)):
                for dead in combinations(voters[1:], many):
                    _is_next(voters, wanted, dead)


def _is_next(voters: str, wanted: tuple[str, ...], dead: tuple[str, ...]) -> None:
    replicas = tuple(None if node in dead else node for node in voters)
    intent = intent_of(_row(replicas, voters), wanted, dead)
    step = plan_step(replicas, tuple(voters), wanted, dead, dead, len(wanted))
    case = (intent, step)

    assert (step is not None) == intent.has_more or wanted[0] in dead, case
    if step is None:
        return
    if intent.append:
        assert step.newcomer in intent.append or (step.leaver in dead and step.newcomer), case
    elif intent.reduce:
        assert (step.newcomer, step.leaver in intent.reduce) == (None, True), case
    else:
        assert intent.planned is not None, case
        assert step.newcomer is None or step.newcomer in intent.planned, case
        assert step.leaver is None or step.leaver not in intent.planned, case
