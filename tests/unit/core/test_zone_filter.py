"""A zone's filter and storage profile choose its data nodes, and its copies follow them."""

import msgspec
import pytest

from quorate.facts.topology import NodeRecord
from quorate.facts.zone import NEVER_MS, ZoneRecord
from quorate.planning.target.data_nodes import TimerKind
from quorate.protocol.metastore import NodeKey, ZoneKey
from quorate_lone_master.world import LoneMaster, placed_master

EU, US = {"region": "EU"}, {"region": "US"}
MIXED = {"a": EU, "b": EU, "c": EU, "d": US, "e": US, "f": US}
IN_EU = ZoneRecord("uid-1", "books", 8, 3, filter="region=EU", scale_down_ms=10_000)


def changed(world: LoneMaster, zone: ZoneRecord, **fields: object) -> ZoneRecord:
    zone = msgspec.structs.replace(zone, **fields)
    world.master.set_zone(zone, world.now)
    world.write()
    return zone


def data_nodes(world: LoneMaster, zone: ZoneRecord = IN_EU) -> str:
    """The data nodes that are stored, so that they outlive the master."""
    record = world.stored[ZoneKey(zone.uid)]
    assert isinstance(record, ZoneRecord)
    assert record.data_nodes is not None
    return " ".join(record.data_nodes.nodes)


def owners(world: LoneMaster) -> str:
    return " ".join(sorted({node for row in world.rows(IN_EU).values() for node in row.owners}))


def copies_at_least(world: LoneMaster, count: int) -> bool:
    return all(len(row.owners) >= count for row in world.rows(IN_EU).values())


def watched(world: LoneMaster, ms: int, copies: int) -> None:
    """Let time pass; no partition ever has fewer copies."""
    for _ in range(ms // 500):
        world.pass_time(500)
        assert copies_at_least(world, copies)


def test_a_zone_is_placed_on_the_agents_that_match() -> None:
    world = placed_master(IN_EU, nodes=tuple(MIXED), attributes=MIXED)
    world.pass_time(10_000)

    assert data_nodes(world) == owners(world) == "a b c"
    assert world.status(IN_EU).misfits == ""


def test_a_zone_waits_until_enough_agents_match() -> None:
    world = placed_master(IN_EU, nodes=("a", "b", "d", "e"), attributes=MIXED)
    assert world.rows(IN_EU) == {}
    assert "of 4 agents 2 (a, b) match dataNodesFilter region=EU" in world.status(IN_EU).sentence

    world.connect("c")
    world.pass_time(2_000)

    assert owners(world) == "a b c"


def test_a_changed_filter_takes_effect_at_once_and_copies_move_without_a_gap() -> None:
    world = placed_master(IN_EU, nodes=tuple(MIXED), attributes=MIXED)
    changed(world, IN_EU, filter="$[?(@.region == 'US')]")
    world.pass_time(500)
    assert data_nodes(world) == "d e f"

    watched(world, 60_000, copies=3)

    assert owners(world) == "d e f"
    assert world.said("DataNodesChanged") == [
        "added d, e, f; removed a, b, c: data nodes are now d, e, f"
    ]


def test_a_changed_filter_takes_who_is_there_and_waits_for_who_is_away() -> None:
    world = placed_master(
        zone := msgspec.structs.replace(IN_EU, filter="", scale_up_ms=60_000, replicas=2),
        nodes=("a", "b", "d"),
        attributes=MIXED,
    )
    world.kill("a")
    world.connect("c", "e")
    world.pass_time(1_000)
    assert len(world.status(zone).timers) == 2

    changed(world, zone, filter="region")
    world.pass_time(1_000)

    assert data_nodes(world) == "a b c d e"
    (timer,) = world.status(zone).timers
    assert (timer.kind, timer.nodes) == (TimerKind.SCALE_DOWN, ("a",))


def test_copies_leave_who_does_not_match_any_more_although_another_is_waited_for() -> None:
    zone = msgspec.structs.replace(IN_EU, filter="", scale_down_ms=NEVER_MS)
    world = placed_master(zone, nodes=tuple("abcde"), attributes=dict.fromkeys("bcde", EU))
    world.kill("b")
    world.pass_time(1_000)

    changed(world, zone, filter="region=EU")
    watched(world, 60_000, copies=2)

    assert owners(world) == "c d e"
    assert any("b" in row.voter_nodes for row in world.rows(IN_EU).values())


def test_a_filter_of_another_version_moves_nothing() -> None:
    """That version read it; this one must not take every node for one that matches."""
    world = placed_master(IN_EU, nodes=tuple(MIXED), attributes=MIXED)
    world.pass_time(6_000)  # its record is stored
    before, rows = data_nodes(world), world.rows(IN_EU)
    key, unread = ZoneKey(IN_EU.uid), "$[?match(@.region, 'E.*')]"
    record = world.stored[key]
    assert isinstance(record, ZoneRecord)
    assert record.data_nodes is not None
    chosen = msgspec.structs.replace(record.data_nodes, filter=unread)
    world.stored[key] = msgspec.structs.replace(record, filter=unread, data_nodes=chosen)
    world.follow()
    world.same_processes = True
    world.connect(*MIXED)
    world.pass_time(60_000)

    assert data_nodes(world) == before
    assert {p: row.voters for p, row in world.rows(IN_EU).items()} == {
        p: row.voters for p, row in rows.items()
    }


@pytest.mark.parametrize(("wanted", "kept"), [("disk=ssd", 1), ("nothing", 0)])
def test_too_few_matching_agents_cost_no_copy(wanted: str, kept: int) -> None:
    attributes = {**MIXED, "d": {"disk": "ssd"}}
    world = placed_master(IN_EU, nodes=tuple("abcd"), attributes=attributes)
    changed(world, IN_EU, filter=wanted)

    watched(world, 60_000, copies=3)

    assert data_nodes(world) == ("d" if kept else "")
    assert all(("d" in row.owners) == bool(kept) for row in world.rows(IN_EU).values())
    status = world.status(IN_EU)
    assert f"match dataNodesFilter {wanted}, and the zone has 3 replicas" in status.misfits
    assert "copies on a, b, c stay until then" in status.misfits
    assert status.migrations_running == status.migrations_queued == 0
    target = world.master.zones[IN_EU.uid].target
    assert target is not None
    assert all(len(owners) == 3 for owners in target), "the others are meant to stay"

    for node in "xyz":
        world.attributes[node] = {"disk": "ssd", "nothing": ""}
    world.connect("x", "y", "z")
    watched(world, 60_000, copies=3)

    assert not {*"abc"} & {*owners(world).split()}
    assert world.status(IN_EU).misfits == ""


def test_copies_are_cared_for_although_no_agent_matches() -> None:
    world = LoneMaster(IN_EU, nodes=tuple("abc"), attributes=MIXED)
    changed(world, IN_EU, filter="nothing")
    world.pass_time(10_000)
    world.follow()
    world.same_processes = True
    world.connect(*"abc")
    world.same_processes = False
    world.kill("b")
    world.pass_time(1_000)
    world.connect("b", store="another")
    world.pass_time(60_000)

    assert copies_at_least(world, 3)
    for row in world.rows(IN_EU).values():
        assert {voter.store for voter in row.voters} == {"store-a", "another", "store-c"}
    assert data_nodes(world) == ""


def test_an_agent_that_restarts_with_other_attributes_comes_or_goes() -> None:
    world = placed_master(IN_EU, nodes=tuple("abcde"), attributes=MIXED)
    world.attributes["d"] = EU
    world.attributes["a"] = US
    for node in "da":
        world.kill(node)
        world.connect(node)
        watched(world, 20_000, copies=2)

    assert data_nodes(world) == owners(world) == "b c d"
    assert copies_at_least(world, 3)


def test_an_agent_that_comes_to_match_waits_for_the_scale_up_timer() -> None:
    world = placed_master(
        zone := msgspec.structs.replace(IN_EU, scale_up_ms=30_000),
        nodes=tuple("abcd"),
        attributes=MIXED,
    )
    world.attributes["d"] = EU
    world.kill("d")
    world.connect("d")
    world.pass_time(25_000)
    assert data_nodes(world) == "a b c"
    assert [timer.nodes for timer in world.status(zone).timers] == [("d",)]

    world.pass_time(10_000)

    assert data_nodes(world) == "a b c d"


def test_the_next_master_knows_attributes_and_filter() -> None:
    world = placed_master(IN_EU, nodes=tuple(MIXED), attributes=MIXED)
    record = world.stored[NodeKey("d")]
    assert isinstance(record, NodeRecord)
    assert record.attributes == US
    world.follow()
    world.same_processes = True
    world.connect(*MIXED)

    world.pass_time(60_000)

    assert data_nodes(world) == owners(world) == "a b c"
    assert world.said("DataNodesChanged") == []


def test_a_storage_profile_chooses_the_agents_that_offer_it() -> None:
    zone = msgspec.structs.replace(IN_EU, filter="", storage_profile="nvme")
    profiles = dict.fromkeys("def", ("disk", "nvme"))
    world = placed_master(zone, nodes=tuple(MIXED), profiles=profiles)
    assert owners(world) == "d e f"

    zone = changed(world, zone, storage_profile="memory")
    watched(world, 60_000, copies=3)

    assert owners(world) == "a b c", "d, e and f do not offer it"

    zone = changed(world, zone, storage_profile="tape")
    watched(world, 10_000, copies=3)

    assert data_nodes(world) == ""
    assert "none match storageProfile tape" in world.status(zone).misfits


def test_agents_are_told_the_filter_that_outlives_a_metastore_and_no_attributes() -> None:
    world = placed_master(IN_EU, nodes=tuple(MIXED), attributes=MIXED, profiles={"a": ("x",)})
    told = world.master.zones[IN_EU.uid].told
    assert (told.filter, told.storage_profile) == (IN_EU.filter, "")

    record = world.stored[NodeKey("a")]
    assert isinstance(record, NodeRecord)

    assert record.storage_profiles == ("x",)
    assert record.as_told() == msgspec.structs.replace(
        NodeRecord("a", record.store, record.incarnation, "", 0, ""), process=record.process
    )
