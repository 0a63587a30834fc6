"""How a link begins: who is greeted, who is refused, who is closed."""

import asyncio

import pytest

from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello, RefusalCode, Refused
from quorate.protocol.messages.master import AgentReport, MasterPing
from quorate.protocol.messages.replication import Heartbeat
from quorate_link import LinkSettings
from quorate_loopback.sides import HOST, Side, ended, linked, raw_peer
from quorate_loopback.waiting import until


def test_both_sides_say_hello_and_messages_pass_both_ways(run) -> None:
    async def scenario() -> None:
        server, client = Side("agent-1", host="h", incarnation=3), Side("", role="master")
        server.answer = AgentReport(7)
        peer, link = await linked(server, client)

        assert link.dialed
        assert link.peer_name == "agent-1"
        assert link.peer_hello is not None
        assert link.peer_hello.incarnation == 3
        link.send(MasterPing(1, 7))
        await until(lambda: client.messages)
        assert server.messages == [MasterPing(1, 7)]
        assert client.messages == [AgentReport(7)]
        assert client.heard == [("up", "agent-1")]
        assert server.heard == [("up", "")]
        counters = client.endpoint.counters
        assert (counters.frames_out, counters.frames_in, counters.links_opened) == (3, 1, 1)
        assert counters.bytes_in == server.endpoint.counters.bytes_out
        client.endpoint.undial(peer)
        await until(lambda: server.count("down", RefusalCode.GOODBYE))
        await client.endpoint.close()
        assert client.heard == [("up", "agent-1"), ("down", None)]

    run(scenario)


@pytest.mark.parametrize(
    ("hello", "code", "reason"),
    [
        ({"cluster": "prod"}, "cluster", "cluster 'prod' of agent-1 is not 'demo'"),
    ],
)
@pytest.mark.parametrize("dialing", [True, False])
def test_a_hello_of_another_cluster_is_refused_with_a_sentence(
    run, dialing: bool, hello: dict[str, object], code: str, reason: str
) -> None:
    async def scenario() -> None:
        mine, other = Side("agent-2"), Side("agent-1", **hello)
        server, client = (mine, other) if dialing else (other, mine)
        port = await server.listen()
        peer = client.open().dial(HOST, port)
        await until(lambda: client.count("refused", code))

        assert peer.refused is not None
        assert peer.link is None
        if dialing:
            assert peer.refused.reason.startswith(reason)
        assert not mine.count("up", "agent-1")

    run(scenario)


def test_the_owner_may_refuse_a_hello(run) -> None:
    async def scenario() -> None:
        server, client = Side("agent-1"), Side("", role="master", master_term=3)
        refused = Refused("term 3 is below 4", "term")
        server.open(accept=lambda hello: refused if hello.master_term < 4 else None)
        port = await server.endpoint.listen(HOST, 0)
        peer = client.open().dial(HOST, port)
        await until(lambda: client.count("refused", "term"))

        assert peer.refused == refused
        assert server.heard == []
        assert server.endpoint.counters.refused >= 1

    run(scenario)


def test_another_node_at_the_address_is_refused(run) -> None:
    async def scenario() -> None:
        server, client = Side("agent-1"), Side("agent-2")
        port = await server.listen()
        peer = client.open().dial(HOST, port, node="agent-3")
        await until(lambda: client.count("refused", "node"))

        assert "node 'agent-1' answers" in peer.refused.reason

    run(scenario)


def test_who_says_no_hello_in_time_is_closed(run) -> None:
    async def scenario() -> None:
        server = Side("agent-1")
        port = await server.listen(settings=LinkSettings(hello_timeout_ms=50))
        reader, writer = await asyncio.open_connection(HOST, port)
        assert await ended(reader)

        assert server.endpoint.counters.hello_timeouts == 1
        assert server.heard == []
        writer.close()

    run(scenario)


def test_a_newer_connection_of_the_same_agent_replaces_the_older(run) -> None:
    async def scenario() -> None:
        server, newer = Side("agent-1"), Side("agent-2", incarnation=2)
        port = await server.listen()
        reader, writer = await raw_peer(port, Hello(FORMAT_VERSION, "agent", "demo", "agent-2"))
        await until(lambda: server.count("up", "agent-2"))
        newer.open().dial(HOST, port)
        await until(lambda: server.count("up", "agent-2") == 2)
        assert await ended(reader)

        assert server.heard == [("up", "agent-2"), ("down", None), ("up", "agent-2")]
        assert [link.peer_hello.incarnation for link in server.endpoint.links] == [2]
        writer.close()

    run(scenario)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"store": "old"}, {"store": "new"}),
        ({"store": "s", "incarnation": 2}, {"store": "s", "incarnation": 3}),
        ({"store": "s", "process": "word"}, {"store": "s", "process": "copy"}),
    ],
)
def test_a_replaced_process_that_goes_on_does_not_end_the_links_of_its_successor(
    run, old: dict[str, object], new: dict[str, object]
) -> None:
    async def scenario() -> None:
        server = Side("agent-1")
        port = await server.listen()
        replaced = Side("agent-2", **old)
        successor = Side("agent-2", **new)
        first = successor.open().dial(HOST, port)
        await until(lambda: first.link)
        second = replaced.open().dial(HOST, port)
        await until(lambda: second.link)
        await until(lambda: server.count("up", "agent-2") == 2)
        for peer in (first, second):
            assert peer.link is not None
            peer.link.send(Heartbeat(1, 1))
        await until(lambda: len(server.messages) == 2)

        assert server.heard == [("up", "agent-2"), ("up", "agent-2")]
        assert server.endpoint.counters.links_opened == 2

    run(scenario)


def test_more_links_than_allowed_are_refused_with_the_way_out(run) -> None:
    async def scenario() -> None:
        server, tool, other = Side("agent-1"), Side("", role="tool"), Side("", role="tool")
        port = await server.listen(settings=LinkSettings(links_max=1))
        tool.open().dial(HOST, port)
        await until(lambda: server.endpoint.links)
        peer = other.open().dial(HOST, port)
        await until(lambda: peer.refused)

        assert peer.refused is not None
        assert "all 1 places for links of agent-1 are taken" in peer.refused.reason
        assert "Way out: end tools that keep connections" in peer.refused.reason
        assert len(server.endpoint.links) == 1
        await tool.endpoint.close()
        await until(lambda: peer.link)

    run(scenario)


def test_a_tool_that_closes_its_link_has_no_code_to_say(run) -> None:
    async def scenario() -> None:
        server, tool = Side("agent-1"), Side("", role="tool")
        _, link = await linked(server, tool)

        link.close("your folder is an older image", RefusalCode.OLDER_IMAGE)

        await until(lambda: server.count("down", ""))

    run(scenario)
