"""HIGH_AVAILABILITY zones and agents of versions that do not know the mode."""

from quorate.facts.zone import ConsistencyMode, ZoneRecord
from quorate_lone_master.world import LoneMaster

OLD = 3
HIGH = ZoneRecord("uid-1", "sessions", 4, 3, mode=ConsistencyMode.HIGH_AVAILABILITY)


def test_a_zone_whose_mode_an_agent_does_not_know_waits_for_its_upgrade() -> None:
    world = LoneMaster()
    world.kill("c")
    world.formats["c"] = OLD
    world.connect("c")

    world.master.set_zone(HIGH, world.now)
    world.pass_time(3_000)

    assert world.rows(HIGH) == {}
    assert "consistencyMode HIGH_AVAILABILITY (upgrade c)" in world.status(HIGH).sentence
    world.kill("c")
    del world.formats["c"]
    world.connect("c")
    world.wait(lambda: world.status(HIGH).phase == "Available")


def test_an_agent_with_copies_must_not_go_back_to_such_a_version() -> None:
    world = LoneMaster(HIGH)
    world.wait(lambda: world.status(HIGH).phase == "Available")
    world.kill("c")
    world.formats["c"] = OLD

    refused = world.master.refusal(world.hello("c", 2))

    assert refused is not None
    assert "zone sessions" in refused.reason
    assert "needs frame format 4; it speaks 3" in refused.reason
    assert world.master.refusal(world.hello("d", 1)) is None, "it has no copies"


def test_zones_of_the_other_mode_take_agents_of_every_version() -> None:
    strong = ZoneRecord("uid-1", "sessions", 4, 3)
    world = LoneMaster()
    world.kill("c")
    world.formats["c"] = OLD
    world.connect("c")
    world.master.set_zone(strong, world.now)

    world.wait(lambda: world.status(strong).phase == "Available")
