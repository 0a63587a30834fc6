"""Which machines the simulator lets lose what they hold of a zone with `syncWrites: Interval`."""

import pytest

from quorate.facts.zone import SyncWrites
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.transfer import Updates
from quorate_sim.network import Link, Process
from quorate_sim.scenario import Scenario

pytestmark = pytest.mark.simulation


def _is_nothing_fetched(link: Link, sender: Process, receiver: Process, message: Message) -> int:
    return 0 if isinstance(message, Updates) else 1


@pytest.fixture
def behind() -> tuple[Scenario, str, str]:
    """A machine has lost its power, and with it updates that it does not get back yet.  The story,
    that machine's agent, the agent that has them."""
    story = Scenario(agents=2, replicas=2, sync_writes=SyncWrites.INTERVAL)
    primary, behind = story.primary, story.backups()[0]
    for number in range(20):
        story.written(primary, b"k%d" % number, b"v")
    story.crash(behind, machine_too=True)
    story.cluster.network.judge = _is_nothing_fetched
    story.start(behind)
    story.wait(lambda: "zone" in story.agent(behind).core.zones, "it has opened the zone")
    assert story.copy(behind).lwm < story.copy(primary).lwm
    return story, behind, primary


def test_not_the_one_that_has_what_another_lacks(behind: tuple[Scenario, str, str]) -> None:
    story, _, ahead = behind
    assert not story.cluster.may_lose_tail(ahead)

    story.cluster.network.judge = None
    story.come_to_rest()
    assert story.cluster.may_lose_tail(ahead)


def test_nor_when_it_has_not_opened_the_zone(behind: tuple[Scenario, str, str]) -> None:
    story, _, ahead = behind
    story.crash(ahead)
    story.cluster.disks[ahead].refuses.add("zone")
    story.start(ahead)
    story.wait(lambda: story.agent(ahead).core.registered, "it takes part")
    assert "zone" not in story.agent(ahead).core.zones
    assert not story.cluster.may_lose_tail(ahead)
