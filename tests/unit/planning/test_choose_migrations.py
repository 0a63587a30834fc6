"""Which waiting migrations start: the queue's order, the limits, losses and failed destinations."""

from heapq import heappop, heappush

import msgspec
import pytest

from quorate.planning.queue.choose_migrations import QueuedMigration, StartLimits, choose_migrations
from quorate.planning.queue.retries import (
    FIRST_WAIT_MS,
    LONGEST_WAIT_MS,
    SPREAD_PERCENT,
    STUCK_AFTER,
    MigrationRetries,
)


def transfer(
    partition: int,
    source: str = "A",
    destination: str = "B",
    owning: int = 3,
    size: int = 100,
    zone: str = "z",
    is_repair: bool = False,
) -> QueuedMigration:
    return QueuedMigration(zone, partition, owning, source, destination, True, size, is_repair)


def swap(partition: int, source: str = "A", destination: str = "B") -> QueuedMigration:
    return QueuedMigration("z", partition, 3, source, destination, copies_data=False)


FAILED_WAITS_MS = [1084, 1888, 4333, 8147, 18957]
"""The first waits of partition 0 of zone z to B, the same in every process."""


def is_about(waited_ms: int, doubled_ms: int) -> bool:
    """Whether the wait is the doubled one, longer or shorter by the spread."""
    return abs(waited_ms - doubled_ms) <= doubled_ms * SPREAD_PERCENT // 100


def trusting() -> MigrationRetries:
    """As it is when many migrations have succeeded."""
    retries = MigrationRetries()
    for node in ["A", "B", "C", "D", "E", "d", *[f"d{at}" for at in range(3)]]:
        for _ in range(100):
            retries.succeeded("z", 0, node)
    return retries


def started(
    *waiting: QueuedMigration,
    running: tuple[QueuedMigration, ...] = (),
    limits: StartLimits | None = None,
    retries: MigrationRetries | None = None,
    losses: tuple[str, ...] = (),
    now_ms: int = 0,
) -> list[int]:
    """The partitions that start, in order; every node is trusted unless said."""
    chosen = choose_migrations(
        waiting, running, limits or StartLimits(), retries or trusting(), losses, now_ms
    )
    return [migration.partition for migration in chosen]


def test_fewest_copies_come_first_then_the_smaller_partition() -> None:
    assert started(
        transfer(0, owning=3, size=1),
        transfer(1, owning=1, size=900),
        transfer(2, owning=2, size=500),
        transfer(3, owning=2, size=400),
    ) == [1, 3, 2, 0]


def test_of_equal_ones_the_one_whose_ends_have_least_to_do_comes_first() -> None:
    busy = (transfer(9, "A", "B"),)

    assert started(transfer(0, "A", "B"), transfer(1, "C", "D"), running=busy) == [1, 0]
    # What has been started counts as well: nobody gets two while another has none.
    assert started(transfer(0, "A", "B"), transfer(1, "A", "B"), transfer(2, "C", "D")) == [0, 2, 1]


def test_a_node_is_not_given_more_than_its_limit_as_source_and_destination_together() -> None:
    limits = StartLimits(node_migrations=2)

    assert started(
        transfer(0, "A", "B"), transfer(1, "B", "C"), transfer(2, "D", "B"), limits=limits
    ) == [0, 1]
    assert started(transfer(0, "A", "B"), running=(transfer(1, "C", "B"),) * 2, limits=limits) == []


def test_what_cannot_start_holds_up_nothing_behind_it() -> None:
    limits = StartLimits(node_migrations=1)

    assert started(
        transfer(0, "A", "B", owning=1),
        transfer(1, "A", "C", owning=1),
        transfer(2, "D", "E", owning=3),
        limits=limits,
    ) == [0, 2]


def test_bytes_under_way_are_limited_per_node_and_per_zone() -> None:
    node = StartLimits(node_bytes=250)
    zone = StartLimits(zone_bytes=250)
    three = [transfer(p, f"s{p}", f"d{p}") for p in range(3)]

    assert started(*[transfer(p) for p in range(3)], limits=node) == [0, 1]
    assert started(*three, limits=node) == [0, 1, 2]
    assert started(*three, limits=zone) == [0, 1]


def test_a_zone_is_limited_in_migrations_and_another_zone_is_not_held_up_by_it() -> None:
    limits = StartLimits(zone_migrations=1)
    first = [transfer(p, f"s{p}", f"d{p}", zone="a") for p in range(2)]

    assert started(*first, transfer(7, "s", "d", zone="b"), limits=limits) == [0, 7]


def test_a_partition_larger_than_the_limit_starts_when_nothing_else_is_under_way() -> None:
    limits = StartLimits(node_bytes=250)
    large = transfer(0, size=900)

    assert started(large, limits=limits) == [0]
    assert started(large, running=(transfer(1),), limits=limits) == []


def test_a_loss_pauses_moves_for_balance_but_neither_repairs_nor_changes_of_roles() -> None:
    balance, repair = transfer(0), transfer(1, is_repair=True)
    elsewhere = transfer(2, zone="other")

    assert started(balance, repair, elsewhere, swap(3), losses=("z",)) == [3, 2, 1]
    drain = msgspec.structs.replace(transfer(4), is_drain=True)
    assert started(balance, drain, losses=("z",)) == [4]
    assert started(balance) == [0]


def test_changes_of_roles_do_not_wait_behind_transfers_but_have_a_limit_of_their_own() -> None:
    limits = StartLimits(node_migrations=1, node_role_changes=2)

    assert started(
        *[swap(p) for p in range(3)], running=(transfer(9),), limits=limits
    ) == [0, 1]  # fmt: skip


def test_a_drop_has_no_destination_and_no_limit_but_its_sources() -> None:
    drop = QueuedMigration("z", 0, 4, "A", None, copies_data=False)

    assert started(drop) == [0]


def test_a_partition_with_a_migration_under_way_does_not_get_a_second_one() -> None:
    assert started(transfer(0, "C", "D"), running=(transfer(0),)) == []
    assert started(transfer(0, "A", "B"), transfer(0, "C", "D", size=200)) == [0]


def test_a_failed_attempt_waits_and_longer_each_time() -> None:
    retries = MigrationRetries()
    first = retries.failed("z", 0, "B", now_ms=0)
    second = retries.failed("z", 0, "B", now_ms=first.until_ms)

    assert is_about(first.until_ms, FIRST_WAIT_MS)
    assert is_about(second.until_ms - first.until_ms, 2 * FIRST_WAIT_MS)
    assert started(transfer(0), retries=retries, now_ms=second.until_ms - 1) == []
    assert started(transfer(0), retries=retries, now_ms=second.until_ms) == [0]
    for _ in range(40):
        last = retries.failed("z", 0, "B", now_ms=0)
    assert LONGEST_WAIT_MS // 2 < last.until_ms <= LONGEST_WAIT_MS


def waits_of_a_failed_agent() -> list[list[int]]:
    """The first five waits of each of 64 migrations to B that failed at one moment."""
    retries = MigrationRetries()
    again = range(5)
    return [[retries.failed("z", p, "B", now_ms=0).until_ms for _ in again] for p in range(64)]


def test_attempts_that_failed_together_begin_again_spread_over_time() -> None:
    waits = waits_of_a_failed_agent()

    for failures, each in enumerate(zip(*waits, strict=True)):
        doubled_ms = FIRST_WAIT_MS << failures
        spread_ms = doubled_ms * SPREAD_PERCENT // 100
        assert doubled_ms - spread_ms <= min(each) < doubled_ms - spread_ms * 8 // 10
        assert doubled_ms + spread_ms * 8 // 10 < max(each) <= doubled_ms + spread_ms
        halves = sum(wait < doubled_ms for wait in each)
        assert 16 <= halves <= 48


def test_the_same_failures_wait_as_long_when_a_history_is_played_again() -> None:
    assert waits_of_a_failed_agent() == waits_of_a_failed_agent()
    assert waits_of_a_failed_agent()[0] == FAILED_WAITS_MS


def test_the_same_partition_may_go_elsewhere_meanwhile() -> None:
    retries = MigrationRetries()
    retries.failed("z", 0, "B", now_ms=0)

    assert started(transfer(0, "A", "C"), retries=retries) == [0]


def test_a_destination_begins_with_two_and_gets_one_more_with_each_success() -> None:
    retries = MigrationRetries()
    many = [transfer(p) for p in range(9)]

    assert started(*many, retries=retries) == [0, 1]
    retries.succeeded("z", 0, "B")
    assert started(*many, retries=retries) == [0, 1, 2]


def test_a_destination_that_failed_begins_again_with_one() -> None:
    retries = trusting()
    retries.failed("z", 9, "B", now_ms=0)
    three = [transfer(p) for p in range(3)]

    assert started(*three, retries=retries) == [0]
    assert started(*three, retries=retries, running=(transfer(8, "C", "B"),)) == []
    retries.succeeded("z", 0, "B")
    assert started(*three, retries=retries) == [0, 1]


def test_a_node_that_returned_is_no_longer_held_against() -> None:
    retries = MigrationRetries()
    retries.failed("z", 0, "B", now_ms=0)
    retries.returned("B")

    assert started(transfer(0), transfer(1), retries=retries) == [0, 1]
    assert not retries.is_held_back("z", 0, "B", now_ms=0)


def taken_over(retries: MigrationRetries, times: int, now_ms: int = 0) -> int:
    """The role goes back to B as soon as it may and is taken from it at once; when it may again."""
    for _ in range(times):
        retries.taken_over("z", 0, "B", now_ms)
        retries.succeeded("z", 0, "B")
        while retries.is_held_back("z", 0, "B", now_ms):
            now_ms += 1
    return now_ms


def test_a_role_that_was_taken_from_a_node_returns_later_each_time_also_where_it_succeeds() -> None:
    first_ms, second_ms, third_ms = (taken_over(MigrationRetries(), n) for n in (1, 2, 3))
    assert is_about(first_ms, FIRST_WAIT_MS)
    assert is_about(second_ms - first_ms, 2 * FIRST_WAIT_MS)
    assert is_about(third_ms - second_ms, 4 * FIRST_WAIT_MS)
    retries = MigrationRetries()
    many_ms = taken_over(retries, 8)
    assert LONGEST_WAIT_MS // 2 < taken_over(retries, 1, many_ms) - many_ms <= LONGEST_WAIT_MS
    assert not retries.is_held_back("z", 0, "C", many_ms)
    assert not retries.is_held_back("z", 1, "B", many_ms)


def test_a_role_that_a_node_kept_for_a_minute_returns_soon_when_it_is_taken_again() -> None:
    retries = MigrationRetries()
    later_ms = taken_over(retries, 5) + LONGEST_WAIT_MS
    assert is_about(taken_over(retries, 1, later_ms) - later_ms, FIRST_WAIT_MS)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_role_returns_at_once_to_a_new_process_and_in_a_new_zone_of_that_name(
    is_deleted: bool,
) -> None:
    retries = MigrationRetries()
    retries.taken_over("z", 0, "B", 0)
    assert retries.is_held_back("z", 0, "B", 0)
    if is_deleted:
        retries.forget_zone("z")
    else:
        retries.returned("B")
    assert not retries.is_held_back("z", 0, "B", 0)


def test_a_deleted_zone_is_forgotten() -> None:
    retries = MigrationRetries()
    retries.failed("z", 0, "B", now_ms=0)
    retries.failed("y", 0, "B", now_ms=5)
    assert retries.is_held_back("z", 0, "B", now_ms=6)
    retries.forget_zone("z")

    assert not retries.is_held_back("z", 0, "B", now_ms=6)
    assert retries.is_held_back("y", 0, "B", now_ms=6)


def finished_ms(fails: str, good_ms: int = 1_000, failing_ms: int = 30_000) -> dict[str, int]:
    """When each of ten destinations has its 100 copies from ten sources; `fails` never gets one.

    A transfer takes `good_ms`; one to the node that fails is given up after `failing_ms`, and comes
    first in the queue.  All wait for the zone's limit: what is tried in vain takes from everybody.
    """
    nodes = [f"d{at}" for at in range(10)]
    waiting = {
        p: transfer(p, f"s{p % 10}", node, 2, 50 if node == fails else 100, is_repair=True)
        for p in range(1_000)
        for node in [nodes[p // 10 % 10]]
    }
    limits = StartLimits(node_migrations=8, zone_migrations=32)
    retries, running = MigrationRetries(), dict[int, QueuedMigration]()
    ends: list[tuple[int, int]] = []
    done: dict[str, int] = {}
    now = 0
    while any(migration.destination != fails for migration in waiting.values()) or any(
        migration.destination != fails for migration in running.values()
    ):
        for migration in choose_migrations(
            waiting.values(), running.values(), limits, retries, ("z",), now
        ):
            running[migration.partition] = waiting.pop(migration.partition)
            takes = failing_ms if migration.destination == fails else good_ms
            heappush(ends, (now + takes, migration.partition))
        now = ends[0][0]
        while ends and ends[0][0] == now:
            partition = heappop(ends)[1]
            migration = running.pop(partition)
            if migration.destination == fails:
                retries.failed("z", partition, fails, now)
                waiting[partition] = migration
            else:
                retries.succeeded("z", partition, migration.destination)
                done[str(migration.destination)] = now
    return done


@pytest.mark.parametrize("failing_ms", [3_000, 30_000])
def test_one_failed_destination_of_ten_delays_the_others_by_less_than_a_twentieth(
    failing_ms: int,
) -> None:
    well = finished_ms(fails="nobody")
    one_failed = finished_ms(fails="d3", failing_ms=failing_ms)

    assert sorted(one_failed) == [f"d{at}" for at in range(10) if at != 3]
    assert max(one_failed.values()) <= 1.05 * max(well.values())


def test_failures_on_the_way_to_what_is_not_wanted_any_more_are_forgotten() -> None:
    retries = MigrationRetries()
    for partition in (0, 1):
        for node in ("B", "C", None):
            for _ in range(STUCK_AFTER):
                retries.failed("z", partition, node, now_ms=0)
    retries.keep_only("z", 0, ["C"])
    retries.keep_only("z", 7, [])

    stuck = [(each.partition, each.destination) for each in retries.stuck("z")]
    assert stuck == [(0, "C"), (1, "B"), (1, "C"), (1, None)]
    assert not retries.is_held_back("z", 0, "B", now_ms=0)
    assert retries.at_most("B") == 1, "it failed, whatever is wanted"
