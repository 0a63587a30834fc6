"""With many zones, what is said of one costs what that one costs."""

import pytest

from quorate.facts.time import Now
from quorate.facts.zone import ZoneRecord
from quorate.protocol.messages.master import Activated, ZoneReady
from quorate.protocol.zone_master.zone_master import ZoneMaster
from quorate_lone_master.world import LoneMaster

ZONES = [
    ZoneRecord(f"uid-{number}", f"zone-{number}", 1, 3, scale_down_ms=10_000)
    for number in range(30)
]


def test_a_message_about_a_zone_has_no_other_zone_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = LoneMaster(*ZONES)
    looked_at: list[str] = []
    decide = ZoneMaster.decide

    def noted(zone: ZoneMaster, now: Now) -> None:
        looked_at.append(zone.record.uid)
        decide(zone, now)

    monkeypatch.setattr(ZoneMaster, "decide", noted)

    world.master.receive("a", ZoneReady("uid-7", 7007), world.now)
    world.master.receive("b", Activated("uid-9", 0, 1, 0), world.now)
    world.master.take_outputs()
    assert looked_at == ["uid-7", "uid-9"]

    world.write()  # the record of uid-7, with its port
    assert set(looked_at) == {"uid-7", "uid-9"}


def test_new_zones_have_nobody_tell_what_it_holds() -> None:
    """There is nothing to move.  All of 1,000 zones were told again every 10 s while new ones came,
    which took a busy machine so long that agents were taken for lost."""
    world = LoneMaster(*ZONES[:-1])
    world.pass_time(15_000)
    world.asked.clear()

    world.master.set_zone(ZONES[-1], world.now)
    world.pass_time(5_000)
    assert len(world.rows(ZONES[-1])) == 1
    assert world.asked == []

    world.connect("d")
    world.pass_time(15_000)
    world.asked.clear()
    world.kill("a")
    world.pass_time(15_000)  # its copies are made elsewhere
    assert world.asked
    assert all(each.brief for each in world.asked)


def test_all_zones_are_served_and_at_rest() -> None:
    world = LoneMaster(*ZONES)

    world.pass_time(5_000)

    statuses = world.master.status().zones
    assert [status.phase for status in statuses] == ["Available"] * len(ZONES)
    assert sum(zone.queue_length for zone in world.master.zones.values()) == 0


def test_migrations_of_many_zones_begin_and_end() -> None:
    world = LoneMaster(*ZONES)
    world.pass_time(5_000)

    world.connect("d")
    world.kill("a")  # of each zone a copy is to be made elsewhere
    world.pass_time(60_000)

    owners = [node for zone in ZONES for row in world.rows(zone).values() for node in row.owners]
    assert set(owners) == {"b", "c", "d"}
    assert {status.phase for status in world.master.status().zones} == {"Available"}
