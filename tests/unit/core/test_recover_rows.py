"""Which row a partition gets when the metastore is lost: never one that lacks an answered write."""

from itertools import combinations

import msgspec
import pytest

from quorate.facts.partition_row import (
    Migration,
    MigrationKind,
    PartitionRow,
    committed_row,
    is_quorum,
)
from quorate.facts.topology import Holder, Voter
from quorate.protocol.messages.master import CopyReport
from quorate.protocol.zone_master.recovery.recover_rows import (
    RECOVERY_GAP,
    Told,
    Waiting,
    recovered_row,
)


def voters(names: str) -> tuple[Voter, ...]:
    return tuple(Voter(name, f"store-{name}") for name in names)


def holder(node: str, store: str = "") -> Holder:
    return Holder(node, store or f"store-{node}", 1)


ROW = PartitionRow(3, 10, 7, holder("a"), ("a", "b", "c"), voters("abc"))
MOVE = Migration("z/3/11", MigrationKind.MOVE, "c", holder("d"), ("a", "b", "d"), voters("abd"))
MOVING = msgspec.structs.replace(ROW, version=11, active=MOVE)


def told(
    node: str,
    row: PartitionRow | None,
    *,
    version: int = 0,
    promised: int = 7,
    lwm: int = 5,
    store: str = "",
    prepared: PartitionRow | None = None,
) -> Told:
    known = version or (row.version if row is not None else 0)
    report = CopyReport(3, known, prepared, "", 7, lwm, lwm, True, 0, promised, row)
    return Told(holder(node, store), report)


def of(*agents: Told) -> dict[str, Told]:
    return {each.holder.node: each for each in agents}


def test_the_newest_row_goes_on_above_all_that_was_told() -> None:
    older = msgspec.structs.replace(ROW, version=8)

    row = recovered_row(3, of(told("a", ROW), told("b", older, promised=19)), (), 1)

    assert isinstance(row, PartitionRow)
    assert row.version == row.term == 19 + RECOVERY_GAP + 1
    assert (row.primary, row.voters, row.active) == (ROW.primary, ROW.voters, None)
    assert row.replicas == ("a", "b", None)  # c is away


def test_a_later_mastership_rebuilds_above_what_an_earlier_one_has_rebuilt() -> None:
    """The first one hears `a`, which knows more; none of the others is told the outcome."""
    newest = msgspec.structs.replace(ROW, version=900)
    first = recovered_row(3, of(told("a", newest), told("b", ROW)), (), 501)
    again = recovered_row(3, of(told("b", ROW), told("c", ROW)), (), 502)

    assert isinstance(first, PartitionRow)
    assert isinstance(again, PartitionRow)
    assert again.version == again.term > first.version + 900


def test_the_freshest_takes_over_where_the_primary_is_away() -> None:
    row = recovered_row(3, of(told("b", ROW, lwm=5), told("c", ROW, lwm=6)), (), 1)

    assert isinstance(row, PartitionRow)
    assert row.primary == holder("c")


@pytest.mark.parametrize(
    ("agents", "missing"),
    [
        ((told("a", ROW),), ("b", "c")),
        ((told("b", ROW), told("c", ROW, store="another")), ("a", "c")),
        ((told("a", MOVING), told("c", ROW)), ("b", "d")),  # of a, b, d only a
        ((told("d", MOVING), told("b", ROW)), ("a", "c")),  # of a, b, c only b
    ],
)
def test_a_quorum_of_each_set_of_voters_is_heard_first(
    agents: tuple[Told, ...], missing: tuple[str, ...]
) -> None:
    found = recovered_row(3, of(*agents), (), 1)

    assert isinstance(found, Waiting)
    assert found.nodes == missing
    assert all(node in found.why for node in missing)


@pytest.mark.parametrize(
    "destination",
    [
        (),
        (told("d", MOVING, prepared=committed_row(MOVING)),),
        (told("d", MOVING, store="another"),),
    ],
    ids=["away", "prepared", "with another store"],
)
def test_where_its_migration_may_be_committed_the_voters_of_both_sides_vote(
    destination: tuple[Told, ...],
) -> None:
    row = recovered_row(3, of(told("a", MOVING), told("b", ROW), *destination), (), 1)

    assert isinstance(row, PartitionRow)
    assert row.voters == voters("abcd")
    assert row.sets == (voters("abc"), voters("abd"))
    assert row.active is None


def test_where_the_voters_are_the_same_after_it_there_is_one_set() -> None:
    swap = Migration("z/3/11", MigrationKind.SWAP, "a", holder("b"), ("b", "a", "c"), voters("bac"))
    swapping = msgspec.structs.replace(ROW, version=11, active=swap)

    row = recovered_row(3, of(told("a", swapping), told("c", swapping)), (), 1)

    assert isinstance(row, PartitionRow)
    assert (row.voters, row.sets) == (ROW.voters, ())


PAIR = msgspec.structs.replace(ROW, version=11, replicas=("a", None), voters=voters("ab"))
REPLACES = Migration("z/3/11", MigrationKind.MOVE, "b", holder("d"), ("a", "d"), voters("ad"))
REPLACING = msgspec.structs.replace(PAIR, active=REPLACES)


def test_who_is_left_of_both_sides_and_no_quorum_of_all_together_votes_alone_for_these() -> None:
    row = recovered_row(3, of(told("a", REPLACING)), voters("bd"), 1)

    assert isinstance(row, PartitionRow)
    assert (row.voters, row.sets) == (voters("a"), (voters("ab"), voters("ad")))
    assert row.replicas == ("a", None)


EIGHT = PartitionRow(3, 10, 7, holder("a"), tuple("abcdefgh"), voters("abcdefgh"))
NINTH = Migration(
    "z/3/11", MigrationKind.MOVE, "h", holder("i"), tuple("abcdefgi"), voters("abcdefgi")
)
GROWING = msgspec.structs.replace(EIGHT, version=11, active=NINTH)


def test_a_voter_that_leaves_is_named_by_its_set_alone_where_no_row_has_room_for_one_more() -> None:
    row = recovered_row(3, of(*(told(node, GROWING) for node in "abcdefgh")), (), 1)

    assert isinstance(row, PartitionRow)
    assert row.voters == voters("abcdefgi")
    assert row.sets == (EIGHT.voters, voters("abcdefgi"))
    assert row.replicas == (*"abcdefg", None)
    again = recovered_row(3, of(*(told(node, row) for node in "abcdefg")), (), 2)
    assert isinstance(again, PartitionRow)
    assert (again.voters, again.sets) == (row.voters, row.sets)


@pytest.mark.parametrize("voted", ["abcdefgh", "abcdefgi"])
def test_each_quorum_of_such_a_row_has_one_of_each_quorum_before(voted: str) -> None:
    row = recovered_row(3, of(*(told(node, GROWING) for node in "abcdefgh")), (), 1)

    assert isinstance(row, PartitionRow)
    former = [{*each} for each in combinations(voted, 5)]
    quorums = [
        {*each}
        for count in range(9)
        for each in combinations(row.voter_nodes, count)
        if is_quorum(row, each, ())
    ]
    assert quorums
    assert all(each & before for each in quorums for before in former)


def test_of_nine_voters_those_that_are_gone_for_good_do_not_vote() -> None:
    here, gone = "efghi", "abcd"
    agents = of(*(told(node, GROWING, prepared=GROWING) for node in here))

    row = recovered_row(3, agents, voters(gone), 1)

    assert isinstance(row, PartitionRow)
    assert row.voters == voters(here)
    assert is_quorum(row, here, gone), "it can be activated"


@pytest.mark.parametrize("left", ["h", ""])
def test_nine_voters_of_which_one_or_none_is_left_wait_for_a_person(left: str) -> None:
    gone = voters("abcdefghi".replace(left, "") if left else "abcdefghi")
    others = [told(node, GROWING, store="new") for node in "abcdefgi"] if not left else []
    row = recovered_row(3, of(*(told(node, GROWING) for node in left), *others), gone, 1)

    assert isinstance(row, Waiting)
    assert row.last is not None
    assert row.last.next.voters == (voters(left) if left else EIGHT.voters)


def test_a_store_that_is_gone_stays_a_voter_where_a_quorum_of_all_together_is_left() -> None:
    row = recovered_row(3, of(told("a", MOVING), told("b", MOVING)), voters("d"), 1)

    assert isinstance(row, PartitionRow)
    assert row.voters == voters("abcd")


BOTH = msgspec.structs.replace(
    ROW, version=40, term=40, voters=voters("abcd"), sets=(voters("abc"), voters("abd"))
)


def test_a_row_with_both_sets_that_is_lost_again_is_rebuilt_with_both() -> None:
    """Nobody has served it; the newcomer has prepared nothing, which says nothing any more."""
    row = recovered_row(3, of(told("a", BOTH), told("b", BOTH), told("d", BOTH)), (), 1)

    assert isinstance(row, PartitionRow)
    assert (row.voters, row.sets) == (BOTH.voters, BOTH.sets)
    assert row.term == row.version > BOTH.version


@pytest.mark.parametrize(
    ("agents", "missing"),
    [("ac", ("b", "d")), ("bc", ("a", "d")), ("cd", ("a", "b")), ("bd", ("a", "c"))],
)
def test_a_row_with_both_sets_is_rebuilt_when_a_quorum_of_each_has_told(
    agents: str, missing: tuple[str, ...]
) -> None:
    found = recovered_row(3, of(*(told(name, BOTH) for name in agents)), (), 1)

    assert isinstance(found, Waiting)
    assert found.nodes == missing


def test_a_row_that_was_served_has_one_set_also_when_it_is_lost_again() -> None:
    served = msgspec.structs.replace(BOTH, version=41, sets=())

    row = recovered_row(3, of(told("a", served), told("b", BOTH), told("d", BOTH)), (), 1)

    assert isinstance(row, PartitionRow)
    assert (row.voters, row.sets) == (BOTH.voters, ())


def test_a_migration_that_only_drops_a_voter_may_be_committed_whoever_told() -> None:
    drop = Migration("z/3/11", MigrationKind.DROP, "c", None, ("a", "b"), voters("ab"))
    dropping = msgspec.structs.replace(ROW, version=11, active=drop)

    found = recovered_row(3, of(told("b", dropping), told("c", dropping)), (), 1)

    assert isinstance(found, Waiting)
    assert found.nodes == ("a",)  # of a, b only b


@pytest.mark.parametrize(
    "destination",
    [told("d", MOVING), told("d", None), Told(holder("d"), None)],
    ids=["has the row", "has a copy", "knows nothing"],
)
def test_a_newcomer_that_has_told_and_prepared_nothing_does_not_vote(destination: Told) -> None:
    """It lacks what was answered, perhaps, and could be the only store that is left."""
    row = recovered_row(3, of(told("a", MOVING), told("b", ROW), destination), (), 1)

    assert isinstance(row, PartitionRow)
    assert row.voters == voters("abc")
    assert row.active is None


ALONE = PartitionRow(3, 10, 7, holder("a"), ("a",), voters("a"))
GOES = Migration("z/3/11", MigrationKind.MOVE, "a", holder("d"), ("d",), voters("d"))
GOING = msgspec.structs.replace(ALONE, version=11, active=GOES)


@pytest.mark.parametrize("dead", ["", "d"])
@pytest.mark.parametrize(
    ("unfrozen", "incarnation", "is_known"),
    [(7, 1, True), (0, 1, False), (6, 1, False), (7, 2, False)],
    ids=["not frozen", "frozen, or of before", "of an earlier term", "of another process"],
)
def test_a_move_away_is_uncommitted_when_its_very_primary_says_that_it_has_not_frozen(
    unfrozen: int, incarnation: int, is_known: bool, dead: str
) -> None:
    source = told("a", GOING)
    assert source.report is not None
    report = msgspec.structs.replace(source.report, unfrozen=unfrozen)
    process = Holder("a", "store-a", incarnation)

    found = recovered_row(3, of(Told(process, report)), voters(dead), 1)

    if not is_known:
        assert isinstance(found, Waiting)
        return
    assert isinstance(found, PartitionRow)
    assert (found.primary, found.voters, found.sets) == (holder("a"), voters("a"), ())


def test_of_a_move_that_keeps_the_primary_that_it_has_not_frozen_says_nothing() -> None:
    primary = told("a", MOVING)
    assert primary.report is not None
    report = msgspec.structs.replace(primary.report, unfrozen=7)

    row = recovered_row(3, of(primary._replace(report=report), told("b", ROW)), (), 1)

    assert isinstance(row, PartitionRow)
    assert row.sets == (voters("abc"), voters("abd"))


def test_a_store_that_is_gone_for_good_counts_as_in_any_other_quorum() -> None:
    pair = msgspec.structs.replace(ROW, replicas=("a", "b"), voters=voters("ab"))

    waiting = recovered_row(3, of(told("a", pair)), (), 1)
    row = recovered_row(3, of(told("a", pair), told("b", None, store="new")), voters("b"), 1)

    assert isinstance(waiting, Waiting)
    assert isinstance(row, PartitionRow)
    assert row.primary == holder("a")


def test_where_stores_are_gone_for_good_that_leave_no_quorum_nobody_is_waited_for() -> None:
    found = recovered_row(3, of(told("a", ROW)), voters("bc"), 1)

    assert isinstance(found, Waiting)
    assert found.nodes == ()
    assert "gone for good" in found.why


def test_who_is_waited_for_is_named_beside_stores_that_are_gone_for_good() -> None:
    both = msgspec.structs.replace(ROW, voters=voters("abcd"), sets=(voters("abc"), voters("bcd")))

    found = recovered_row(3, of(told("a", both)), voters("bc"), 1)

    assert isinstance(found, Waiting)
    assert (found.nodes, found.last) == (("d",), None)
    assert found.why.endswith("leaves no quorum; first waiting for the reports of d")


def test_a_row_of_which_every_store_is_gone_for_good_keeps_its_voters() -> None:
    add = Migration("z/3/11", MigrationKind.COPY, None, holder("b"), ("a", "b"), voters("ab"))
    alone = PartitionRow(3, 11, 7, holder("a"), ("a",), voters("a"), add)

    found = recovered_row(3, of(told("c", alone)), voters("ab"), 1)

    assert isinstance(found, Waiting)
    assert found.last is not None
    assert found.last.row == alone
    assert set(found.last.next.voters) == set(voters("ab"))
    assert found.last.next.term > RECOVERY_GAP


def test_a_version_that_is_known_and_whose_row_nobody_has_is_waited_for() -> None:
    found = recovered_row(3, of(told("a", ROW), told("b", ROW), told("c", None, version=12)), (), 1)

    assert isinstance(found, Waiting)
    assert "c knows of row 12" in found.why


def test_an_agent_that_was_evicted_tells_the_row_that_says_so() -> None:
    moved = PartitionRow(3, 12, 7, holder("a"), ("a", "b", "d"), voters("abd"))

    found = recovered_row(3, of(told("c", moved), told("b", ROW)), (), 1)

    assert isinstance(found, Waiting)
    assert found.nodes == ("a", "d")


def test_an_online_agent_that_has_not_told_is_waited_for_whatever_quorum_has() -> None:
    """A person may have reset the partition to its copy, which nobody else would know."""
    alone = PartitionRow(3, 12, 12, holder("c"), ("c", None, None), voters("c"))
    before = told("a", ROW), told("b", ROW)

    found = recovered_row(3, of(*before), (), 1, silent=["c"])
    row = recovered_row(3, of(*before, told("c", alone)), (), 1)

    assert isinstance(found, Waiting)
    assert found.nodes == ("c",)
    assert isinstance(row, PartitionRow)
    assert row.primary == holder("c")
