"""Failure domains that the operator reads from nodes and tells the master."""

import msgspec

from quorate.facts.topology import NodeRecord
from quorate.facts.zone import ZoneRecord
from quorate.protocol.messages.handshake import Hello
from quorate.protocol.metastore import NodeKey
from quorate_lone_master.world import LoneMaster

ZONE = ZoneRecord("uid-1", "cart", 12, 2)
NODES = ("a", "b", "c", "d")
RACKS = {"a": "one", "b": "one", "c": "two", "d": "two"}
IN_PODS = dict.fromkeys(NODES, (7200, 7299))


class World(LoneMaster):
    """`says`: the failure domains that agents are started with."""

    says: dict[str, str]

    def hello(self, node: str, incarnation: int, store: str = "") -> Hello:
        made = super().hello(node, incarnation, store)
        domain = getattr(self, "says", {}).get(node, "")
        return msgspec.structs.replace(made, failure_domain=domain)

    def tell(self, domains: dict[str, str]) -> None:
        self.master.places.tell_domains(domains)
        self.write()

    def registered(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for node in NODES:
            record = self.stored.get(NodeKey(node))
            if isinstance(record, NodeRecord):
                found[node] = record.failure_domain
        return found

    def shared(self) -> list[int]:
        """Partitions with two copies in one rack."""
        rows = self.rows(ZONE).values()
        return [r.partition for r in rows if len({RACKS[n] for n in r.owners}) < len(r.owners)]


def test_copies_move_to_where_nodes_say_that_they_are_apart() -> None:
    world = World(ZONE, nodes=NODES, client_ports=IN_PODS)
    assert world.shared(), "each agent counted as a domain by itself"

    world.tell(RACKS)

    assert world.registered() == RACKS
    world.wait(lambda: not world.shared())


def test_what_was_told_holds_through_restarts_of_agents_and_under_the_next_master() -> None:
    world = World(ZONE, nodes=NODES, client_ports=IN_PODS)
    world.tell(RACKS)
    world.connect("a")
    assert world.registered() == RACKS
    world.follow()
    world.connect(*NODES)
    assert world.registered() == RACKS, "the new master has not been told anything yet"

    world.tell({"a": "two"})
    assert world.registered()["a"] == "two"
    world.connect("a")
    assert world.registered()["a"] == "two"


def test_one_that_is_told_of_before_it_greets_is_registered_so_at_once() -> None:
    world = World(nodes=(), client_ports=IN_PODS)
    world.tell(RACKS)
    assert world.registered() == {}
    world.connect(*NODES)

    assert world.registered() == RACKS


def test_where_the_node_does_not_say_the_agent_is_believed() -> None:
    world = World(nodes=(), client_ports=IN_PODS)
    world.says = {"a": "zone-a", "b": "zone-b"}
    world.connect(*NODES)
    world.tell({"a": "", "b": "two"})

    assert world.registered() == {"a": "zone-a", "b": "two", "c": "", "d": ""}
    world.tell({"b": ""})
    assert world.registered()["b"] == "zone-b"


def test_an_agent_that_says_another_domain_than_before_is_believed_until_its_node_is_read() -> None:
    """The operator may no longer read Nodes, and the pod was made anew in another zone."""
    world = World(nodes=(), client_ports=IN_PODS)
    world.says = {"a": "zone-a"}
    world.connect("a")
    world.tell({"a": "zone-a", "b": "zone-a"})
    world.says = {"a": "zone-b"}
    world.connect("a")
    assert world.registered()["a"] == "zone-b"
    world.connect("a")
    assert world.registered()["a"] == "zone-b"

    world.tell({"a": "zone-c"})
    world.connect("a")
    assert world.registered()["a"] == "zone-c", "it says the same as before"
    world.says = {"b": "zone-b"}
    world.connect("b")
    assert world.registered()["b"] == "zone-a", "its first word to this master is no news"


def test_a_label_that_is_taken_away_is_forgotten() -> None:
    world = World(nodes=NODES, client_ports=IN_PODS)
    world.tell(RACKS)
    world.tell({"a": ""})
    assert world.registered()["a"] == ""
    world.follow()
    world.connect(*NODES)

    assert world.registered()["a"] == ""


def test_of_an_agent_that_somebody_else_starts_nothing_is_told() -> None:
    world = World(nodes=())
    world.says = {"a": "cellar"}
    world.connect("a", "b")
    world.tell({"a": "one", "b": "one"})
    world.follow()
    world.connect("a", "b")

    assert world.registered() == {"a": "cellar", "b": ""}
