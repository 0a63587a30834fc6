"""Stories of voters in memory that fall silent, and are dropped when their time is over."""

from quorate.protocol.messages.message import Message
from quorate.protocol.messages.replication import Append, Sync
from quorate.protocol.messages.transfer import Updates
from quorate_sim.network import Link, Process
from quorate_sim.scenario import Scenario


def five_in_memory() -> Scenario:
    """Five voters, no spare, one answered write."""
    story = Scenario(agents=5, replicas=5, in_memory=True)
    story.written(story.primary, b"x", b"1")
    return story


def silent_voters_are_dropped_when_a_majority_has_what_was_answered() -> None:
    """The primary and two that fall silent have a write; the two that are left lack it, until they
    are sent updates again. Then the primary is lost."""
    story = five_in_memory()
    primary, *others = story.primary, *story.backups()
    behind, silent = others[:2], others[2:]

    def judge(link: Link, sender: Process, receiver: Process, message: Message) -> int:
        is_data = isinstance(message, Append | Sync | Updates)
        return 0 if is_data and receiver.name in behind else 1

    story.cluster.network.judge = judge
    story.written(primary, b"x", b"2")
    story.cut(*silent)
    story.wait(lambda: story.row.active is not None, "the silent ones are to be dropped")
    story.run(3_000)
    assert {*silent} <= {*story.row.voter_nodes}, "dropped, and no majority has what was answered"

    story.cluster.network.judge = None
    story.wait(lambda: {*story.row.voter_nodes} == {primary, *behind}, "they are dropped")
    story.crash(primary)
    heir = story.wait_for_primary(primary)
    assert story.read(heir, b"x") == b"2"
    story.heal()
    story.start(primary)
    story.come_to_rest()


def silent_voters_are_dropped_when_their_time_is_over() -> None:
    """Two fall silent, and no other agent can take their places: the scale-down timer decides."""
    story = five_in_memory()
    silent = story.backups()[2:]
    story.cut(*silent)
    story.wait(lambda: not {*silent} & {*story.row.voter_nodes}, "they are dropped")
    story.heal()
    story.come_to_rest()
