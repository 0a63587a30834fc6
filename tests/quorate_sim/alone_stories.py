"""Writes that the primary alone acknowledged: a hand-over keeps them, a loss is announced."""

from quorate.facts.zone import WriteMode
from quorate_sim.scenario import Scenario

LEASE_MS = 1000
RESET_MS = 1500


def primary_sync(agents: int = 3, in_memory: bool = False) -> Scenario:
    """A zone of three copies."""
    mode = WriteMode.PRIMARY_SYNC
    return Scenario(agents, 3, in_memory, reset_ms=RESET_MS, write_mode=mode)


def written_alone(story: Scenario, key: bytes, value: bytes) -> str:
    """Cut the primary off from the other copies; it acknowledges a write that only it has."""
    primary, others = story.primary, story.backups()
    story.cut(primary, off=tuple(name for name in story.cluster.agents if name != primary))
    story.written(primary, key, value)
    assert all(story.copy(name).lwm < story.copy(primary).lwm for name in others)
    return primary


def announced(story: Scenario) -> list[str]:
    """The announcements by masters that writes may be lost."""
    return [line for line in story.world.lines if "event DataLossAccepted" in line]


def a_hand_over_waits_until_others_have_what_was_acknowledged() -> None:
    """The primary is drained; just before it hands over it acknowledges a write alone."""
    story = primary_sync(agents=4)
    first = story.primary
    story.drain(first)
    story.wait(lambda: _is_joint(story, first), "joint mode", step_ms=1)
    assert story.primary == first
    written_alone(story, b"k", b"1")
    story.run(LEASE_MS // 2)
    story.heal()
    second = story.wait_for_primary(first)
    assert story.read(second, b"k") == b"1"
    story.come_to_rest()
    assert not announced(story)
    assert story.cluster.checks.resets.lost == {}


def _is_joint(story: Scenario, name: str) -> bool:
    role = story.role(name)
    return role is not None and role.joint is not None


def what_only_the_primary_had_is_lost_with_it_and_that_is_announced() -> None:
    """It is killed, and another takes over."""
    story = primary_sync()
    story.written(story.primary, b"k", b"everybody has this")
    story.run(500)
    first = written_alone(story, b"k", b"only the primary has this")
    story.crash(first)
    second = story.wait_for_primary(first)
    assert story.read(second, b"k") == b"everybody has this"
    (told,) = announced(story)
    assert "1 partitions (0) change their primary without a hand-over" in told
    assert f"({first} > {second})" in told
    story.heal()
    story.start(first)
    story.come_to_rest()
    assert story.read(story.primary, b"k") == b"everybody has this"
    assert story.cluster.checks.resets.lost == {("zone", 0): 1}
