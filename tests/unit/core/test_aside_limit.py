"""Of what resets have left on an agent the oldest is dropped, so that the rest fits; it is told."""

import msgspec
import pytest

from quorate.protocol.agent.all_zones import aside_limit
from quorate.protocol.agent.all_zones.aside_limit import PER_PARTITION_MAX, AsideLimit
from quorate.protocol.agent.upkeep import RETRY_ASIDE_MS
from quorate.protocol.copies.record import (
    ASIDE_KEPT_MS,
    KeptRows,
    read_kept_rows,
    write_kept_rows,
)
from quorate.protocol.messages.master import AgentReport, AsideReport, MasterPing
from quorate.protocol.settings import DEFAULTS
from quorate.protocol.storage import Row
from quorate_lone_agent.core import TICK_MS, LoneAgent
from quorate_sim.disk import SimStorage


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> LoneAgent:
    """An agent with two zones, and room for 100 bytes that are set aside."""
    made = LoneAgent(2, monkeypatch)
    settings = msgspec.structs.replace(DEFAULTS, aside_bytes_max=100)
    made.core._aside = made.core._reports._aside = AsideLimit(made.core.zones, settings)
    return made


def set_aside(
    agent: LoneAgent, uid: str, partition: int, generation: int, age_ms: int, size: int
) -> None:
    zone = agent.core.zones[uid]
    copy = zone.copies[partition]
    zone.storage.space(partition, generation).put(b"k", Row(1, 1, 0, b"v"))
    since_ms = agent.now.wall_ms - age_ms
    copy.kept_rows += (KeptRows(generation, since_ms, 2, 1, 1, 1, size),)
    write_kept_rows(zone.storage, partition, copy.kept_rows)
    zone.note_aside(copy)
    zone.touch(copy)


def kept(agent: LoneAgent, uid: str, partition: int) -> list[int]:
    return [each.generation for each in agent.core.zones[uid].copies[partition].kept_rows]


def report(agent: LoneAgent) -> AgentReport:
    agent.sent.clear()
    agent.core.receive_from_master(MasterPing(1, 1), agent.now)
    agent.turn()
    (found,) = [message for _, message in agent.sent if isinstance(message, AgentReport)]
    return found


def test_what_fits_is_kept_and_told(agent: LoneAgent) -> None:
    set_aside(agent, "zone-0", 0, 101, 3000, 60)
    set_aside(agent, "zone-0", 1, 101, 2000, 40)
    agent.pass_time(2 * aside_limit.CHECK_MS)

    assert kept(agent, "zone-0", 0) == kept(agent, "zone-0", 1) == [101]
    assert report(agent).aside == {"zone-0": AsideReport(2, 100, 0)}


def test_the_oldest_of_all_zones_goes_first(agent: LoneAgent) -> None:
    set_aside(agent, "zone-1", 0, 101, 3000, 30)
    set_aside(agent, "zone-0", 0, 101, 2000, 60)
    set_aside(agent, "zone-0", 0, 102, 1000, 41)
    agent.pass_time(2 * aside_limit.CHECK_MS)

    assert kept(agent, "zone-1", 0) == []
    assert kept(agent, "zone-0", 0) == [102]
    zone = agent.core.zones["zone-0"]
    assert zone.storage.space(0, 101).get(b"k") is None
    assert zone.storage.space(0, 102).get(b"k") is not None
    assert [each.generation for each in read_kept_rows(zone.storage, 0)] == [102]
    assert report(agent).aside == {
        "zone-0": AsideReport(1, 41, 1),
        "zone-1": AsideReport(0, 0, 1),
    }


def test_what_alone_does_not_fit_is_dropped(agent: LoneAgent) -> None:
    set_aside(agent, "zone-0", 0, 101, 1000, 101)
    agent.pass_time(2 * aside_limit.CHECK_MS)

    assert kept(agent, "zone-0", 0) == []


def test_a_partition_keeps_the_latest_few(agent: LoneAgent) -> None:
    for number in range(PER_PARTITION_MAX + 3):
        set_aside(agent, "zone-0", 0, 101 + number, 5000 - number, 0)
    set_aside(agent, "zone-0", 1, 101, 9000, 0)
    agent.pass_time(2 * aside_limit.CHECK_MS)

    assert kept(agent, "zone-0", 0) == [101 + number for number in range(3, PER_PARTITION_MAX + 3)]
    assert kept(agent, "zone-0", 1) == [101]
    assert report(agent).aside == {"zone-0": AsideReport(PER_PARTITION_MAX + 1, 0, 3)}


def refuse(agent: LoneAgent, uid: str) -> None:
    """Have the zone's next batch find no room."""
    storage = agent.core.zones[uid].storage
    assert isinstance(storage, SimStorage)
    storage.refuse = True


def test_what_finds_no_room_when_it_is_due_is_dropped_later(agent: LoneAgent) -> None:
    set_aside(agent, "zone-0", 0, 101, ASIDE_KEPT_MS - 1000, 60)
    agent.pass_time(TICK_MS)

    refuse(agent, "zone-0")
    agent.pass_time(1000)
    assert kept(agent, "zone-0", 0) == [101]
    assert report(agent).aside == {"zone-0": AsideReport(1, 60, 0)}

    visits = agent.visits["zone-0"]
    agent.pass_time(RETRY_ASIDE_MS - 2 * TICK_MS)
    assert kept(agent, "zone-0", 0) == [101]
    assert agent.visits["zone-0"] < visits + 5, "a zone without room does not try all the time"

    agent.pass_time(2 * TICK_MS)
    assert kept(agent, "zone-0", 0) == []
    assert read_kept_rows(agent.core.zones["zone-0"].storage, 0) == ()
    assert agent.core.zones["zone-0"].storage.space(0, 101).get(b"k") is None


def test_what_finds_no_room_before_its_time_is_told_once_it_is_dropped(agent: LoneAgent) -> None:
    agent.pass_time(aside_limit.CHECK_MS)
    set_aside(agent, "zone-0", 0, 101, 3000, 101)
    agent.turn()
    refuse(agent, "zone-0")
    agent.pass_time(aside_limit.CHECK_MS)
    assert report(agent).aside == {"zone-0": AsideReport(1, 101, 0)}

    agent.pass_time(2 * aside_limit.CHECK_MS)
    assert kept(agent, "zone-0", 0) == []
    assert report(agent).aside == {"zone-0": AsideReport(0, 0, 1)}


@pytest.mark.parametrize("step_ms", [2 * ASIDE_KEPT_MS, 0, -2 * ASIDE_KEPT_MS])
def test_a_wall_clock_that_is_set_drops_nothing_before_its_time(
    agent: LoneAgent, step_ms: int
) -> None:
    set_aside(agent, "zone-0", 0, 101, ASIDE_KEPT_MS - 60_000, 60)
    agent.pass_time(TICK_MS)

    agent.wall_ahead_ms += step_ms
    agent.pass_time(30_000)
    assert kept(agent, "zone-0", 0) == [101]

    agent.pass_time(60_000)
    assert kept(agent, "zone-0", 0) == ([101] if step_ms < 0 else [])


@pytest.mark.parametrize("step_ms", [2 * ASIDE_KEPT_MS, -2 * ASIDE_KEPT_MS])
def test_what_is_set_aside_after_the_wall_clock_was_set_goes_in_time(
    agent: LoneAgent, step_ms: int
) -> None:
    agent.wall_ahead_ms += step_ms
    agent.pass_time(10_000)
    set_aside(agent, "zone-0", 0, 101, ASIDE_KEPT_MS - 60_000, 60)

    agent.pass_time(30_000)
    assert kept(agent, "zone-0", 0) == [101]

    agent.pass_time(60_000)
    assert kept(agent, "zone-0", 0) == []
    zone = agent.core.zones["zone-0"]
    assert not zone.aside


def test_a_wall_clock_that_was_behind_at_the_start_keeps_nothing_for_longer(
    agent: LoneAgent,
) -> None:
    months_ms = 60 * ASIDE_KEPT_MS
    set_aside(agent, "zone-0", 0, 101, -months_ms, 60)
    agent.pass_time(TICK_MS)

    agent.wall_ahead_ms += months_ms
    agent.pass_time(TICK_MS)

    due_ms = agent.core.zones["zone-0"].upkeep.aside_due_ms(agent.now)
    assert agent.ms < due_ms <= agent.ms + ASIDE_KEPT_MS


def test_of_what_is_dropped_no_time_is_remembered(agent: LoneAgent) -> None:
    set_aside(agent, "zone-0", 0, 101, 3000, 60)
    set_aside(agent, "zone-0", 0, 102, 1000, 60)
    agent.pass_time(3 * aside_limit.CHECK_MS)

    upkeep = agent.core.zones["zone-0"].upkeep
    assert [*upkeep._aside_due] == [(0, 102)]
