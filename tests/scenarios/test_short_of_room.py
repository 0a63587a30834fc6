"""An agent whose disk is nearly full takes no more updates, and goes on with promises and rows."""

import pytest

from quorate_sim.scenario import Scenario

pytestmark = pytest.mark.simulation

NEW = b"new"


def short_backup() -> tuple[Scenario, str, str]:
    """Three copies; the disk of a backup is nearly full.  Its name and the other backup's."""
    story = Scenario()
    story.written(story.primary, b"before", NEW)
    other, short = story.backups()
    story.zone(short).set_short_of_room(True)
    return story, short, other


def test_it_keeps_nothing_new_and_asks_for_nothing_until_there_is_room() -> None:
    story, short, other = short_backup()
    lwm = story.copy(short).lwm

    for number in range(20):
        story.written(story.primary, b"%d" % number, NEW)
    story.run(5_000)

    assert story.copy(short).lwm == lwm
    assert story.copy(other).lwm == story.copy(story.primary).lwm == lwm + 20
    assert not story.zone(short).fills
    assert short in story.row.replicas, "it stays an owner: it is there, and votes"

    story.zone(short).set_short_of_room(False)
    story.come_to_rest()
    assert story.copy(short).lwm == lwm + 20
    assert story.zone(short).full_copies == 0


def test_it_promises_terms_so_that_another_primary_can_take_over() -> None:
    """Two of three are left, the one without room among them: its promise is needed, and what was
    answered is at the other one."""
    story, short, other = short_backup()
    first = story.primary
    story.written(first, b"k", NEW)

    story.crash(first)
    assert story.wait_for_primary(first) == other

    assert story.copy(short).promise_term == story.copy(other).promise_term == story.row.term
    assert story.copy(short).adopted, "it fetches what the term is to begin with"
    assert story.read(other, b"k") == NEW
    story.start(first)
    story.zone(short).set_short_of_room(False)
    story.come_to_rest()


def test_a_full_copy_to_it_waits_for_room() -> None:
    story = Scenario(agents=3, replicas=2)
    for number in range(60):
        story.written(story.primary, b"%02d" % number, NEW * 40)
    (spare,) = set(story.cluster.agents) - set(story.row.owners)
    story.zone(spare).set_short_of_room(True)

    story.drain(story.primary)
    story.wait(lambda: 0 in story.zone(spare).copies, "the migration to it has begun")
    story.run(2_000)
    assert not story.copy(spare).adopted
    assert story.zone(spare).fills[0].bytes_done == 0

    story.zone(spare).set_short_of_room(False)
    story.come_to_rest()
    assert spare in story.row.owners
