"""A person cancels migrations: those that he saw, all or none, and none that may be committed."""

from collections.abc import Mapping

from quorate.facts.zone import ZoneRecord
from quorate.protocol.recovery import Recovery, RecoveryAction, RecoveryAnswer
from quorate_lone_master.world import LoneMaster, placed_master

ZONE = ZoneRecord("uid-1", "books", 8, 3, scale_up_ms=0)


def moving() -> LoneMaster:
    """Agent d has joined, and no migration to it gets on."""
    world = placed_master(ZONE)
    world.fills = lambda zone, partition, node: False
    world.connect("d")
    world.wait(lambda: len(seen(world)) > 1)
    return world


def seen(world: LoneMaster) -> dict[int, int]:
    """What `quorate status` shows: the row version of each partition with a migration."""
    return {each.partition: each.version for each in world.status(ZONE).migrations}


def asked(versions: Mapping[int, int], dry_run: bool = False) -> Recovery:
    return Recovery(RecoveryAction.CANCEL, dict(versions), dry_run=dry_run)


def cancel(world: LoneMaster, versions: Mapping[int, int], dry_run: bool = False) -> RecoveryAnswer:
    done = world.master.recover(ZONE.uid, asked(versions, dry_run), world.now)
    world.write()
    return done


def test_a_dry_run_says_what_would_be_cancelled_and_changes_nothing() -> None:
    world = moving()
    before, rows = seen(world), world.rows(ZONE)
    told = cancel(world, before, dry_run=True)

    assert {each.partition: each.version for each in told.partitions} == before
    assert all(each.sentence.endswith(" > d would be cancelled") for each in told.partitions)
    assert (told.refusals, seen(world), world.rows(ZONE)) == ((), before, rows)


def test_cancelled_migrations_leave_the_owners_and_are_tried_again_after_their_wait() -> None:
    world = moving()
    before, rows = seen(world), world.rows(ZONE)
    told = cancel(world, before)

    assert [each.partition for each in told.partitions] == list(before)
    for partition, version in before.items():
        row = world.rows(ZONE)[partition]
        assert (row.version, row.active) == (version + 2, None)
        assert (row.replicas, row.voters) == (rows[partition].replicas, rows[partition].voters)
    assert len(world.said("MigrationCancelled")) == len(before)
    assert "cancelled by a person" in world.said("MigrationCancelled")[0]
    assert world.status(ZONE).migrations_cancelled == len(before)

    world.pass_time(500)
    assert not set(seen(world)) & set(before)
    world.fills = lambda zone, partition, node: True
    world.wait(lambda: all("d" in world.rows(ZONE)[partition].owners for partition in before))


def test_one_row_that_has_changed_refuses_the_whole_and_is_described() -> None:
    world = moving()
    before = seen(world)
    (first, version), *_ = before.items()
    cancel(world, {first: version})

    told = cancel(world, before)

    row = world.rows(ZONE)[first]
    refusal = (
        f"zone books, partition {first}: its row has changed: it is at version {version + 2}, and"
        f" version {version} was named; primary {row.replicas[0]}, voters"
        f" {', '.join(row.voter_nodes)}, no migration is running; look again"
    )
    assert told == RecoveryAnswer(refusals=(refusal,))
    assert set(before) - {first} <= set(seen(world))


def test_a_prepared_migration_is_not_cancelled() -> None:
    world = moving()
    world.mute = lambda node: node == "d"
    world.fills = lambda zone, partition, node: True
    phases = ("prepared", "committing")
    world.wait(lambda: any(each.phase in phases for each in world.status(ZONE).migrations))
    prepared = next(each for each in world.status(ZONE).migrations if each.phase in phases)
    row = world.rows(ZONE)[prepared.partition]

    told = cancel(world, {prepared.partition: prepared.version})

    assert "is prepared, and the destination may have stored" in told.refusals[0]
    assert world.rows(ZONE)[prepared.partition] == row


def test_partitions_without_a_migration_and_outside_of_the_zone_are_refused() -> None:
    world = moving()
    still = next(p for p, row in world.rows(ZONE).items() if row.active is None)
    told = cancel(world, {still: world.rows(ZONE)[still].version, 8: 1})

    assert told.refusals == (
        f"zone books, partition {still}: no migration is running, so there is none to cancel",
        "zone books, partition 8: there is none: write a number from 0 to 7",
    )


def test_only_a_dry_run_needs_no_version() -> None:
    world = moving()
    (partition, version), *_ = seen(world).items()

    assert cancel(world, {partition: 0}, dry_run=True).partitions[0].version == version
    assert (
        f"partition {partition}: no version of its row was named: it is at version {version} now; "
        in cancel(world, {partition: 0}).refusals[0]
    )
    assert cancel(world, {}).refusals == ("zone books: no partition is named: name at least one",)


def test_a_row_that_is_being_written_is_not_changed_beside_that() -> None:
    world = moving()
    (partition, version), *_ = seen(world).items()
    first = world.master.recover(ZONE.uid, asked({partition: version}), world.now)
    again = world.master.recover(ZONE.uid, asked({partition: version}), world.now)

    assert (len(first.partitions), first.refusals) == (1, ())
    assert "its row is being changed" in again.refusals[0]
