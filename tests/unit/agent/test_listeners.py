"""Clients are given the addresses of the listener that they came by, in every reply."""

import asyncio
import socket
from typing import Any

import pytest

from quorate.facts.keyspace import key_slot
from quorate.facts.partition_row import Migration, MigrationKind, PartitionRow
from quorate.facts.topology import NodeRecord
from quorate.facts.zone import ZoneRecord
from quorate.protocol.messages.clients import Forward
from quorate.protocol.storage import ZoneRefused
from quorate_agent.clients.addresses import Addresses, client_addresses
from quorate_agent.clients.ports import ClientPorts
from quorate_agent.machine.descriptors import Descriptors
from quorate_agent.notices.hand_overs import GATHER_MS
from quorate_control_plane.ports import free_ports
from quorate_differential.kept_client import KeptClient
from quorate_lone_agent.agent import OTHER, Agent
from quorate_lone_agent.listening import listening_socket

OUTSIDE = {"a": ("a.example.org", 31001), "b": ("b.example.org", 31002)}
KEY = b"key"
SLOT = key_slot(KEY)
PARTITION = SLOT >> 12


@pytest.fixture
def outside(agent: Agent) -> Addresses:
    """The external addresses that the agent knows."""
    return agent.outside


@pytest.fixture
def agent() -> Agent:
    made = Agent()
    made.outside.update(OUTSIDE)
    made.give(OTHER, [PARTITION])
    made.replicas.lost_primary.clear()  # long ago: nothing is forwarded
    return made


def _client(agent: Agent, external: bool) -> KeptClient:
    return KeptClient(agent.endpoint, external)


def test_every_table_has_the_addresses_of_its_listener(agent: Agent) -> None:
    inside, outside = (_client(agent, external) for external in (False, True))
    for command in (b"SLOTS", b"SHARDS", b"NODES"):
        told = [repr(each.ask(b"CLUSTER", command)) for each in (inside, outside)]
        assert "example.org" not in told[0], command
        for host, port in OUTSIDE.values():
            assert host in told[1], command
            assert str(port) in told[1], command


def test_redirections_have_them_too(agent: Agent) -> None:
    inside, outside = (_client(agent, external) for external in (False, True))
    assert str(inside.ask(b"GET", KEY)[0]) == f"MOVED {SLOT} b:2"
    assert str(outside.ask(b"GET", KEY)[0]) == f"MOVED {SLOT} b.example.org:31002"

    for client, there in ((inside, "b:2"), (outside, "b.example.org:31002")):
        client.ask(b"MULTI")
        assert str(client.ask(b"GET", KEY)[0]) == f"MOVED {SLOT} {there}"


def test_tables_are_encoded_once_for_each_listener(agent: Agent) -> None:
    overview = agent.endpoint.overview
    inside, outside = overview.cluster(False), overview.cluster(True)

    assert overview.cluster(False) is inside
    assert overview.cluster(True) is outside
    assert inside.slots(False) is overview.cluster(False).slots(False)
    assert outside.slots(False) is overview.cluster(True).slots(False) != inside.slots(False)
    agent.endpoint.table_changed()
    assert overview.cluster(True) is not outside


def test_an_agent_without_an_external_address_is_not_told_to_clients_outside(
    agent: Agent, outside: Addresses
) -> None:
    del outside["b"]
    agent.endpoint.table_changed()
    client = _client(agent, external=True)

    assert "b.example.org" not in repr(client.ask(b"CLUSTER", b"SLOTS"))
    assert client.ask(b"GET", KEY) == [], "it waits: whom it could be sent to it cannot reach"
    assert _client(agent, external=False).ask(b"GET", KEY)[0].args[0] == f"MOVED {SLOT} b:2"


def test_news_of_hand_overs_have_the_addresses_of_the_listener(agent: Agent) -> None:
    agent.give(agent.me, [PARTITION])
    clients = [_client(agent, external) for external in (False, True)]
    for client in clients:
        client.ask(b"HELLO", b"3")
        client.ask(b"CLIENT", b"MAINT_NOTIFICATIONS", b"ON")
    news, now = agent.endpoint.hand_overs, agent.clock.boot_ms()
    active = Migration("m", MigrationKind.SWAP, "a", OTHER, ("b", "a"), ())
    news.rows_came([PartitionRow(PARTITION, 9, 9, agent.me, ("a",), (), active)], now)
    news.rows_came([PartitionRow(PARTITION, 9, 9, OTHER, ("b",), ())], now)
    news.tell(now + GATHER_MS)

    told = [client.told()[-1] for client in clients]
    assert [each[2][0][:2] for each in told] == [
        [b"a:1", b"b:2"],
        [b"a.example.org:31001", b"b.example.org:31002"],
    ]


def test_what_is_forwarded_for_a_client_outside_is_answered_as_to_it(agent: Agent) -> None:
    agent.give(agent.me, [PARTITION])
    agent.give(OTHER, [PARTITION])  # only just: it is forwarded
    for external in (True, False):
        client = _client(agent, external)
        agent.sent.clear()
        client.ask(b"GET", KEY)
        [message] = [each for each in agent.sent if isinstance(each, Forward)]
        assert message.external is external

    agent.replicas.lost_primary.clear()
    beat = agent.beat("c")  # whose row is older
    said: list[Any] = agent.sent
    said.clear()
    for external, there in ((True, b"b.example.org:31002"), (False, b"b:2")):
        asked = Forward(
            "uid-1", "other", 1, False, ((b"GET", KEY),),
            heard_ms=beat.sent_ms, left_ms=60_000, external=external,
        )  # fmt: skip
        agent.endpoint.forwards.perform("c", asked)
        assert said.pop().reply == b"-MOVED %d %b\r\n" % (SLOT, there)


RECORDS = {
    "a": NodeRecord("a", "s-a", 1, "h", 1, "10.0.0.1", external_host="192.0.2.1"),
    "b": NodeRecord("b", "s-b", 1, "h", 1, "10.0.0.2"),
    "c": NodeRecord("c", "s-c", 1, "h", 1, "10.0.0.3", external_host="192.0.2.3"),
    "d": NodeRecord("d", "s-d", 1, "h", 1, "x", left_since_ms=1, external_host="192.0.2.4"),
}


def test_an_address_is_the_host_of_a_node_and_its_port_for_a_zone() -> None:
    ports = dict.fromkeys("abcd", 7200)
    zone = ZoneRecord("uid-1", "z", 4, 2, ports=ports, external_ports={"a": 31001, "b": 31002})

    assert client_addresses(zone, RECORDS, external=False) == {
        "a": ("10.0.0.1", 7200),
        "b": ("10.0.0.2", 7200),
        "c": ("10.0.0.3", 7200),
    }
    assert client_addresses(zone, RECORDS, external=True) == {"a": ("192.0.2.1", 31001)}


def test_who_connects_to_the_external_port_is_a_client_outside() -> None:
    """Once the agent knows its external address; before, it says that it does not."""

    async def enter(port: int) -> tuple[bytes, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"*2\r\n$7\r\nCLUSTER\r\n$5\r\nNODES\r\n")
        async with asyncio.timeout(10):
            first = await reader.readline()
            rest = await reader.read(1 << 16) if first.startswith(b"$") else b""
        writer.close()
        await writer.wait_closed()
        return first, rest

    async def story() -> None:
        agent, descriptors = Agent(), Descriptors(1 << 16, listeners=2)
        sockets = [listening_socket(), listening_socket()]
        inside, outside = (each.getsockname()[1] for each in sockets)
        assert await agent.endpoint.listen("127.0.0.1", sockets, descriptors) == inside
        assert (await enter(outside))[0] == (
            b"-CLUSTERDOWN The external address of this agent is not known yet; see the"
            b" conditions of its StorageCluster\r\n"
        )
        agent.outside.update(OUTSIDE)
        agent.endpoint.table_changed()
        assert b" a.example.org:31001@0 myself,master" in (await enter(outside))[1]
        assert b" a:1@0 myself,master" in (await enter(inside))[1]
        agent.outside.clear()  # it left for a moment, say
        agent.endpoint.table_changed()
        assert b" a.example.org:31001@0 myself,master" in (await enter(outside))[1]
        await agent.endpoint.close()

    asyncio.run(story())


def test_a_zone_listens_on_both_ports_or_not_at_all() -> None:
    port = next(free_ports())
    ports = ClientPorts("127.0.0.1", 7000, external_offset=1)
    assert asyncio.run(ports.look_up())
    named = f"port {port}, .* or {port + 1}, the external one, cannot"
    with (
        socket.create_server(("127.0.0.1", port + 1)),
        pytest.raises(ZoneRefused, match=named),
    ):
        ports.bind_given("uid-1", port)
    bound = ports.bind_given("uid-1", port)
    assert [each.getsockname()[1] for each in bound] == [port, port + 1]
    for each in bound:
        each.close()
    assert Descriptors(256, listeners=2).of_zone(persistent=False) == 2
