"""A hand-over, a take-over, and changes that leave the primary, as a watch of rows sees them."""

import json

from quorate.facts.partition_row import Migration, MigrationKind, PartitionRow, committed_row
from quorate.facts.topology import Holder, Voter
from quorate.protocol.zone_master.ownership import activated, started, without_owners
from quorate.wire.partition_table import stored_row
from quorate_nodes.watching.primary_watch import PrimaryWatch

STORE = "0" * 32
ONE, TWO, THREE = (Holder(f"agent-{number}", STORE, 1) for number in (1, 2, 3))
VOTERS = tuple(Voter(each.node, STORE) for each in (ONE, TWO, THREE))
ROW = PartitionRow(5, 7, 7, ONE, (ONE.node, TWO.node, THREE.node), VOTERS)
SWAP = Migration("m-1", MigrationKind.SWAP, ONE.node, TWO, (TWO.node, ONE.node, THREE.node), VOTERS)


def _watched(*rows: PartitionRow) -> PrimaryWatch:
    watch = PrimaryWatch(lambda *words: [*words], "storage")
    watch.take("library|")  # the head, which has no rows
    for row in rows:
        stored = stored_row(row).model_dump(mode="json", by_alias=True, exclude_none=True)
        watch.take(f"library|{json.dumps([stored])}")
    return watch


def test_a_primary_that_froze_for_a_migration_is_handed_over() -> None:
    moving = started(ROW, SWAP)

    watch = _watched(ROW, moving, committed_row(moving))

    assert watch.handed_over == {"agent-1": 1}
    assert watch.taken_over == []


def test_a_primary_that_has_left_is_taken_over_also_from_a_migration() -> None:
    left = frozenset({ONE.node})
    moving = started(ROW, SWAP)

    for rows in ([ROW, activated(ROW, TWO, left)], [ROW, moving, activated(moving, TWO, left)]):
        watch = _watched(*rows)

        assert not watch.handed_over
        assert [each.partition(": ")[0] for each in watch.taken_over] == ["library/5"]


def test_a_backup_that_leaves_changes_no_primary() -> None:
    watch = _watched(ROW, without_owners(ROW, frozenset({THREE.node})))

    assert (watch.handed_over, watch.taken_over) == ({}, [])
