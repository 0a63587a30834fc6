"""Stories of primaries that are cut off from the master, in a zone with an isolation timeout."""

from functools import partial

from quorate_sim.scenario import Scenario

RESET_MS = 1500
ISOLATION_MS = 4000


def isolating() -> Scenario:
    """A zone in HIGH_AVAILABILITY of three copies, whose primaries need the master."""
    return Scenario(3, 3, reset_ms=RESET_MS, isolation_ms=ISOLATION_MS)


def a_majority_that_is_cut_off_stops_before_the_other_side_serves() -> None:
    """Nothing passes between it and the rest."""
    _cut_off_a_majority(hears_the_master=False)


def a_majority_that_hears_the_master_in_vain_stops_as_well() -> None:
    """Messages of the rest arrive, and no answer does."""
    _cut_off_a_majority(hears_the_master=True)


def _cut_off_a_majority(hears_the_master: bool) -> None:
    story = isolating()
    first = story.primary
    survivor, other = story.backups()
    story.written(first, b"k", b"1")
    masters = [m.name for m in story.cluster.masters]
    for name in (other, first):  # the other way round, the partition would go on with the others
        for elsewhere in (survivor, *masters):
            story.cluster.network.cut(name, elsewhere)
            if not hears_the_master:
                story.cluster.network.cut(elsewhere, name)
        story.wait(partial(_is_left, story, name), "the master takes it for left")
    story.run(RESET_MS + 100)
    assert story.row.reset is None
    assert story.read(first, b"k") == b"1"
    _wait_for_the_survivor(story, survivor, first)
    story.written(survivor, b"k", b"2")
    story.heal()
    story.come_to_rest()
    assert story.cluster.checks.resets.lost == {("zone", 0): 0}


def what_the_others_acknowledge_too_late_is_not_answered() -> None:
    """A write that the majority has only after the partition may have gone on elsewhere."""
    story = isolating()
    first = story.primary
    survivor, other = story.backups()
    story.cut(survivor)
    story.wait(lambda: survivor not in story.row.owners, "the survivor is no owner any more")
    story.heal()
    story.cut(survivor, off=(first, other))
    story.wait(lambda: story.is_online(survivor), "the master hears the survivor")
    story.cut(first, other)
    story.written(first, b"k", b"1")  # lost, as the survivor is no owner
    story.cut(first, off=(other,))
    late = story.write(first, b"k", b"2")
    story.wait(lambda: _is_isolated(story, first), "it is taken for isolated")
    story.cluster.network.heal(first, other)
    story.cluster.network.heal(other, first)
    story.wait(lambda: story.copy(other).lwm == story.copy(first).lwm, "the other has it, too")
    _wait_for_the_survivor(story, survivor, first)
    assert late.outcome != "ok"
    assert story.read(survivor, b"k") is None
    story.heal()
    story.come_to_rest()
    assert late.outcome != "ok"
    assert story.cluster.checks.resets.lost == {("zone", 0): 1}


def without_a_master_everything_stops_and_goes_on_with_it() -> None:
    """It is cut off from every agent for longer than the timeout."""
    story = isolating()
    first = story.primary
    story.written(first, b"k", b"1")
    story.cut(*(m.name for m in story.cluster.masters))
    cut_ms = story.world.time_ms
    story.wait(lambda: not story.serves(first), "it stops")
    assert ISOLATION_MS - 1200 <= story.world.time_ms - cut_ms <= ISOLATION_MS
    story.heal()
    story.come_to_rest()
    story.written(story.primary, b"k", b"2")


def _is_isolated(story: Scenario, name: str) -> bool:
    return story.zone(name).is_isolated


def _is_left(story: Scenario, name: str) -> bool:
    return not story.is_online(name)


def _wait_for_the_survivor(story: Scenario, survivor: str, cut_off: str) -> None:
    """Until it serves; meanwhile the other one never serves beside it."""

    def serves() -> bool:
        if story.row.reset is not None:
            assert not story.serves(cut_off), "both sides may serve"
        return story.serves(survivor)

    story.wait(serves, "the survivor serves")
