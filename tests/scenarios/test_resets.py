"""A lost majority, the reset, and those that return: in HIGH_AVAILABILITY, and by a person."""

from collections.abc import Callable

import pytest

from quorate.protocol.recovery import RecoveryAction
from quorate_sim import all_owners_story, isolation_stories
from quorate_sim.scenario import SETTINGS, Scenario

RESET_MS = 1500


def high(agents: int = 3, replicas: int = 3, in_memory: bool = False) -> Scenario:
    """A zone in HIGH_AVAILABILITY."""
    return Scenario(agents, replicas, in_memory, reset_ms=RESET_MS)


def test_the_survivor_of_a_lost_majority_serves_and_those_that_return_get_copies() -> None:
    story = high()
    primary = story.primary
    story.written(primary, b"k", b"1")
    lost = story.backups()
    for name in lost:
        story.crash(name)
    story.wait(lambda: story.row.reset is not None, "the reset")
    assert story.row.voter_nodes == (primary,)
    assert {voter.node for voter in story.row.left_by_reset} == {*lost}
    story.wait(lambda: story.serves(primary), "the survivor serves")
    assert story.read(primary, b"k") == b"1"
    story.written(primary, b"k", b"2")
    for name in lost:
        story.start(name)
    story.come_to_rest()
    assert {*story.row.voter_nodes} == {"a1", "a2", "a3"}
    assert story.row.left_by_reset == ()
    assert story.cluster.checks.resets.lost == {("zone", 0): 0}


def test_the_last_backup_takes_over_after_a_reset_with_all_that_was_acknowledged() -> None:
    story = high()
    first = story.primary
    story.written(first, b"k", b"1")
    survivor, other = story.backups()
    story.crash(first)
    story.crash(other)
    story.wait(lambda: story.serves(survivor), "the survivor serves")
    assert story.read(survivor, b"k") == b"1"
    story.written(survivor, b"k", b"2")
    story.start(first)
    story.start(other)
    story.come_to_rest()
    assert story.cluster.checks.resets.lost == {("zone", 0): 0}


def test_an_owner_that_lacks_a_write_keeps_it_from_being_answered() -> None:
    all_owners_story.an_owner_that_lacks_a_write_keeps_it_from_being_answered()


def test_a_copy_that_went_on_elsewhere_is_set_aside_and_filled_anew() -> None:
    story = high()
    first = story.primary
    story.written(first, b"k", b"before")
    survivor, other = story.backups()
    story.cut(survivor)
    story.wait(lambda: survivor not in story.row.owners, "the survivor is no owner any more")
    story.written(first, b"k", b"lost")
    lost_at = story.copy(first).lwm
    story.heal()
    story.cut(survivor, off=(first, other))
    story.wait(lambda: story.is_online(survivor), "the master hears the survivor")
    story.crash(first)
    story.crash(other)
    story.heal()
    story.wait(lambda: story.serves(survivor), "the survivor serves")
    assert story.read(survivor, b"k") == b"before"
    story.written(survivor, b"k", b"after")
    story.start(first)
    story.start(other)
    story.come_to_rest()
    assert story.cluster.checks.resets.lost == {("zone", 0): 1}
    for name in (first, other):
        (aside,) = story.copy(name).kept_rows
        assert (aside.lwm, aside.reset_term) == (lost_at, story.row.reset and story.row.reset.term)
        assert aside.rows == story.zone(name).storage.space(0, aside.generation).row_count() > 0
        kept = story.zone(name).storage.space(0, aside.generation).get(b"k")
        assert kept is not None
        assert kept.value == b"lost"
    assert story.copy(survivor).kept_rows == ()
    assert story.read(story.primary, b"k") == b"after"


def test_a_reset_waits_for_its_time_and_a_minority_is_never_reset() -> None:
    story = high()
    first = story.primary
    backup, other = story.backups()
    story.crash(other)
    story.run(3 * RESET_MS)
    assert story.row.reset is None
    story.written(first, b"k", b"1")
    story.crash(backup)
    story.wait(lambda: backup not in story.row.owners, "the loss is seen")
    seen_ms = story.world.time_ms
    story.wait(lambda: story.row.reset is not None, "the reset")
    assert RESET_MS - 100 <= story.world.time_ms - seen_ms <= RESET_MS + 1000


def test_no_second_reset_for_one_loss() -> None:
    story = high()
    first = story.primary
    for name in story.backups():
        story.crash(name)
    story.wait(lambda: story.row.reset is not None, "the reset")
    story.wait(lambda: story.serves(first), "the survivor serves")
    term = story.row.term
    story.run(4 * RESET_MS)
    assert story.row.reset is not None
    assert (story.row.reset.term, story.row.term) == (term, term)
    story.written(first, b"k", b"1")


def test_when_the_survivor_lost_its_memory_those_that_the_reset_left_go_on() -> None:
    story = high(in_memory=True)
    survivor = story.primary
    story.written(survivor, b"k", b"old")
    left = story.backups()
    story.cut(*left)
    story.wait(lambda: story.row.reset is not None, "the reset")
    story.wait(lambda: story.serves(survivor), "the survivor serves")
    story.written(survivor, b"k", b"gone with its memory")
    story.crash(survivor)
    story.heal()
    story.start(survivor)
    story.wait(lambda: any(map(story.serves, left)), "one of the others serves")
    assert story.read(story.primary, b"k") == b"old"
    story.come_to_rest()
    assert story.cluster.checks.resets.lost == {("zone", 0): 1}


def only_one_of_two_has_the_last_update(story: Scenario) -> tuple[str, list[str]]:
    """Of five agents three are lost. Return the one of the others that lacks it, and the lost."""
    first = story.primary
    other, survivor, *lost = sorted(story.backups())
    story.written(first, b"k", b"1")
    story.cut(survivor, off=(first,))
    story.write(first, b"k", b"2")
    story.wait(lambda: story.copy(other).lwm > story.copy(survivor).lwm, "only some have it")
    for name in (first, *lost):
        story.crash(name)
    story.heal()
    return survivor, [first, *lost]


def test_the_survivor_takes_over_what_the_others_that_are_there_hold() -> None:
    story = high(agents=5, replicas=5)
    survivor, _ = only_one_of_two_has_the_last_update(story)
    story.wait(lambda: story.row.reset is not None, "the reset")
    story.wait(lambda: bool(story.primary), "the survivor serves")
    assert story.row.voter_nodes == (survivor,)
    assert story.read(survivor, b"k") == b"2"


def test_after_a_restart_of_all_the_first_that_is_back_waits_for_the_others() -> None:
    story = high()
    first, *others = story.row.owners
    story.written(first, b"k", b"1")
    for name in (first, *others):
        story.crash(name)
    story.wait(lambda: not any(map(story.is_online, (first, *others))), "all have left")
    story.start(first)
    story.run(4 * RESET_MS)
    assert story.row.reset is None
    story.start(others[0])
    story.wait(lambda: bool(story.primary), "a majority serves")
    assert story.read(story.primary, b"k") == b"1"


def test_a_copy_that_the_reset_left_no_longer_obeys_the_former_primary() -> None:
    story = high(agents=5, replicas=5)
    first, survivor, *others = story.row.owners
    story.cut(first, *others, off=tuple(m.name for m in story.cluster.masters))
    story.wait(lambda: story.row.reset is not None, "the reset")
    story.wait(lambda: story.serves(survivor), "the survivor serves")
    told = others[0]
    story.wait(lambda: story.copy(told).promise_holder.node == survivor, "its Fence came")
    story.heal()
    story.wait(lambda: not story.serves(first), "the former primary has stopped")
    story.come_to_rest()


def strong_that_lost_its_majority(story: Scenario) -> tuple[str, str, str]:
    """The first primary, the copy that is left, and another one that has more than that.

    Both agents that have the last write, which was acknowledged, are away.
    """
    first = story.primary
    story.written(first, b"k", b"before")
    survivor, other = story.backups()
    story.cut(survivor)
    story.written(first, b"k", b"lost")
    story.crash(first)
    story.crash(other)
    story.heal()
    story.wait(lambda: story.is_online(survivor), "the master hears the survivor")
    story.wait(lambda: not story.is_online(first) and not story.is_online(other), "both have left")
    story.run(4 * RESET_MS)
    assert story.row.reset is None
    return first, survivor, other


def test_in_a_strong_zone_a_person_resets_and_what_was_lost_is_set_aside() -> None:
    story = Scenario()
    first, survivor, other = strong_that_lost_its_majority(story)
    answer = story.recover(RecoveryAction.RESET)
    assert answer.refusals == ()
    story.wait(lambda: story.serves(survivor), "the survivor serves")
    assert story.read(survivor, b"k") == b"before"
    story.written(survivor, b"k", b"after")
    story.start(first)
    story.start(other)
    story.come_to_rest()
    assert {*story.row.voter_nodes} == {"a1", "a2", "a3"}
    assert story.row.left_by_reset == ()
    assert story.cluster.checks.resets.lost == {("zone", 0): 1}
    for name in (first, other):
        (aside,) = story.copy(name).kept_rows
        kept = story.zone(name).storage.space(0, aside.generation).get(b"k")
        assert kept is not None
        assert kept.value == b"lost"
    assert story.copy(survivor).kept_rows == ()
    assert story.read(story.primary, b"k") == b"after"


def test_a_second_person_who_saw_the_row_before_the_reset_is_refused() -> None:
    story = Scenario()
    strong_that_lost_its_majority(story)
    assert story.recover(RecoveryAction.RESET).refusals == ()
    again = story.recover(RecoveryAction.RESET)
    assert "its row is being changed" in again.refusals[0]


def test_a_reset_by_a_person_asks_the_others_that_are_there() -> None:
    story = Scenario(agents=5, replicas=5)
    survivor, gone = only_one_of_two_has_the_last_update(story)
    story.wait(lambda: not any(map(story.is_online, gone)), "they have left")
    story.run(SETTINGS.failure_detection_ms)  # the master has been there for so long
    assert story.recover(RecoveryAction.RESET, survivor).refusals == ()
    story.wait(lambda: story.serves(survivor), "the survivor serves")
    assert story.row.voter_nodes == (survivor,)
    assert story.read(survivor, b"k") == b"2"


@pytest.mark.parametrize(
    "story",
    [
        isolation_stories.a_majority_that_is_cut_off_stops_before_the_other_side_serves,
        isolation_stories.a_majority_that_hears_the_master_in_vain_stops_as_well,
        isolation_stories.what_the_others_acknowledge_too_late_is_not_answered,
        isolation_stories.without_a_master_everything_stops_and_goes_on_with_it,
    ],
)
def test_with_an_isolation_timeout(story: Callable[[], None]) -> None:
    story()


def test_a_person_resets_no_earlier_than_those_that_left_have_surely_stopped() -> None:
    story = isolation_stories.isolating()
    lost = story.backups()
    for name in lost:
        story.crash(name)
    story.wait(lambda: not any(map(story.is_online, lost)), "they have left")
    story.run(200)  # the row without them is written
    (refusal,) = story.recover(RecoveryAction.RESET).refusals
    assert "may be cut off and serve for 4 s more (isolationTimeoutSeconds of the zone)" in refusal
