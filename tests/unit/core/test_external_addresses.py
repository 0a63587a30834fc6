"""External addresses: told by the operator or announced by agents, kept, and told to all agents."""

from typing import Any

import msgspec
import pytest

from quorate.facts.time import Now
from quorate.facts.topology import NodeRecord
from quorate.facts.zone import ZoneRecord
from quorate.protocol.agent.agent import AgentCore
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello
from quorate.protocol.messages.master import Members, ZoneReady, ZoneTable
from quorate.protocol.messages.message import Message
from quorate.protocol.metastore import NodeKey, ZoneKey
from quorate.protocol.settings import DEFAULTS
from quorate.protocol.storage import Storage
from quorate_lone_master.world import LoneMaster
from quorate_sim.disk import Image, SimStorage

ZONE = ZoneRecord("uid-1", "cart", 4, 3)
HOSTS = {"a": "192.0.2.1", "b": "192.0.2.2", "c": "192.0.2.3"}
PORTS = {"uid-1": {"a": 31001, "b": 31002, "c": 31003}}
NOW = Now(0, 0)
LEFT_TO_OPERATOR = dict.fromkeys("abc", "")


class Store:
    """An agent's folder with room for everything."""

    def __init__(self) -> None:
        self.kept: list[ZoneRecord] = []

    def open_zone(self, record: ZoneRecord) -> Storage:
        return SimStorage(Image())

    def remove_zone(self, uid: str) -> bool:
        return True

    def keep_zone(self, record: ZoneRecord) -> bool:
        self.kept.append(record)
        return True

    def kept_zones(self) -> list[ZoneRecord]:
        return []

    def raise_master_term(self, term: int, word: str) -> None:
        pass


class World(LoneMaster):
    """Remembers what agents were told last."""

    members: Members
    table: ZoneTable

    def _answer(self, node: str, message: Message) -> None:
        if isinstance(message, Members):
            self.members = message
        elif isinstance(message, ZoneTable):
            self.table = message
        super()._answer(node, message)

    def tell(self, hosts: dict[str, str], ports: dict[str, dict[str, int]]) -> None:
        self.master.places.tell(hosts, ports)
        self.pass_time(200)

    def ready(self, node: str, port: int, external: int = 0) -> None:
        self.master.receive(node, ZoneReady("uid-1", port, external_port=external), self.now)
        self.pass_time(200)

    def hosts(self) -> dict[str, str]:
        """As agents were told; it is what is stored."""
        told = {each.name: each.external_host for each in self.members.nodes}
        nodes = [each for each in self.stored.values() if isinstance(each, NodeRecord)]
        assert told == {each.name: each.external_host for each in nodes}
        return {name: host for name, host in told.items() if host}

    def ports(self) -> dict[str, int]:
        stored = self.stored[ZoneKey("uid-1")]
        assert isinstance(stored, ZoneRecord)
        assert self.table.zone.external_ports == stored.external_ports
        return stored.external_ports


def test_addresses_that_the_operator_knows_reach_all_agents() -> None:
    world = World(ZONE, external=LEFT_TO_OPERATOR)
    assert world.hosts() == {}

    world.tell(HOSTS, PORTS)
    assert (world.hosts(), world.ports()) == (HOSTS, PORTS["uid-1"])
    assert {n.name: n.external_host for n in world.master.status().nodes} == HOSTS
    assert world.status(ZONE).external_ports == PORTS["uid-1"]

    elsewhere = {**HOSTS, "b": "192.0.2.9"}
    world.tell(elsewhere, {"uid-1": {**PORTS["uid-1"], "b": 31009}})
    assert (world.hosts(), world.ports()["b"]) == (elsewhere, 31009)


def test_they_outlive_restarts_masterships_declarations_and_a_look_that_finds_none() -> None:
    world = World(ZONE, external=LEFT_TO_OPERATOR)
    world.tell(HOSTS, PORTS)
    world.kill("a")
    world.connect("a")
    world.ready("a", 7000)
    world.master.set_zone(msgspec.structs.replace(ZONE, max_memory_bytes=1 << 30), world.now)
    world.tell({}, {"uid-1": {}})
    assert (world.hosts(), world.ports()) == (HOSTS, PORTS["uid-1"])

    world.follow()
    world.connect("a", "b", "c")
    world.pass_time(1_000)
    assert (world.hosts(), world.ports()) == (HOSTS, PORTS["uid-1"])


def test_who_registers_later_has_the_address_that_was_told_before() -> None:
    world = World(ZONE, external={**LEFT_TO_OPERATOR, "d": ""})
    world.tell({**HOSTS, "d": "192.0.2.4"}, {"uid-1": {**PORTS["uid-1"], "d": 31004}})
    world.connect("d")
    world.ready("d", 7000)

    assert world.hosts()["d"] == "192.0.2.4"
    assert world.ports()["d"] == 31004


def test_a_process_without_an_external_listener_has_no_external_address() -> None:
    world = World(ZONE, external=LEFT_TO_OPERATOR)
    world.tell(HOSTS, PORTS)
    del world.external["c"]
    world.kill("c")
    world.connect("c")
    world.tell(HOSTS, PORTS)

    assert world.hosts() == {"a": "192.0.2.1", "b": "192.0.2.2"}


def test_an_agent_may_announce_its_own() -> None:
    world = World(ZONE, external={"a": "a.example.org", "b": ""})
    world.ready("a", 7000, 8000)
    world.tell({**HOSTS, "a": "192.0.2.99"}, {"uid-1": {"b": 31002}})

    assert world.hosts() == {"a": "a.example.org", "b": "192.0.2.2"}
    assert world.ports() == {"a": 8000, "b": 31002}
    world.ready("a", 7000, 8005)
    assert world.ports()["a"] == 8005


def test_addresses_go_with_their_node() -> None:
    world = World(ZONE, nodes=("a", "b", "c", "d"), external={**LEFT_TO_OPERATOR, "d": ""})
    world.tell({**HOSTS, "d": "192.0.2.4"}, {"uid-1": {**PORTS["uid-1"], "d": 31004}})
    world.master.drain("d", True, world.now)
    world.wait(lambda: not world.master.zones["uid-1"].names("d"))
    world.kill("d")
    assert world.master.forget("d", world.now) == ""
    world.pass_time(1_000)

    assert NodeKey("d") not in world.stored
    assert world.ports() == PORTS["uid-1"]


def test_records_without_the_fields_are_read() -> None:
    node = msgspec.msgpack.decode(
        msgspec.msgpack.encode(["a", "s", 1, "h", 1, "h", "", 1, None, "p", False, None]),
        type=NodeRecord,
    )
    zone = msgspec.msgpack.decode(
        msgspec.msgpack.encode(["u", "z", 4, 3, "Persistent", "Always", 0, {"a": 7000}]),
        type=ZoneRecord,
    )
    assert (node.external_host, zone.external_ports) == ("", {})

    whole = ZoneReady("uid-1", 7000, external_port=8000)
    before = msgspec.msgpack.decode(msgspec.msgpack.encode(whole), type=_ReadyOfBefore)
    assert (before.zone, before.port) == ("uid-1", 7000), "agents of before pass over it"


@pytest.mark.parametrize(("announced", "told"), [("a.org", 8000), ("", 0), (None, 0)])
def test_an_agent_says_its_external_port_until_the_master_knows_it_if_it_announces_one(
    announced: str | None, told: int
) -> None:
    store = Store()
    hello = Hello(FORMAT_VERSION, "agent", "main", "a", "store-a", 1, external_host=announced)
    core = AgentCore(hello, store, DEFAULTS, NOW)
    core.receive_from_master(Members(1, (NodeRecord("a", "store-a", 1, "a", 1, "a"),), 1), NOW)

    def hear(**record: Any) -> list[int]:
        table = ZoneTable(1, msgspec.structs.replace(ZONE, **record), (), 1)
        assert core.receive_from_master(table, NOW)
        said = [message for _, message in core.flush(NOW).sends]
        return [each.external_port for each in said if isinstance(each, ZoneReady)]

    hear()
    core.zone_ready("uid-1", 7000, 8000)
    core.flush(NOW)
    assert hear(ports={"a": 7000}) == ([8000] if told else [])
    assert hear(ports={"a": 7000}, external_ports={"a": 8000, "b": 1}) == []
    assert hear(ports={"a": 7009}, external_ports={"a": 31001}) == [told]
    assert {str(each.external_ports) for each in store.kept} == {"{}"}, "others' change nothing"


class _ReadyOfBefore(msgspec.Struct, array_like=True, tag=21):
    zone: str
    port: int
    problem: str = ""
