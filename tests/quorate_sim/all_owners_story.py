"""A write with FULL_SYNC waits for every owner that is there: any of them may be the survivor."""

from quorate_sim.scenario import Scenario

RESET_MS = 1500
SHORT_MS = 100
"""Less than it takes to miss an owner that acknowledges nothing."""


def an_owner_that_lacks_a_write_keeps_it_from_being_answered() -> None:
    """Two of three have a write; they are lost at once, and the third is the survivor."""
    story = Scenario(3, 3, reset_ms=RESET_MS)
    primary = story.primary
    backup, survivor = story.backups()
    story.written(primary, b"k", b"everybody has this")
    story.cut(survivor, off=(primary, backup))
    op = story.write(primary, b"k", b"the survivor lacks this")
    story.wait(
        lambda: story.copy(backup).lwm == story.copy(primary).lwm > story.copy(survivor).lwm,
        "a majority has it",
        step_ms=1,
    )
    story.run(SHORT_MS)
    assert op.outcome == "open"
    story.crash(primary)
    story.crash(backup)
    story.heal()
    assert story.wait_for_primary(primary, backup) == survivor
    assert story.read(survivor, b"k") == b"everybody has this"
    story.start(primary)
    story.start(backup)
    story.come_to_rest()
