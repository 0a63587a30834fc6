"""An activation may lack what was answered only when it comes too late to be adopted (I-5)."""

import pytest

from quorate.facts.errors import InvariantError
from quorate.protocol.copies.role_state import Stage
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.transfer import Updates
from quorate_sim.network import Link, Process
from quorate_sim.planted_primaries import answered_tail_ignored
from quorate_sim.scenario import Scenario

pytestmark = pytest.mark.simulation


def _late_activation() -> tuple[Scenario, str]:
    """A story in which an agent is about to begin a term that another one has overtaken; the agent.

    What it lacked is the last it has heard."""
    story = Scenario()
    old = story.primary
    second = story.backups()[0]
    story.written(old, b"x", b"0")
    story.cut(old, off=(second,))
    story.written(old, b"x", b"1")  # on the old one and the third
    held: list[tuple[Link, Message]] = []

    def judge(link: Link, sender: Process, receiver: Process, message: Message) -> int:
        if not isinstance(message, Updates) or receiver.name != second:
            return 1
        held.append((link, message))
        return 0

    story.cluster.network.judge = judge
    story.crash(old)
    story.wait(lambda: story.role(second) is not None, "the second is to take over")
    story.wait(lambda: bool(held), "it has asked for what it lacks")
    story.cut(second)
    story.start(old)
    story.written(story.wait_for_primary(second), b"x", b"2")
    story.cluster.network.judge = None
    link, message = held[0]
    agent = story.agent(second)
    agent.run(lambda: agent.heard(link, message))
    return story, second


def test_one_that_comes_too_late_is_left_alone() -> None:
    story, late = _late_activation()
    story.run(50)
    role = story.role(late)
    assert role is not None
    assert role.stage is Stage.ADOPTING
    story.heal()
    story.come_to_rest()


def test_one_that_could_still_be_adopted_is_found() -> None:
    story, late = _late_activation()
    checks = story.cluster.checks
    checks._promises.clear()  # as if nobody had promised the later term
    checks._answered_by = {where: {} for where in checks._answered_by}
    with pytest.raises(InvariantError, match=rf"I-5: {late}.* lost"):
        story.run(50)


def test_one_that_ignores_what_a_voter_holds_is_found() -> None:
    story = Scenario()
    old = story.primary
    second = story.backups()[0]
    story.cut(old, off=(second,))
    story.written(old, b"x", b"1")
    story.crash(old)
    with answered_tail_ignored(), pytest.raises(InvariantError, match=r"I-5: .* lost"):
        story.wait_for_primary(old)
