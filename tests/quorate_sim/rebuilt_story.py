"""Stories of rows that are rebuilt: under a migration, by too few, from stores that are lost."""

from collections.abc import Callable

from quorate.facts.partition_row import PartitionRow
from quorate.protocol.agent.masterships import RECOVERY_TERMS
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.replication import Fence, Sync
from quorate_operator.metastores.memory import MemoryMetastore
from quorate_sim.master_process import MasterProcess
from quorate_sim.network import Link, Process
from quorate_sim.scenario import Scenario


def lose_metastore(story: Scenario) -> None:
    """And its master."""
    story.cluster.masters[-1].die()
    story.cluster.metastore.store = MemoryMetastore()
    story.run(50)


def recover(story: Scenario) -> MasterProcess:
    """As `quorate dev recover` does: go on above the highest mastership that agents tell."""
    highest = max(agent.disk.master_term for agent in story.cluster.living())
    story.cluster.metastore.acquire_master_term(highest + RECOVERY_TERMS)
    return story.cluster.add_master(recovering=True)


class Rebuilt:
    """A voter was to be replaced by a4, which was filled with nothing.  `answered`: what only the
    primary and the backup that stays have; `row`: the rebuilt one, of which nobody is told yet."""

    def __init__(self) -> None:
        story = self.story = Scenario()
        self.primary, self.stays, self.leaves = story.primary, *story.backups()
        story.written(self.primary, b"x", b"1")
        story.add("a4")
        self.before = story.row.voters

        story.cluster.network.judge = _lets_through(lambda message: not isinstance(message, Sync))
        story.drain(self.leaves)
        story.wait(lambda: story.row.active is not None, "a migration is under way")
        active = story.row.active
        assert active is not None
        self.after = active.voters
        story.wait(lambda: story.zone("a4").table[0] == story.row, "the newcomer has its row")
        story.cut(self.leaves)
        story.written(self.primary, b"x", b"2")
        story.crash("a4")  # nobody can know whether it has prepared anything
        self.lose_metastore()
        story.cluster.network.judge = _lets_through(lambda message: not isinstance(message, Fence))
        story.cluster.add_master()
        story.wait(lambda: self.row is not None, "a row is rebuilt")

    @property
    def row(self) -> PartitionRow | None:
        """What the metastore holds."""
        return self.story.cluster.committed_row("zone", 0)

    def lose_metastore(self) -> None:
        """And its master."""
        cluster = self.story.cluster
        cluster.masters[-1].die()
        cluster.metastore.lose(cluster.disks[self.primary].master_term)

    def lose_stores(self, *names: str) -> None:
        """Their agents return with empty disks."""
        for name in names:
            self.story.crash(name)
            self.story.cluster.wipe(name)
            self.story.start(name)

    def let_through(self) -> None:
        """Everybody is there and reaches everybody."""
        self.story.heal()
        self.story.start("a4")
        self.story.cluster.network.judge = None


def _lets_through(passes: Callable[[Message], bool]) -> Callable[..., int]:
    def judge(link: Link, sender: Process, receiver: Process, message: Message) -> int:
        return 1 if passes(message) else 0

    return judge


def who_is_left_lacks_what_was_answered() -> None:
    """Both stores that have an answered write are gone for good; two others vote."""
    rebuilt = Rebuilt()
    story = rebuilt.story
    rebuilt.lose_stores(rebuilt.primary, rebuilt.stays)
    rebuilt.let_through()
    story.run(20_000)

    assert story.primary == "", f"{story.primary} serves and lacks what was answered"


def without_a_quorum_nothing_serves_and_the_missing_are_named() -> None:
    """Until one returns: of three voters one is there, which lacks a write."""
    story = Scenario()
    serving, other, here = story.primary, *story.backups()
    story.cut(here)
    story.written(serving, b"x", b"1")  # `here` does not have it
    lose_metastore(story)
    story.crash(serving)
    story.crash(other)
    story.heal()
    master = recover(story)
    story.run(10_000)

    assert story.cluster.committed_row("zone", 0) is None
    assert not story.primary
    assert master.master is not None
    (status,) = master.master.status().zones
    assert (status.phase, status.unavailable) == ("Unavailable", 1)
    assert f"the reports of {', '.join(sorted((serving, other)))}" in status.sentence
    story.start(serving)
    assert story.read(story.wait_for_primary(), b"x") == b"1"
    story.start(other)
    story.come_to_rest()
