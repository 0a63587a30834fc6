"""Which migrations are kept when the topology changes, and how many bytes flapping wastes."""

import pytest

from quorate.facts.partition_row import Migration, MigrationKind, PartitionRow
from quorate.facts.topology import Holder, Voter
from quorate.planning.queue.keep_migrations import row_when_done, still_serves
from quorate.planning.steps.plan_migrations import plan_migrations
from quorate.planning.target.distribute_partitions import DataNode, distribute_partitions


def holder(node: str) -> Holder:
    return Holder(node, f"store-{node}", 1)


def row_of(partition: int, replicas: tuple[str | None, ...]) -> PartitionRow:
    voters = tuple(Voter(node, f"store-{node}") for node in replicas if node is not None)
    primary = None if replicas[0] is None else holder(replicas[0])
    return PartitionRow(partition, 1, 1, primary, replicas, voters)


def with_first_step(row: PartitionRow, target: tuple[str | None, ...]) -> PartitionRow:
    """The row with the first step towards the target under way."""
    step = plan_migrations(row.replicas, row.voter_nodes, target)[0]
    migration = Migration(
        f"z/{row.partition}/2",
        step.kind,
        step.source,
        None if step.destination is None else holder(step.destination),
        step.replicas,
        tuple(Voter(node, f"store-{node}") for node in step.voters),
    )
    return PartitionRow(
        row.partition, 2, 1, row.primary, row.replicas, row.voters, active=migration
    )


def moving(replicas: str, target: str) -> PartitionRow:
    return with_first_step(row_of(0, tuple(replicas)), tuple(target))


@pytest.mark.parametrize(
    ("under_way", "target", "serves"),
    [
        (moving("ABC", "ABD"), "ABD", True),
        (moving("ABC", "ABD"), "DBA", True),  # D is wanted, wherever
        (moving("ABC", "ABD"), "ABE", False),
        (moving("ABC", "ABD"), "ABC", False),
        (moving("ABC", "ABD"), "ADC", False),  # C would leave and be wanted back
        (moving("ABC", "DBC"), "DBC", True),
        (moving("ABC", "DBC"), "BDC", True),  # D becomes primary for nothing, but has the data
        (moving("AB", "BA"), "BA", True),
        (moving("AB", "BA"), "AB", False),
        (moving("ABC", "AB"), "AB", True),
        (moving("ABC", "AB"), "ABC", False),
    ],
)
def test_a_migration_is_kept_when_it_leads_to_the_new_target(
    under_way: PartitionRow, target: str, serves: bool
) -> None:
    assert under_way.active is not None
    assert still_serves(under_way, tuple(target)) == serves


def test_a_row_without_a_migration_has_nothing_to_keep() -> None:
    assert not still_serves(row_of(0, ("A", "B")), ("A", "B"))


def test_a_target_is_made_from_the_row_as_it_will_be() -> None:
    under_way = moving("ABC", "ABD")

    assert row_when_done(under_way, ["A", "B", "C", "D"]) == ("A", "B", "D")
    assert row_when_done(under_way, ["A", "B", "C"]) == ("A", "B", "C")
    assert row_when_done(row_of(0, ("A", None, "C")), ["A", "C"]) == ("A", None, "C")


def test_a_drop_is_as_good_as_done() -> None:
    dropping = moving("ABC", "AB")

    assert dropping.active is not None
    assert dropping.active.kind == MigrationKind.DROP
    assert row_when_done(dropping, ["A", "B", "C"])[:2] == ("A", "B")
    assert "C" not in row_when_done(dropping, ["A", "B", "C"])


def cluster(*names: str) -> list[DataNode]:
    return [DataNode(name) for name in names]


def wasted(change: list[DataNode], *, as_if_done: bool) -> tuple[int, int]:
    """(copies under way, those given up) when a change meets a join that is half done."""
    names = [f"n{at}" for at in range(9)]
    before = distribute_partitions([()] * 512, cluster(*names), 3).assignments
    joined = distribute_partitions(before, cluster(*names, "n9"), 3).assignments
    rows: list[PartitionRow] = []
    copied = 0
    for partition, (row, target) in enumerate(zip(before, joined, strict=True)):
        known = row_of(partition, row)
        if row != target:
            copied += 1
            known = with_first_step(known, target) if copied % 2 else row_of(partition, target)
        rows.append(known)
    online = [node.name for node in change]
    current = [row_when_done(row, online) if as_if_done else tuple(row.replicas) for row in rows]
    after = distribute_partitions(current, change, 3).assignments
    under_way = [row for row in rows if row.active is not None]
    given_up = [row for row in under_way if not still_serves(row, after[row.partition])]
    return len(under_way), len(given_up)


@pytest.mark.parametrize(
    ("change", "at_most"),
    [
        (cluster(*[f"n{at}" for at in range(11)]), 1 / 8),
        # What is left: the node that was to leave is chosen in the place of the lost one.
        (cluster(*[f"n{at}" for at in range(10) if at != 4]), 1 / 16),
    ],
    ids=["another node joins", "another node is lost"],
)
def test_a_second_change_wastes_little_of_what_the_first_one_has_under_way(
    change: list[DataNode], at_most: float
) -> None:
    under_way, given_up = wasted(change, as_if_done=True)

    assert given_up <= under_way * at_most
    assert 3 * given_up < wasted(change, as_if_done=False)[1]


def test_losing_the_node_that_joins_gives_up_all_that_goes_to_it() -> None:
    under_way, given_up = wasted(cluster(*[f"n{at}" for at in range(9)]), as_if_done=True)

    assert given_up == under_way > 0
