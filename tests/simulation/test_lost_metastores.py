"""When the simulator lets a metastore be lost: where the protocol promises that it is rebuilt."""

import pytest

from quorate.protocol.messages.master import PreparedRow
from quorate.protocol.messages.message import Message
from quorate_sim.network import Link, Process
from quorate_sim.scenario import Scenario

pytestmark = pytest.mark.simulation


@pytest.fixture
def given_up() -> tuple[Scenario, str, str]:
    """A migration to an agent in memory, which ended when the source had frozen; that it was given
    up is written, and the source has not heard of it.  The story, the source, the other agent."""
    story = Scenario(agents=2, replicas=1, in_memory=True)
    source = story.primary
    other = next(name for name in story.cluster.agents if name != source)
    story.written(source, b"k", b"1")
    story.drain(source)
    story.wait(lambda: story.zone(source).table[0] == story.row, "has heard", step_ms=1)
    story.wait(lambda: story.row.active is not None, "a migration is active", step_ms=1)
    story.wait(lambda: story.zone(source).table[0] == story.row, "is told", step_ms=1)
    assert story.cluster.may_lose_metastore()
    story.cluster.network.judge = _is_prepared_by_nobody
    story.wait(lambda: bool((role := story.role(source)) and role.frozen), "it has frozen")
    story.cut(source)
    story.crash(other)
    story.wait(lambda: story.row.active is None, "it is given up")
    assert story.row.voter_nodes == (source,)
    return story, source, other


def _is_prepared_by_nobody(link: Link, sender: Process, receiver: Process, message: Message) -> int:
    return 0 if isinstance(message, PreparedRow) else 1


def lose_metastore(story: Scenario, knows: str) -> None:
    story.cluster.masters[-1].die()
    story.cluster.metastore.lose(story.cluster.disks[knows].master_term)
    story.cluster.add_master()


def test_not_while_a_row_would_be_the_newest_whose_new_voters_are_gone(
    given_up: tuple[Scenario, str, str],
) -> None:
    story, source, other = given_up
    assert not story.cluster.may_lose_metastore()

    lose_metastore(story, source)
    story.heal()
    story.start(other)
    story.run(10_000)
    row = story.cluster.committed_row("zone", 0)
    assert row is None, f"{other} may have had newer writes, and its memory is gone: {row}"


def test_again_when_the_source_has_heard(given_up: tuple[Scenario, str, str]) -> None:
    story, source, other = given_up
    story.heal()
    story.wait(story.cluster.may_lose_metastore, "the source says that it has the row")

    lose_metastore(story, source)
    story.start(other)
    assert story.read(story.wait_for_primary(), b"k") == b"1"
    story.come_to_rest()
