"""The simulator's check of an answer (I-5): a quorum of the newest row's voters holds it."""

import pytest

from quorate.facts.errors import InvariantError
from quorate.protocol.messages.master import ZoneTable
from quorate.protocol.messages.message import Message
from quorate_sim.network import Link, Process
from quorate_sim.scenario import Scenario

pytestmark = pytest.mark.simulation


@pytest.fixture
def there_and_back() -> tuple[Scenario, str, str, str]:
    """A backup has left and begins anew, in a second migration; the primary knows of the first one
    only, and not that it has ended.  The story, the primary, that backup, the newcomer."""
    story = Scenario(agents=3, replicas=2)
    primary, leaver = story.primary, story.backups()[0]
    newcomer = next(name for name in story.cluster.agents if name not in story.row.replicas)
    story.written(primary, b"x", b"1")
    story.drain(leaver)
    story.wait(lambda: story.row.active is not None, "it is to leave", step_ms=1)
    known = story.row

    def judge(link: Link, sender: Process, receiver: Process, message: Message) -> int:
        """The primary hears of no row after this one."""
        is_newer = isinstance(message, ZoneTable) and any(
            row.version > known.version for row in message.rows
        )
        return 0 if is_newer and receiver.name == primary else 1

    story.cluster.network.judge = judge
    story.wait(lambda: newcomer in story.row.voter_nodes, "the newcomer votes", step_ms=1)
    story.drain(leaver, False)
    story.drain(newcomer)
    story.wait(lambda: not story.copy(leaver).present, "the backup's copy is deleted", step_ms=1)
    story.wait(lambda: story.copy(leaver).present, "it begins anew", step_ms=1)
    role = story.role(primary)
    assert role is not None
    assert (role.row, story.copy(leaver).lwm) == (known, 0)
    return story, primary, leaver, newcomer


def test_a_voter_that_left_need_not_hold_it(
    there_and_back: tuple[Scenario, str, str, str],
) -> None:
    story, primary, _, _ = there_and_back
    assert story.read(primary, b"x") == b"1"
    story.cluster.network.judge = None
    story.come_to_rest()


def test_the_voter_that_took_its_place_must_hold_it(
    there_and_back: tuple[Scenario, str, str, str],
) -> None:
    story, primary, leaver, newcomer = there_and_back
    story.zone(newcomer).copies[0] = story.copy(leaver)
    with pytest.raises(InvariantError, match=rf"I-5: {primary}.* {newcomer} of 2 voters lack it"):
        story.read(primary, b"x")
