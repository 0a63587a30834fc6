"""Labels of pods and nodes that the operator tells the master are attributes of agents.

Storage classes of their volumes are storage profiles.
"""

import msgspec

from quorate.facts.topology import NodeRecord, PodFacts
from quorate.facts.zone import ZoneRecord
from quorate.protocol.metastore import NodeKey
from quorate_lone_master.world import LoneMaster

ON_SSD = ZoneRecord("uid-1", "cart", 8, 2, filter="disk=ssd", scale_up_ms=5_000)
NODES = ("a", "b", "c", "d")
IN_PODS = dict.fromkeys(NODES, (7200, 7299))
SSD, HDD = {"disk": "ssd"}, {"disk": "hdd"}
FAST = PodFacts({}, SSD)


def tell(world: LoneMaster, **pods: PodFacts) -> None:
    world.master.places.tell_pods(pods)
    world.write()


def registered(world: LoneMaster, node: str = "a") -> dict[str, str]:
    record = world.stored[NodeKey(node)]
    assert isinstance(record, NodeRecord)
    return record.attributes


def owners(world: LoneMaster) -> str:
    return " ".join(sorted({node for row in world.rows(ON_SSD).values() for node in row.owners}))


def test_the_agents_own_attribute_counts_before_the_pods_label_and_that_before_the_nodes() -> None:
    own = {"a": {"tier": "agent"}}
    world = LoneMaster(nodes=("a",), client_ports=IN_PODS, attributes=own)
    of_node = {"tier": "node", "disk": "node", "rack": "r1"}

    tell(world, a=PodFacts({"tier": "pod", "disk": "pod"}, of_node))

    assert registered(world) == {"tier": "agent", "disk": "pod", "rack": "r1"}


def test_copies_follow_a_label_that_is_set_on_a_node() -> None:
    world = LoneMaster(ON_SSD, nodes=NODES, client_ports=IN_PODS)
    assert world.rows(ON_SSD) == {}
    tell(world, a=FAST, b=FAST, c=PodFacts({}, HDD))
    world.pass_time(2_000)
    assert owners(world) == "a b"

    tell(world, a=PodFacts({}, HDD), d=FAST)
    world.pass_time(30_000)

    assert owners(world) == "b d"


def test_a_zone_at_rest_follows_a_label_at_once() -> None:
    world = LoneMaster(zone := msgspec.structs.replace(ON_SSD, scale_up_ms=0), client_ports=IN_PODS)
    tell(world, a=FAST, b=FAST, c=FAST)
    world.pass_time(60_000)
    assert world.master.zones[zone.uid].is_idle

    tell(world, c=PodFacts({}, HDD))
    world.pass_time(200)

    assert world.status(zone).data_nodes == ("a", "b")


def test_a_label_wakes_only_the_zones_that_the_agent_comes_or_ceases_to_fit() -> None:
    zones = [
        ZoneRecord(f"uid-{wanted}", wanted or "all", 8, 2, filter=wanted)
        for wanted in ("", "disk=ssd", "rack=r1")
    ]
    both = PodFacts({"rack": "r1"}, SSD)
    world = LoneMaster(*zones, client_ports=IN_PODS)
    tell(world, a=both, b=both, c=both)
    world.pass_time(60_000)

    def woken(**pods: PodFacts) -> list[str]:
        """The zones that look at all their partitions again."""
        masters = [world.master.zones[zone.uid] for zone in zones]
        before = [zone.parts.changes for zone in masters]
        world.master.places.tell_pods(pods)
        world.write()
        return [
            z.record.name for z, was in zip(masters, before, strict=True) if z.parts.changes > was
        ]

    assert woken(c=PodFacts({"rack": "r1", "app": "x"}, SSD)) == [], "no filter names it"
    assert woken(c=PodFacts({"rack": "r1", "app": "x"}, HDD)) == ["disk=ssd"]


def test_what_was_told_holds_while_a_pod_or_its_node_cannot_be_read() -> None:
    """Otherwise each restart of the operator would move all copies."""
    world = LoneMaster(nodes=("a", "b"), client_ports=IN_PODS)
    tell(world, a=PodFacts({"app": "x"}, SSD))
    world.follow()
    world.connect("a", "b")
    assert registered(world) == {"app": "x", **SSD}

    tell(world, a=PodFacts({"app": "y"}, None), b=PodFacts({"app": "z"}, None))

    assert registered(world) == {"app": "y", **SSD}
    assert registered(world, "b") == {"app": "z"}
    tell(world, a=PodFacts({}, HDD))
    assert registered(world) == HDD


def test_a_label_that_the_pod_no_longer_has_is_forgotten_while_its_node_cannot_be_read() -> None:
    world = LoneMaster(nodes=("a",), client_ports=IN_PODS)
    tell(world, a=PodFacts({"app": "x"}, SSD))
    tell(world, a=PodFacts({}, None))
    assert registered(world) == SSD

    tell(world, a=PodFacts({"app": "x"}, None))
    world.follow()
    world.connect("a")
    tell(world, a=PodFacts({}, None))

    assert registered(world) == SSD


def test_what_an_agent_no_longer_says_is_forgotten_by_the_next_master() -> None:
    """And nothing that it still says is missing until it greets."""
    own, nvme = {"a": {"own": "x"}}, {"a": ("disk", "nvme")}
    world = LoneMaster(nodes=("a",), client_ports=IN_PODS, attributes=own, profiles=nvme)
    tell(world, a=PodFacts({"app": "x"}, SSD, "fast"))
    world.follow()
    tell(world, a=PodFacts({"app": "y"}, SSD, None))
    assert registered(world)["own"] == "x"
    world.attributes.clear()
    world.profiles["a"] = ("disk",)
    world.connect("a")

    assert registered(world) == {"app": "y", **SSD}
    record = world.stored[NodeKey("a")]
    assert isinstance(record, NodeRecord)
    assert record.storage_profiles == ("disk", "fast")


def test_labels_of_a_node_that_the_pod_has_left_are_forgotten() -> None:
    world = LoneMaster(nodes=("a",), client_ports=IN_PODS)
    tell(world, a=PodFacts({}, SSD, None, "n1"))
    world.follow()
    world.connect("a")
    tell(world, a=PodFacts({}, None))
    assert registered(world) == SSD, "it is on no node yet"

    tell(world, a=PodFacts({}, None, None, "n2"))

    assert registered(world) == {}


def test_one_that_is_told_of_before_it_greets_is_registered_so_at_once() -> None:
    world = LoneMaster(nodes=(), client_ports=IN_PODS)
    tell(world, a=FAST)
    world.connect("a")

    assert registered(world) == SSD


def test_labels_count_only_of_agents_in_pods_that_are_managed() -> None:
    world = LoneMaster(nodes=("a",), attributes={"a": {"own": "x"}})
    tell(world, a=FAST)

    assert registered(world) == {"own": "x"}


def test_an_attribute_that_the_agent_no_longer_has_is_forgotten() -> None:
    world = LoneMaster(nodes=("a",), client_ports=IN_PODS, attributes={"a": {"own": "x"}})
    tell(world, a=FAST)
    assert registered(world) == {"own": "x", **SSD}
    world.attributes.clear()
    world.connect("a")

    assert registered(world) == SSD


def test_the_storage_class_of_a_volume_is_one_more_profile() -> None:
    world = LoneMaster(nodes=("a", "b"), client_ports=IN_PODS)

    def profiles() -> tuple[str, ...]:
        record = world.stored[NodeKey("a")]
        assert isinstance(record, NodeRecord)
        return record.storage_profiles

    tell(world, a=PodFacts({}, {}, "fast"))
    assert profiles() == ("disk", "fast", "memory")
    tell(world, a=PodFacts({}, {}, None))
    world.follow()
    world.connect("a", "b")
    assert profiles() == ("disk", "fast", "memory"), "what was told holds"

    tell(world, a=PodFacts({}, {}, ""))
    world.connect("a")

    assert profiles() == ("disk", "memory")
