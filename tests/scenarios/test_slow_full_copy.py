"""An election whose quorum needs a voter that first has to fetch all rows anew."""

import msgspec
import pytest

from quorate_sim.scenario import SETTINGS, Scenario
from quorate_sim.transfer_story import KEYS, NEW, OLD

pytestmark = pytest.mark.simulation

SLOW = msgspec.structs.replace(SETTINGS, transfer_bytes_per_s=2_000, migration_stall_ms=6_000)


def _one_was_away_for_long() -> tuple[Scenario, str, str]:
    """A backup that has everything, and one whose full copy has begun; the primary is lost."""
    story = Scenario(settings=SLOW)
    primary = story.primary
    whole, away = story.backups()
    for key in KEYS:
        story.written(primary, key, OLD)
    story.crash(away)
    for key in KEYS:
        story.written(primary, key, NEW)
    story.wait(lambda: away not in story.row.owners, "the one that is away has left")
    story.run(1000)  # the backup has heard that a majority has everything
    for owner in story.row.owners:
        copy = story.copy(owner)
        copy.cut_log(copy.lwm)
    story.start(away)
    story.wait(lambda: _needs_full_copy(story, away), "it needs a full copy")
    story.crash(primary)
    return story, whole, away


def _needs_full_copy(story: Scenario, name: str) -> bool:
    zone = story.agent(name).core.zones.get("zone")
    return zone is not None and any(fill.is_full for fill in zone.fills.values())


def test_an_election_waits_for_a_full_copy_that_gets_on() -> None:
    story, whole, away = _one_was_away_for_long()

    story.wait(lambda: story.serves(whole), "the one that has everything serves", 15_000)
    assert story.copy(away).adopted
    assert story.read(whole, KEYS[0]) == NEW
    assert story.read(whole, KEYS[-1]) == NEW
