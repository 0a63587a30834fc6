"""A key that was watched as absent, written and removed has changed, whoever is primary."""

from time import monotonic

from quorate_agent.resp.transaction import Execution, NoPlain, seen
from quorate_agent.resp.view import View
from quorate_sim.scenario import Scenario


def _view(story: Scenario, name: str) -> View:
    """As the endpoint has it for a command."""
    view = View()
    role = story.role(name)
    assert role is not None
    view.copy, view.is_pending = role.copy, role.is_pending if role.waiters else None
    view.now_ms = story.agent(name).now().wall_ms
    return view


def test_a_key_that_came_and_went_under_another_primary_has_changed() -> None:
    story = Scenario()
    old = story.primary
    story.written(old, b"x", b"1")
    story.cut(old, off=tuple(story.backups()))
    for number in range(5):
        story.write(old, b"o%d" % number, b"lost")  # of others, and never answered
    story.run(5)
    assert story.serves(old)
    view = _view(story, old)
    watched = seen(view, b"k")
    is_answered = not view.waits

    story.crash(old)  # its connection to the client was forwarded, or is the coordinator's
    new = story.wait_for_primary(old)
    story.written(new, b"k", b"v")
    assert story.read(new, b"k") == b"v"
    story.deleted(new, b"k")
    execution = Execution([], {b"k": watched}, NoPlain(monotonic))
    is_executed = isinstance(execution.answers(_view(story, new)), list)
    assert not (is_answered and is_executed)


def test_a_restarted_copy_that_becomes_primary_knows_what_its_purged_tombstones_told() -> None:
    story = Scenario(agents=2, replicas=2)
    first, second = story.primary, story.backups()[0]
    story.written(first, b"other", b"1")
    position = story.copy(first).hwm  # WATCH k, which is absent
    story.written(first, b"k", b"1")
    story.deleted(first, b"k")
    story.run(3000)
    assert story.copy(second).get(b"k") is None, "its tombstone is gone everywhere"
    story.crash(second)
    story.run(50)
    story.start(second)
    story.wait(lambda: second in story.row.owners and story.row.active is None, "it owns again")
    story.run(500)
    agent = story.agent(first)
    agent.run(lambda: agent.core.leave(agent.now()))
    story.wait(lambda: story.serves(second), "it is primary", step_ms=1)
    assert story.copy(second).written_since({b"k": position})


def test_a_position_of_updates_that_were_undone_is_none() -> None:
    story = Scenario()
    first = story.primary
    story.written(first, b"other", b"1")
    story.cut(first)
    for number in range(3):  # nobody acknowledges these
        story.write(first, b"lost%d" % number, b"x")
    story.run(20)
    view = View()
    view.copy = story.copy(first)
    position = view.position()  # what a WATCH of k, which is absent, notes
    second = story.wait_for_primary(first)
    story.written(second, b"k", b"1")
    story.deleted(second, b"k")
    assert story.copy(second).written_since({b"k": position})
