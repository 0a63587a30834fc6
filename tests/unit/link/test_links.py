"""Links between endpoints over loopback, on asyncio and on uvloop."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine

import pytest
import uvloop

from quorate.protocol.messages import (
    FORMAT_VERSION,
    AgentReport,
    Hello,
    MasterPing,
    Message,
    Refused,
)
from quorate.protocol.tool_messages import AskCopies, CopyRows
from quorate.wire.frames import FrameReader, encode_frame
from quorate_link import BaseHandler, Endpoint, Link, LinkSettings, Peer

DEADLINE_SECONDS = 20
HOST = "127.0.0.1"
OPENED: list[Endpoint] = []
Scenario = Callable[[], Coroutine[object, object, None]]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    """Runs a scenario in a loop of its own; what a loop would only log fails the test."""

    def run(scenario: Scenario) -> None:
        new_loop = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
        problems: list[dict[str, object]] = []
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.get_loop().set_exception_handler(lambda _, problem: problems.append(problem))

            async def bounded() -> None:
                try:
                    async with asyncio.timeout(DEADLINE_SECONDS):
                        await scenario()
                finally:
                    for endpoint in OPENED:
                        await endpoint.close()
                    OPENED.clear()

            runner.run(bounded())
        assert problems == []

    return run


class Side(BaseHandler):
    """One endpoint and everything it heard."""

    def __init__(self, node: str, role: str = "agent", **hello: object) -> None:
        self.heard: list[tuple[object, ...]] = []
        self.messages: list[Message] = []
        self.answer: Message | None = None
        self._hello = Hello(
            **{"format_version": FORMAT_VERSION, "role": role, "cluster": "demo", "node": node}
            | hello
        )

    def open(self, settings: LinkSettings | None = None, accept: object = None) -> Endpoint:
        self.endpoint = Endpoint(lambda: self._hello, self, settings, accept)
        OPENED.append(self.endpoint)
        return self.endpoint

    async def listen(self, port: int = 0, settings: LinkSettings | None = None) -> int:
        return await self.open(settings).listen(HOST, port)

    def on_up(self, link: Link, hello: Hello) -> None:
        assert link.up
        self.heard.append(("up", hello.node))

    def on_message(self, link: Link, message: Message) -> None:
        self.messages.append(message)
        if self.answer is not None:
            link.send(self.answer)

    def on_down(self, link: Link, refused: Refused | None) -> None:
        assert not link.up
        self.heard.append(("down", refused.code if refused else None))

    def on_gone(self, link: Link) -> None:
        self.heard.append(("gone", link.peer_name))

    def on_refused(self, link: Link, refused: Refused) -> None:
        self.heard.append(("refused", refused.code))

    def on_drained(self, link: Link) -> None:
        self.heard.append(("drained",))

    def count(self, *what: object) -> int:
        return sum(event == what for event in self.heard)


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition; the scenario's deadline bounds it."""
    while not condition():  # noqa: ASYNC110  # conditions are of many kinds
        await asyncio.sleep(0.005)


async def linked(server: Side, client: Side, **settings: int) -> tuple[Peer, Link]:
    """Two open sides; the client's peer and its link."""
    port = await server.listen()
    peer = client.open(LinkSettings(**settings)).dial(HOST, port)
    await until(lambda: peer.link and server.endpoint.links)
    assert peer.link is not None
    return peer, peer.link


# --- handshake


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
        assert (counters.frames_out, counters.frames_in, counters.links_opened) == (2, 2, 1)
        assert counters.bytes_in == server.endpoint.counters.bytes_out
        client.endpoint.undial(peer)
        await until(lambda: server.count("down", "bye"))
        await client.endpoint.close()
        assert client.heard == [("up", "agent-1"), ("down", None)]

    run(scenario)


@pytest.mark.parametrize(
    ("hello", "code", "reason"),
    [
        ({"format_version": 99}, "format", "format version 99 of agent-1 is not 1"),
        ({"cluster": "prod"}, "cluster", "cluster 'prod' of agent-1 is not 'demo'"),
    ],
)
@pytest.mark.parametrize("dialing", [True, False])
def test_a_hello_of_another_format_or_cluster_is_refused_with_a_sentence(
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


def test_more_connections_than_allowed_are_closed(run) -> None:
    async def scenario() -> None:
        server, tool = Side("agent-1"), Side("", role="tool")
        port = await server.listen(settings=LinkSettings(links_max=1))
        tool.open().dial(HOST, port)
        await until(lambda: server.endpoint.links)
        reader, writer = await asyncio.open_connection(HOST, port)
        assert await ended(reader)

        writer.close()
        assert len(server.endpoint.links) == 1

    run(scenario)


# --- loss and redialing


def test_a_lost_link_comes_back_and_an_ended_listener_is_no_living_process(run) -> None:
    async def scenario() -> None:
        server, client = Side("agent-1"), Side("", role="master")
        port = await server.listen()
        client.open().dial(HOST, port)
        await until(lambda: client.count("up", "agent-1"))
        await server.endpoint.close()
        await until(lambda: client.count("down", "bye"))
        server = Side("agent-1")
        await server.listen(port)
        await until(lambda: client.count("up", "agent-1") == 2)

        assert not client.count("gone", "agent-1")  # it said goodbye: the owner knows already
        server.endpoint.links[0].abort("reset")
        await until(lambda: client.count("up", "agent-1") == 3)
        assert client.heard[-2:] == [("down", None), ("up", "agent-1")]

    run(scenario)


SERVER = """
import asyncio, sys
from quorate.protocol.messages import FORMAT_VERSION, Hello
from quorate_link import BaseHandler, Endpoint
async def main():
    hello = Hello(FORMAT_VERSION, "agent", "demo", "agent-1")
    print(await Endpoint(lambda: hello, BaseHandler()).listen("127.0.0.1", 0), flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


def test_a_killed_process_is_known_to_be_gone_at_once(run) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    port = int(process.stdout.readline())

    async def scenario() -> None:
        with process:
            client = Side("", role="master")
            client.open().dial(HOST, port)
            await until(lambda: client.count("up", "agent-1"))
            process.send_signal(signal.SIGKILL)
            await until(lambda: client.count("gone", "agent-1"))
        refused = client.endpoint.counters.dials_refused
        await until(lambda: client.endpoint.counters.dials_refused > refused + 2)

        assert client.heard == [("up", "agent-1"), ("down", None), ("gone", "agent-1")]

    run(scenario)


def test_an_address_where_nobody_ever_answered_is_no_evidence(run) -> None:
    async def scenario() -> None:
        server, client = Side("agent-1"), Side("", role="master")
        port = await server.listen()
        await server.endpoint.close()
        peer = client.open(LinkSettings(redial_first_ms=1, redial_max_ms=5)).dial(HOST, port)
        await until(lambda: client.endpoint.counters.dials_refused > 5)

        assert client.heard == []
        server = Side("agent-1")
        await server.listen(port)
        await until(lambda: peer.link)

    run(scenario)


def test_a_peer_that_moved_is_dialed_at_its_new_address_and_not_called_gone(run) -> None:
    async def scenario() -> None:
        old, new, client = Side("agent-1"), Side("agent-1", incarnation=2), Side("agent-2")
        peer, _ = await linked(old, client)
        port = await new.listen()
        await new.endpoint.close()
        peer.move(HOST, port)
        await until(lambda: client.count("down", None))
        new = Side("agent-1", incarnation=2)
        await new.listen(port)
        await until(lambda: peer.link and peer.link.peer_hello.incarnation == 2)

        assert client.heard == [("up", "agent-1"), ("down", None), ("up", "agent-1")]

    run(scenario)


# --- sending


def test_all_messages_of_a_turn_leave_in_one_write_and_in_order(run, monkeypatch) -> None:
    writes: list[int] = []
    write = Link._write

    def counted(link: Link, transport: object, data: bytes, frames: int) -> None:
        writes.append(frames)
        write(link, transport, data, frames)

    async def scenario() -> None:
        server, client = Side("agent-1"), Side("agent-2")
        _, link = await linked(server, client)
        monkeypatch.setattr(Link, "_write", counted)
        for number in range(100):
            assert link.send(MasterPing(1, number))
        link.flush()
        link.send(MasterPing(1, 100))
        await until(lambda: len(server.messages) == 101)

        assert writes[:2] == [100, 1]
        assert [message.sequence for message in server.messages] == list(range(101))
        link.abort("test")
        assert not link.send(MasterPing(1, 1))

    run(scenario)


def rows(size: int) -> CopyRows:
    return CopyRows("zone", 0, None, 0, ((b"key", 1, 1, 0, bytes(size)),))


async def raw_peer(port: int, hello: Hello) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that says Hello and does nothing else, not even read much."""
    reader, writer = await asyncio.open_connection(HOST, port, limit=1024)
    writer.write(encode_frame(hello))
    return reader, writer


def test_a_peer_that_does_not_read_is_dropped_and_the_others_are_served(run) -> None:
    async def scenario() -> None:
        server, client = Side("agent-1"), Side("agent-2")
        port = await server.listen(settings=LinkSettings(pending_bytes_max=4 << 20))
        _, writer = await raw_peer(port, Hello(FORMAT_VERSION, "tool", "demo", "slow"))
        client.open().dial(HOST, port)
        await until(lambda: len(server.endpoint.links) == 2)
        slow = next(link for link in server.endpoint.links if link.peer_name == "slow")
        other = next(link for link in server.endpoint.links if link is not slow)
        message = rows(500_000)
        sent = 0
        most = 0
        while slow.up:
            slow.send(message)
            other.send(MasterPing(1, sent))
            sent += 1
            await asyncio.sleep(0)
            most = max(most, slow.pending_bytes)
            assert sent < 1000

        assert most <= (4 << 20) + 600_000
        assert slow.down_reason.startswith("too slow: ")
        assert server.endpoint.counters.slow_dropped == 1
        await until(lambda: len(client.messages) == sent)
        await until(lambda: server.count("down", None))
        writer.close()

    run(scenario)


def test_ordinary_messages_overtake_bulk_and_a_long_buffer_is_reported_drained(run) -> None:
    async def scenario() -> None:
        server, client = Side("agent-1"), Side("agent-2")
        _, link = await linked(server, client)
        for _ in range(40):
            link.send_bulk(rows(500_000))
        await asyncio.sleep(0)
        link.send(MasterPing(1, 1))
        assert link.bulk_bytes > 5_000_000
        assert link.pending_bytes >= link.bulk_bytes
        await until(lambda: len(server.messages) == 41)

        assert server.messages.index(MasterPing(1, 1)) < 20
        assert (link.bulk_bytes, link.pending_bytes) == (0, 0)
        before = client.count("drained")
        for _ in range(10):
            link.send(rows(1_000_000))
        link.flush()
        assert link.congested
        await until(lambda: client.count("drained") > before)
        assert not link.congested

    run(scenario)


def test_a_large_value_passes_and_an_oversized_frame_closes_the_link(run) -> None:
    async def scenario() -> None:
        server, client = Side("agent-1"), Side("agent-2")
        _, link = await linked(server, client)
        link.send(rows(64 << 20))
        await until(lambda: server.messages)
        assert len(server.messages[0].rows[0][4]) == 64 << 20

        link._transport.write(b"\xff\xff\xff\xff")
        await until(lambda: server.endpoint.counters.garbage)
        await until(lambda: client.count("down", None))

    run(scenario)


def test_an_unknown_sender_may_not_send_a_large_frame(run) -> None:
    async def scenario() -> None:
        server = Side("agent-1")
        port = await server.listen()
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write((1 << 20).to_bytes(4, "big"))
        assert await ended(reader)

        assert server.endpoint.counters.garbage == 1
        writer.close()

    run(scenario)


def test_a_tool_may_send_its_question_together_with_its_hello(run) -> None:
    async def scenario() -> None:
        server = Side("agent-1")
        server.answer = AgentReport(5)
        port = await server.listen()
        reader, writer = await asyncio.open_connection(HOST, port)
        hello = Hello(FORMAT_VERSION, "tool", "demo")
        writer.write(encode_frame(hello) + encode_frame(AskCopies("zone")))
        frames = FrameReader()
        answers: list[Message] = []
        while len(answers) < 2:
            data = await reader.read(65536)
            assert data
            answers += frames.feed(data)

        assert isinstance(answers[0], Hello)
        assert answers[1] == AgentReport(5)
        writer.close()

    run(scenario)


def test_a_close_sends_what_was_sent_before_and_the_reason(run) -> None:
    async def scenario() -> None:
        server, client = Side("agent-1"), Side("agent-2")
        _, link = await linked(server, client)
        for number in range(50):
            link.send(MasterPing(1, number))
        link.close("a better master is known", "term")
        await until(lambda: server.count("down", "term"))

        assert len(server.messages) == 50
        await until(lambda: client.count("down", None))
        assert link.down_reason == "a better master is known"

    run(scenario)


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the other side has closed (or reset) the connection."""
    try:
        return await reader.read(1 << 20) == b"" or await ended(reader)
    except ConnectionError:
        return True
