"""Any queue, anything under way: limits are kept, and nothing waits that could start."""

from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.planning.queue.choose_migrations import QueuedMigration, StartLimits, choose_migrations
from quorate.planning.queue.retries import MigrationRetries

NODES = st.sampled_from("ABCDE")
LIMITS = StartLimits(
    node_migrations=2, node_bytes=300, node_role_changes=2, zone_migrations=4, zone_bytes=600
)


@st.composite
def queues(
    draw: st.DrawFn,
) -> tuple[list[QueuedMigration], list[QueuedMigration], MigrationRetries]:
    """What waits, what is under way (as it was allowed to start), and what failed last."""
    migrations = [
        QueuedMigration(
            draw(st.sampled_from(["y", "z"])),
            partition,
            draw(st.integers(1, 3)),
            draw(NODES),
            draw(NODES),
            draw(st.booleans()),
            draw(st.sampled_from([0, 1, 100, 250, 900])),
            draw(st.booleans()),
            draw(st.booleans()),
        )
        for partition in range(draw(st.integers(0, 14)))
    ]
    retries = MigrationRetries()
    for migration in migrations:
        if draw(st.integers(0, 4)) == 0:
            retries.failed(migration.zone, migration.partition, migration.destination, 0)
    for node in "ABC":
        for _ in range(draw(st.integers(0, 4))):
            retries.succeeded("other", 0, node)
    early = migrations[: draw(st.integers(0, len(migrations)))]
    running = list(choose_migrations(early, (), LIMITS, MigrationRetries(), (), 0))
    return [m for m in migrations if m not in running], running, retries


def has_room(migration: QueuedMigration, under_way: list[QueuedMigration]) -> bool:
    """Whether one more keeps every limit, counted from scratch."""
    alike = [m for m in under_way if m.copies_data == migration.copies_data]
    zone = [m for m in alike if m.zone == migration.zone]
    by_node = [[m for m in alike if node in m.ends] for node in migration.ends]
    if not migration.copies_data:
        return all(len(inside) < LIMITS.node_role_changes for inside in by_node)

    def fits(inside: list[QueuedMigration], most: int, most_bytes: int) -> bool:
        size = sum(m.bytes for m in inside) + migration.bytes
        return len(inside) < most and (not inside or size <= most_bytes)

    return fits(zone, LIMITS.zone_migrations, LIMITS.zone_bytes) and all(
        fits(inside, LIMITS.node_migrations, LIMITS.node_bytes) for inside in by_node
    )


def may_start(
    migration: QueuedMigration,
    under_way: list[QueuedMigration],
    retries: MigrationRetries,
    losses: list[str],
    now_ms: int,
) -> bool:
    destination = migration.destination
    assert destination is not None
    alike = [m for m in under_way if m.copies_data == migration.copies_data]
    incoming = sum(m.destination == destination for m in alike)
    return (
        has_room(migration, under_way)
        and not retries.is_held_back(migration.zone, migration.partition, destination, now_ms)
        and not (
            migration.zone in losses
            and migration.copies_data
            and not (migration.is_repair or migration.is_drain)
        )
        and incoming < retries.at_most(destination)
    )


@settings(derandomize=True, max_examples=400, deadline=None)
@given(queues(), st.sampled_from([[], ["y"], ["y", "z"]]), st.sampled_from([0, 5_000]))
def test_every_start_is_allowed_when_it_happens_and_nothing_else_could_start(
    queue: tuple[list[QueuedMigration], list[QueuedMigration], MigrationRetries],
    losses: list[str],
    now_ms: int,
) -> None:
    waiting, running, retries = queue
    started = choose_migrations(waiting, running, LIMITS, retries, losses, now_ms)

    under_way = list(running)
    for migration in started:
        assert may_start(migration, under_way, retries, losses, now_ms)
        under_way.append(migration)
    for migration in waiting:
        if migration not in started:
            assert not may_start(migration, under_way, retries, losses, now_ms)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(queues())
def test_the_order_in_which_they_wait_does_not_matter(
    queue: tuple[list[QueuedMigration], list[QueuedMigration], MigrationRetries],
) -> None:
    waiting, running, retries = queue
    shuffled = sorted(waiting, key=lambda migration: -migration.partition)
    started = choose_migrations(waiting, running, LIMITS, retries, (), 0)

    assert choose_migrations(shuffled, running[::-1], LIMITS, retries, (), 0) == started


@settings(derandomize=True, max_examples=200, deadline=None)
@given(queues())
def test_nobody_starts_before_one_with_fewer_copies_that_could(
    queue: tuple[list[QueuedMigration], list[QueuedMigration], MigrationRetries],
) -> None:
    waiting, running, retries = queue
    started = choose_migrations(waiting, running, LIMITS, retries, (), 0)

    ranks = [(migration.owning, migration.bytes) for migration in started]
    assert ranks == sorted(ranks)
