"""What is said of zones without looking at every partition each time, and how often one looks."""

import pytest

from quorate.facts.zone import ZoneRecord
from quorate.protocol.master.master import Master
from quorate.protocol.messages.master import ZoneReady
from quorate.protocol.zone_master import zone_master
from quorate.protocol.zone_master.zone_master import ZoneMaster
from quorate_lone_master.world import LoneMaster
from quorate_sim.faults import run_seed

ZONE = ZoneRecord("uid", "z", 64, 3, scale_down_ms=10_000)
OTHER = ZoneRecord("other", "o", 64, 3)


def test_whatever_happens_to_a_cluster_the_view_is_what_looking_at_every_partition_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = 0
    check = Master.check

    def compare(master: Master) -> None:
        nonlocal compared
        check(master)
        for zone in master.zones.values():
            compared += 1
            assert zone.status() == zone.view.observe(zone.record, zone.sentence)
        primaries: dict[str, int] = {}
        owners: dict[str, int] = {}
        for zone in master.zones.values():
            for part in zone.parts.values():
                for node in part.row.owners:
                    owners[node] = owners.get(node, 0) + 1
                if part.row.replicas[0] is not None:
                    primaries[part.row.replicas[0]] = primaries.get(part.row.replicas[0], 0) + 1
        told = {node.name: (node.primaries, node.owners) for node in master.status().nodes}
        assert told == {n: (primaries.get(n, 0), owners.get(n, 0)) for n in told}

    monkeypatch.setattr(Master, "check", compare)
    for seed in range(10):
        run_seed(seed)

    assert compared > 4_000


def test_a_zone_in_which_nothing_has_changed_is_said_by_the_same_object() -> None:
    world = LoneMaster(ZONE, OTHER)
    world.wait(lambda: world.status(ZONE).phase == world.status(OTHER).phase == "Available")
    before, of_other = world.status(ZONE), world.status(OTHER)

    world.pass_time(20_000)
    assert world.status(ZONE) is before

    world.master.zones[ZONE.uid].sentence = "changed"
    part = world.master.zones[ZONE.uid].parts[0]
    world.master.zones[ZONE.uid].parts[0] = part
    assert world.status(OTHER) is of_other

    world.kill("a")
    assert world.status(ZONE) is not before
    assert world.status(OTHER) is not of_other


def test_partitions_at_rest_are_looked_at_seldom_and_at_once_when_an_agent_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = LoneMaster(ZONE)
    world.wait(lambda: world.status(ZONE).phase == "Available")
    world.pass_time(2 * zone_master.QUIET_PASS_MS)
    looks = 0
    decide_part = ZoneMaster._decide_part

    def counted(*args: object) -> None:
        nonlocal looks
        looks += 1
        decide_part(*args)

    monkeypatch.setattr(ZoneMaster, "_decide_part", counted)
    world.pass_time(2 * zone_master.QUIET_PASS_MS)
    assert 0 < looks <= 3 * ZONE.partitions

    primaries = [p for p, row in world.rows(ZONE).items() if row.replicas[0] == "a"]
    world.kill("a")

    assert primaries
    rows = world.rows(ZONE)
    assert all(rows[partition].replicas[0] not in ("a", None) for partition in primaries)


def test_a_zone_is_not_at_rest_while_an_agent_is_away() -> None:
    world = LoneMaster(ZONE, nodes=("a", "b", "c", "d"))
    world.wait(lambda: world.status(ZONE).phase == "Available")
    world.pass_time(2 * zone_master.QUIET_PASS_MS)
    world.kill("d")

    # Its copies go to the others as soon as it is waited for no more, not seconds later.
    world.wait(lambda: "d" not in world.status(ZONE).data_nodes, 11_000)


def test_a_refusal_is_said_although_no_partition_has_changed() -> None:
    world = LoneMaster(ZONE, nodes=("a", "b", "c", "d"))
    world.wait(lambda: world.status(ZONE).phase == "Available")

    world.master.receive("d", ZoneReady(ZONE.uid, 0, problem="no room"), world.now)

    assert world.status(ZONE).refusals == (("d", "no room"),)
