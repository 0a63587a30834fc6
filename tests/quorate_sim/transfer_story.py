"""Stories that begin in the middle of a full copy: what comes of it is kept back for a while."""

from quorate.protocol.messages.message import Message
from quorate.protocol.messages.transfer import SnapshotChunk
from quorate_sim.network import Link, Process
from quorate_sim.scenario import Scenario

KEYS = tuple(b"k%02d" % number for number in range(40))
OLD, NEW = b"old" + b"." * 100, b"new" + b"." * 100


class HeldChunks:
    """Keeps back the pieces of a full copy to one agent, once `passed` of them have come."""

    def __init__(self, story: Scenario, to: str, passed: int = 1) -> None:
        self.story = story
        self.to = to
        self.left = passed
        self.kept: list[tuple[str, SnapshotChunk]] = []
        self.sent = 0
        story.cluster.network.judge = self._judge

    def _judge(self, link: Link, sender: Process, receiver: Process, message: Message) -> int:
        if not isinstance(message, SnapshotChunk) or receiver.name != self.to:
            return 1
        self.sent += 1
        if self.left > 0:
            self.left -= 1
            return 1
        self.kept.append((sender.name, message))
        return 0

    def wait(self) -> None:
        """Until a piece is kept back."""
        self.story.wait(lambda: bool(self.kept), "a piece of the copy is on its way", step_ms=1)

    def deliver(self) -> None:
        """The first piece that was kept back comes now, and whatever is asked for later too."""
        self.release()
        sender, chunk = self.kept[0]
        agent = self.story.agent(self.to)
        agent.run(lambda: self.story.zone(self.to).receive(sender, chunk, agent.now()))

    def release(self) -> None:
        self.story.cluster.network.judge = None


def written_long_ago(story: Scenario) -> None:
    """All keys have a value, and no log tells of it any more: a newcomer gets a full copy."""
    for key in KEYS:
        story.written(story.primary, key, OLD)
    story.run(1000)  # every owner has heard that every owner has everything
    for owner in story.row.owners:
        copy = story.copy(owner)
        copy.cut_log(copy.lwm)


def primary_moves(passed: int = 1) -> tuple[Scenario, HeldChunks]:
    """The only copy moves from a1 to a2, which has got `passed` pieces of it."""
    story = Scenario(agents=1, replicas=1)
    written_long_ago(story)
    story.add("a2")
    chunks = HeldChunks(story, "a2", passed)
    story.drain("a1")
    chunks.wait()
    return story, chunks


def backup_moves(passed: int = 1) -> tuple[Scenario, HeldChunks, str]:
    """One of three copies moves to a4, which has got `passed` pieces of it; who gives it away."""
    story = Scenario()
    written_long_ago(story)
    leaver = story.backups()[-1]
    story.add("a4")
    chunks = HeldChunks(story, "a4", passed)
    story.drain(leaver)
    chunks.wait()
    return story, chunks, leaver
