"""A node that drains does so under every master, until it is told otherwise or removed."""

import msgspec

from quorate.facts.time import Now
from quorate.facts.topology import NodeRecord
from quorate.facts.zone import ZoneRecord
from quorate.protocol.master.master import Master
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello
from quorate.protocol.messages.master import (
    Activated,
    AgentReport,
    CaughtUp,
    Freeze,
    Frozen,
    Inventory,
    Prepared,
    PreparedRow,
    RowsStored,
    ZoneReady,
    ZoneTable,
)
from quorate.protocol.messages.message import Message
from quorate.protocol.metastore import Key, NodeKey, Value, ZoneKey
from quorate.protocol.settings import DEFAULTS

ZONE = ZoneRecord("uid-1", "books", 4, 2)
NODES = ("a", "b", "c")


class World:
    """A metastore that always answers, agents that always do as they are told."""

    def __init__(self) -> None:
        self.stored: dict[Key, Value] = {}
        self.ms = 0
        self.master = self.take_over()
        self.settle()
        for node in NODES:
            self.master.receive(node, ZoneReady(ZONE.uid, 7000), self.now)
        self.settle()

    @property
    def now(self) -> Now:
        return Now(1_000_000 + self.ms, self.ms)

    def take_over(self) -> Master:
        """A new master; every agent reaches it."""
        self.master = Master(1, DEFAULTS, self.now)
        self.master.load(self.stored, self.now)
        for node in NODES:
            if not self.stored or NodeKey(node) in self.stored:
                self.connect(node)
        self.master.set_zone(ZONE, self.now)
        return self.master

    def connect(self, node: str, store: str = "") -> None:
        hello = Hello(FORMAT_VERSION, "agent", "main", node, store or f"store-{node}", 1)
        self.master.agent_connected(hello, self.now)

    def write(self) -> list[tuple[str, Message]]:
        """Do what the master wants written; what it sent."""
        sends: list[tuple[str, Message]] = []
        while True:
            outputs = self.master.take_outputs()
            sends += outputs.sends
            if not outputs.writes:
                return sends
            for key, value in outputs.writes:
                if value is None:
                    self.stored.pop(key, None)
                else:
                    self.stored[key] = value
                self.master.written(key, value, self.now)

    def settle(self, seconds: float = 3) -> None:
        for _ in range(int(seconds * 10)):
            self.ms += 100
            for node, agent in list(self.master.agents.items()):
                if agent.connected:
                    self.master.receive(node, Inventory("", ()), self.now)
            self.master.tick(self.now)
            for node, message in self.write():
                self._answer(node, message)
            self._report()

    def _answer(self, node: str, message: Message) -> None:
        if isinstance(message, PreparedRow):
            row = message.row
            said: Message = Prepared(
                message.zone, row.partition, message.migration_id, row.version, True
            )
        elif isinstance(message, Freeze):
            said = Frozen(ZONE.uid, message.partition, message.migration_id, message.term, 0)
        elif isinstance(message, ZoneTable):
            said = RowsStored(ZONE.uid, tuple((row.partition, row.version) for row in message.rows))
        else:
            return
        self.master.receive(node, said, self.now)

    def _report(self) -> None:
        for part in list(self.master.zones[ZONE.uid].parts.values()):
            row = part.row
            if row.primary is None:
                continue
            serves = Activated(ZONE.uid, row.partition, row.term, 0)
            self.master.receive(row.primary.node, serves, self.now)
            if row.active is not None:
                even = CaughtUp(
                    ZONE.uid, row.partition, row.active.migration_id, row.version, row.term
                )
                self.master.receive(row.primary.node, even, self.now)

    def holders(self) -> set[str]:
        parts = self.master.zones[ZONE.uid].parts.values()
        return {node for part in parts for node in part.row.voter_nodes}

    def state(self, node: str) -> str:
        return next(each.state for each in self.master.status().nodes if each.name == node)

    def ports(self) -> dict[str, int]:
        record = self.stored[ZoneKey(ZONE.uid)]
        assert isinstance(record, ZoneRecord)
        return record.ports


def test_a_draining_node_gives_everything_away() -> None:
    world = World()
    assert world.holders() == {"a", "b", "c"}

    assert world.master.drain("c", True, world.now) == ""
    world.settle()

    assert world.holders() == {"a", "b"}
    assert world.state("c") == "Draining"


def test_the_next_master_goes_on_draining() -> None:
    world = World()
    world.master.drain("c", True, world.now)
    world.write()
    assert "c" in world.holders()

    world.take_over()
    world.settle()

    assert world.state("c") == "Draining"
    assert world.holders() == {"a", "b"}


def test_draining_begins_when_it_is_written() -> None:
    world = World()
    world.master.drain("c", True, world.now)

    assert world.state("c") == "Online"
    ((key, value),) = world.master.take_outputs().writes
    world.master.written(key, value, world.now)

    assert world.state("c") == "Draining"


def test_a_write_of_draining_that_another_overtook_is_repeated() -> None:
    world = World()
    world.master.drain("c", True, world.now)
    ((key, value),) = world.master.take_outputs().writes
    assert isinstance(value, NodeRecord)

    world.master.reloaded(key, msgspec.structs.replace(value, draining=False), world.now)
    world.settle()

    assert world.state("c") == "Draining"


def test_a_drained_node_that_comes_back_with_a_new_store_stays_drained() -> None:
    world = World()
    world.master.drain("c", True, world.now)
    world.settle()
    world.master.agent_disconnected("c", True, world.now)
    world.settle()

    world.connect("c", "a new store")
    world.settle()

    assert world.state("c") == "Draining"
    assert world.holders() == {"a", "b"}


def test_an_agent_that_ended_is_offline_also_if_it_said_so_before() -> None:
    world = World()
    world.master.receive("c", AgentReport(1, leaving=True), world.now)
    assert world.state("c") == "Leaving"

    world.master.agent_disconnected("c", True, world.now)
    world.settle()

    assert world.state("c") == "Offline"


def test_an_agent_that_ended_while_it_drained_is_offline_and_its_drain_goes_on() -> None:
    world = World()
    world.master.drain("c", True, world.now)
    world.settle()

    world.master.agent_disconnected("c", True, world.now)
    world.settle()

    assert world.state("c") == "Offline"
    assert [each.name for each in world.master.status().nodes if each.draining] == ["c"]


def test_a_node_that_no_longer_drains_gets_its_share_again() -> None:
    world = World()
    world.master.drain("c", True, world.now)
    world.settle()

    world.master.drain("c", False, world.now)
    world.settle()

    assert world.holders() == {"a", "b", "c"}


def test_a_removed_node_leaves_no_port_and_comes_back_as_a_new_one() -> None:
    world = World()
    assert sorted(world.ports()) == ["a", "b", "c"]
    assert "still holds copies" in world.master.forget("c", world.now)
    world.master.drain("c", True, world.now)
    world.settle()

    assert world.master.forget("c", world.now) == ""
    world.settle()
    assert NodeKey("c") not in world.stored
    assert sorted(world.ports()) == ["a", "b"]

    world.connect("c")
    world.settle()
    assert world.state("c") == "Online"
    assert world.holders() == {"a", "b", "c"}


def test_a_node_that_greets_while_its_removal_is_written_is_a_new_one() -> None:
    world = World()
    world.master.drain("c", True, world.now)
    world.settle()
    world.master.forget("c", world.now)
    ((key, value),) = world.master.take_outputs().writes
    assert value is None

    world.connect("c")
    del world.stored[key]
    world.master.written(key, value, world.now)
    world.settle()

    assert NodeKey("c") in world.stored
    assert world.state("c") == "Online"
    assert world.holders() == {"a", "b", "c"}


def test_a_removal_that_another_write_overtook_is_repeated() -> None:
    world = World()
    world.master.drain("c", True, world.now)
    world.settle()
    assert world.master.forget("c", world.now) == ""
    ((key, value),) = world.master.take_outputs().writes
    assert value is None

    world.master.reloaded(key, world.stored[key], world.now)
    world.settle()

    assert NodeKey("c") not in world.stored
    assert "c" not in world.master.agents


def test_ports_of_nodes_removed_under_the_last_master_are_forgotten() -> None:
    world = World()
    world.master.drain("c", True, world.now)
    world.settle()
    del world.stored[NodeKey("c")]

    world.take_over()
    world.settle()

    assert sorted(world.ports()) == ["a", "b"]


def test_a_node_that_is_back_before_its_leaving_is_written_has_not_left() -> None:
    world = World()
    world.master.agent_disconnected("c", True, world.now)

    world.connect("c")
    world.settle()

    record = world.stored[NodeKey("c")]
    assert isinstance(record, NodeRecord)
    assert record.left_since_ms is None
    assert world.state("c") == "Online"
