"""Which stores may be given up for good: story by story, with the sentences told."""

import msgspec

from quorate.facts.partition_row import Link, Migration, MigrationKind, PartitionRow, Reset
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.planning.absence.lost_stores import left_on, lost_without


def nodes(names: str, left: str = "", replaced: str = "") -> dict[str, NodeRecord]:
    return {
        name: NodeRecord(
            name, "second" if name in replaced else "first", 1, "h", 1, "h",
            left_since_ms=1 if name in left else None,
        )
        for name in names
    }  # fmt: skip


def row(voters: str, partition: int = 0) -> PartitionRow:
    members = tuple(Voter(name, "first") for name in voters)
    return PartitionRow(partition, 5, 3, Holder(voters[0], "first", 1), tuple(voters), members)


def lost(node: str, *rows: PartitionRow, of: dict[str, NodeRecord], away: str = "") -> str:
    return lost_without(node, "sessions", True, rows, of, away)


def test_of_three_copies_one_may_go() -> None:
    assert lost("c", row("abc"), of=nodes("abc", left="c")) == ""


def test_of_two_copies_one_may_go_because_both_had_every_write() -> None:
    assert lost("b", row("ab"), of=nodes("ab", left="b")) == ""


def test_the_only_copy_may_not_go() -> None:
    assert lost("a", row("a"), of=nodes("ab", left="a")) == (
        "partition 0 of Zone sessions would keep 0 of 1 copies, and needs 1 to know every write"
    )


def test_beside_another_that_is_away_or_has_a_new_store_nothing_may_go() -> None:
    rows = row("abc"), row("abc", 1), row("bde", 2)
    sentence = (
        "partition 0 of Zone sessions would keep 1 of 3 copies, and needs 2 to know every write:"
        " b missing as well; and 1 more partitions"
    )
    for of, away in (
        (nodes("abcde", left="bc"), ""),
        (nodes("abcde", left="c", replaced="b"), ""),
        (nodes("abcde", left="c"), "b"),
    ):
        assert lost("c", *rows, of=of, away=away) == sentence


def test_a_copy_that_a_reset_left_may_have_writes_that_no_other_has() -> None:
    others = tuple(Voter(name, "first") for name in "bc")
    link = Link(5, (Voter("a", "first"), *others), 1)
    narrowed = msgspec.structs.replace(row("a"), version=6, reset=Reset(3, others, (link,)))

    def told(row: PartitionRow, of: dict[str, NodeRecord]) -> str:
        return left_on("b", "sessions", True, [row], of)

    assert lost("b", narrowed, of=nodes("abc", left="b")) == "", "it does not vote"
    assert told(narrowed, nodes("abc", left="b")) == (
        "a reset left copies of Zone sessions on b, of 1 partitions from 0 on: acknowledged writes"
        " that only these have, if there are any, are lost with them"
    )
    assert told(narrowed, nodes("abc", replaced="b")) == "", "it is gone already"


def test_a_partition_that_moves_is_judged_before_and_after() -> None:
    after = tuple(Voter(name, "first") for name in "cd")
    migration = Migration("m", MigrationKind.MOVE, "a", Holder("d", "first", 1), ("c", "d"), after)
    moving = msgspec.structs.replace(row("abc"), active=migration)

    assert lost("c", moving, of=nodes("abcd", left="c")) == ""
    assert lost("c", moving, of=nodes("abcd", left="cd")).startswith("partition 0 of Zone sessions")


def test_a_rebuilt_row_is_judged_by_both_sets_of_voters() -> None:
    """Either set may have acknowledged: of the second, the one that is left may lack writes."""
    sets = tuple(tuple(Voter(name, "first") for name in names) for names in ("abc", "cde"))
    rebuilt = msgspec.structs.replace(row("abcde"), sets=sets)

    assert lost("e", rebuilt, of=nodes("abcde", left="e")) == ""
    assert lost("e", row("abcde"), of=nodes("abcde", left="de")) == ""
    assert lost("e", rebuilt, of=nodes("abcde", left="de")).startswith("partition 0")


def test_what_it_does_not_vote_in_is_not_asked() -> None:
    assert lost("c", row("ab"), of=nodes("abc", left="abc")) == ""
