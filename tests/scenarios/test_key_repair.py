"""A key whose copies differ is repaired through the primary, which hands over first if it is wrong.

The simulator checks after each step that a quorum holds what was answered, and at the end that the
clients' history can be explained.
"""

from collections.abc import Callable

import pytest

from quorate.facts.time import Now
from quorate.protocol.messages.tools import HandedOver, HandOver, KeyRepaired, RepairKey
from quorate.protocol.storage import Row
from quorate_sim.scenario import Scenario

pytestmark = pytest.mark.simulation

KEY = b"k"
BAD = b"bad"
RIGHT = b"right"


class Repair:
    """Somebody who repairs the key, and hands the primary over from `off`, every 200 ms."""

    def __init__(self, story: Scenario, seen: Row, value: bytes | None, *off: str) -> None:
        self.story = story
        self.question = RepairKey("zone", 0, KEY, seen.counter, seen.term, value, 0)
        self.off = off
        self.answer = KeyRepaired()

    def ask(self) -> KeyRepaired:
        story, said = self.story, list[KeyRepaired | HandedOver]()
        hand_over = HandOver("zone", 0)
        for name in self.off:
            _told(story, name, lambda now, n=name: story.zone(n).repairs.hand_over(hand_over, now))
        primary = story.primary
        if primary and primary not in self.off:
            repairs = story.zone(primary).repairs
            _told(story, primary, lambda now: said.append(repairs.repair(self.question, now)))
        for each in said:
            assert isinstance(each, KeyRepaired)
            self.answer = each
        return self.answer

    def until_done(self, ms: int = 20_000) -> None:
        for _ in range(ms // 200):
            if self.ask().done or self.answer.changed or self.answer.problem:
                return
            self.story.run(200)
        raise AssertionError(f"not within {ms} ms: {self.answer}")


def _told(story: Scenario, name: str, what: Callable[[Now], object]) -> None:
    agent = story.agent(name)
    if agent.alive and "zone" in agent.core.zones:
        agent.run(lambda: what(agent.now()))


def damaged(name_of: Callable[[Scenario], str]) -> tuple[Scenario, str, Row]:
    """Three copies, of which one is damaged; its agent, and the row as it was written."""
    story = Scenario()
    story.written(story.primary, KEY, RIGHT)
    name = name_of(story)
    agent, copy = story.agent(name), story.copy(name)
    row = copy.get(KEY)
    assert row is not None

    def change() -> None:
        copy.space.put(KEY, Row(row.counter, row.term, row.expires_at, BAD))
        story.zone(name).touch(copy)

    agent.run(change)
    story.run(50)
    now = copy.get(KEY)
    assert now is not None
    assert now.value == BAD
    return story, name, row


def values(story: Scenario) -> set[bytes | None]:
    rows = [story.copy(owner).get(KEY) for owner in story.row.owners]
    return {row.value if row is not None else None for row in rows}


@pytest.mark.parametrize("value", [RIGHT, None], ids=["written", "removed"])
def test_every_copy_gets_the_row_that_the_primary_writes(value: bytes | None) -> None:
    story, _, row = damaged(lambda story: story.backups()[0])
    primary = story.primary
    repair = Repair(story, row, value)

    repair.until_done()

    assert (repair.answer.done, story.primary) == (True, primary)
    story.run(100)
    assert values(story) == {value}


def test_a_damaged_primary_hands_over_and_gets_the_row_as_a_backup() -> None:
    story, bad, row = damaged(lambda story: story.primary)
    repair = Repair(story, row, RIGHT, bad)

    repair.until_done()

    assert repair.answer.done
    assert story.primary != bad
    story.run(100)
    assert values(story) == {RIGHT}
    assert story.read(story.primary, KEY) == RIGHT
    repair.off = ()
    story.wait(lambda: story.primary == bad, "the primary is back in its place", 60_000)
    story.come_to_rest()


def test_a_key_that_a_client_wrote_before_the_repair_is_left_to_it() -> None:
    story, _, row = damaged(lambda story: story.backups()[0])
    story.written(story.primary, KEY, b"newer")
    repair = Repair(story, row, RIGHT)

    repair.until_done()

    assert "it is written with counter" in repair.answer.changed
    story.run(100)
    assert values(story) == {b"newer"}


def test_a_primary_that_is_lost_before_a_quorum_has_the_row_does_not_count_as_done() -> None:
    story, _, row = damaged(lambda story: story.backups()[0])
    first = story.primary
    story.cut(first)
    repair = Repair(story, row, RIGHT)
    story.run(10)
    assert not repair.ask().done
    story.wait_for_primary(first)

    repair.until_done()

    assert repair.answer.done
    story.heal()
    story.wait(lambda: values(story) == {RIGHT}, "all copies have the row", 60_000)
