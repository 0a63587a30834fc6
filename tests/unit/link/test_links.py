"""Links between endpoints over loopback that break and come back, and what is sent on them."""

import asyncio
import os
import signal
import socket
import subprocess
import sys

from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello, RefusalCode
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.replication import Heartbeat
from quorate.protocol.messages.tools import AskCopies, Copies
from quorate.protocol.messages.transfer import KeyRows
from quorate.wire.frames import FrameReader, encode_frame
from quorate_link import Link, LinkSettings
from quorate_loopback.sides import HOST, Side, ended, linked, raw_peer, shake_hands
from quorate_loopback.waiting import until

# --- loss and redialing


def test_a_lost_link_comes_back_and_an_ended_listener_is_no_living_process(run) -> None:
    async def scenario() -> None:
        server, client = Side("agent-1"), Side("", role="master")
        port = await server.listen()
        client.open().dial(HOST, port)
        await until(lambda: client.count("up", "agent-1"))
        await server.endpoint.close()
        await until(lambda: client.count("down", RefusalCode.GOODBYE))
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
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello
from quorate_link import BaseHandler, Endpoint
from quorate_loopback.sides import SECRET
async def main():
    hello = Hello(FORMAT_VERSION, "agent", "demo", "agent-1")
    endpoint = Endpoint(lambda: hello, BaseHandler(), SECRET.keys())
    print(await endpoint.listen("127.0.0.1", 0), flush=True)
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


def test_an_attempt_at_an_address_that_does_not_answer_ends_when_the_peer_is_to_be_dialed_anew(
    run,
) -> None:
    """As after the loss of a host: no reset comes from there."""

    async def scenario() -> None:
        server, client = Side("agent-1"), Side("", role="master")
        port = await server.listen()
        endpoint = client.open()
        connect, attempts = endpoint.hosts.connect, [0]
        silent = {"moved.invalid"}

        async def connect_or_wait(host: str, port: int, bound_s: float) -> socket.socket:
            if host in silent:
                attempts[0] += 1
                await asyncio.Event().wait()
            return await connect(host, port, bound_s)

        endpoint.hosts.connect = connect_or_wait
        peer = endpoint.dial("moved.invalid", port, "agent-1")
        await until(lambda: attempts == [1])
        peer.move(HOST, port)
        peer.redial("its node has a later process")
        await until(lambda: peer.link, timeout_s=10)

        silent.add(HOST)
        peer.redial("its node has a later process")
        await until(lambda: attempts == [2])
        silent.clear()
        peer.redial("its node has a later process")
        await until(lambda: peer.link, timeout_s=10)

        silent.add(HOST)
        peer.redial("its node has a later process")
        await until(lambda: attempts == [3])
        peer.redial("its node has a later process")
        endpoint.undial(peer)
        await peer.stopped()
        assert attempts == [3]

    run(scenario)


def test_a_process_that_has_failed_sends_nothing_that_it_holds(run) -> None:
    async def scenario() -> None:
        server, client = Side("agent-1"), Side("agent-2")
        _, link = await linked(server, client)
        sent = client.endpoint.counters.frames_out
        client.endpoint.gather()
        assert link.send(Heartbeat(1, 1))
        await client.endpoint.close(at_once=True)
        await until(lambda: server.count("down", None))

        assert server.messages == []
        assert client.endpoint.counters.frames_out == sent

    run(scenario)


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
            assert link.send(Heartbeat(1, number))
        link.flush()
        link.send(Heartbeat(1, 100))
        await until(lambda: len(server.messages) == 101)

        assert writes[:2] == [100, 1]
        assert [message.seen for message in server.messages] == list(range(101))
        link.abort("test")
        assert not link.send(Heartbeat(1, 1))

    run(scenario)


def test_what_is_gathered_leaves_with_the_flush_that_is_called_and_not_before(run) -> None:
    async def scenario() -> None:
        server, client = Side("agent-1"), Side("agent-2")
        _, link = await linked(server, client)
        client.endpoint.gather()
        assert link.send(Heartbeat(1, 1))
        before = client.endpoint.counters.frames_out
        await asyncio.sleep(0.01)  # many passes of the loop
        assert client.endpoint.counters.frames_out == before
        client.endpoint.flush()
        assert client.endpoint.counters.frames_out == before + 1
        assert link.send(Heartbeat(1, 2))  # leaves by itself again
        await until(lambda: len(server.messages) == 2)

    run(scenario)


def rows(size: int) -> KeyRows:
    return KeyRows("zone", 0, 1, 0, ((b"key", 1, 1, 0, bytes(size)),))


def test_a_peer_that_does_not_read_is_dropped_and_the_others_are_served(run) -> None:
    async def scenario() -> None:
        server, client = Side("agent-1"), Side("agent-2")
        port = await server.listen(settings=LinkSettings(pending_bytes_max=4 << 20))
        _, writer = await raw_peer(port, Hello(FORMAT_VERSION, "agent", "demo", "slow"))
        client.open().dial(HOST, port)
        await until(lambda: len(server.endpoint.links) == 2)
        slow = next(link for link in server.endpoint.links if link.peer_name == "slow")
        other = next(link for link in server.endpoint.links if link is not slow)
        message = rows(500_000)
        sent = 0
        most = 0
        while slow.up:
            slow.send(message)
            other.send(Heartbeat(1, sent))
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


def test_urgent_messages_overtake_ordinary_ones_and_these_overtake_bulk(run) -> None:
    async def scenario() -> None:
        server, client = Side("agent-1"), Side("agent-2")
        _, link = await linked(server, client)
        for _ in range(40):
            link.send_bulk(rows(500_000))
        await asyncio.sleep(0)
        for number in range(40):
            link.send(rows(500_000 + number))
        link.send(Heartbeat(1, 1))
        link.flush()
        assert link.bulk_bytes > 5_000_000
        assert link.pending_bytes > link.bulk_bytes + 5_000_000
        link.send_urgent(Heartbeat(1, 2))
        await until(lambda: len(server.messages) == 82)

        sizes = [len(m.rows[0][4]) for m in server.messages if isinstance(m, KeyRows)]
        assert server.messages.index(Heartbeat(1, 2)) < 20
        assert [size for size in sizes if size > 500_000] == list(range(500_001, 500_040))
        assert server.messages.index(Heartbeat(1, 1)) < 60
        assert (link.bulk_bytes, link.pending_bytes) == (0, 0)

    run(scenario)


def test_the_kernel_keeps_little_of_what_nothing_can_overtake(run) -> None:
    async def scenario() -> None:
        server, client = Side("agent-1"), Side("agent-2")
        settings = LinkSettings(kernel_bytes=32 * 1024)
        port = await server.listen(settings=settings)
        client.open(settings).dial(HOST, port)
        await until(lambda: server.endpoint.links and client.endpoint.links)

        for link in (*server.endpoint.links, *client.endpoint.links):
            connection = link._transport.get_extra_info("socket")
            for kept in (socket.SO_SNDBUF, socket.SO_RCVBUF):  # with what the kernel adds
                assert connection.getsockopt(socket.SOL_SOCKET, kept) == 2 * 32 * 1024

    run(scenario)


def test_what_was_sent_before_a_close_arrives_however_much_it_is(run) -> None:
    async def scenario() -> None:
        server, client = Side("agent-1"), Side("agent-2")
        peer, link = await linked(server, client)
        for _ in range(40):
            link.send(rows(500_000))
        link.send_urgent(Heartbeat(1, 1))
        client.endpoint.undial(peer)
        await until(lambda: server.count("down", RefusalCode.GOODBYE))

        assert len(server.messages) == 41

    run(scenario)


def test_a_peer_that_sends_no_more_is_told_all_that_waits_for_it(run) -> None:
    async def scenario() -> None:
        server = Side("agent-1")
        port = await server.listen()
        reader, writer = await raw_peer(port, Hello(FORMAT_VERSION, "agent", "demo", "slow"))
        await until(lambda: server.endpoint.links)
        (link,) = server.endpoint.links
        for _ in range(24):
            link.send(rows(500_000))
        link.flush()
        assert link.pending_bytes > 5_000_000
        writer.write_eof()
        assert len(await reader.read()) > 24 * 500_000
        writer.close()

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
        assert server.endpoint.counters.strangers == 1
        writer.close()

    run(scenario)


def test_a_tool_may_send_its_question_together_with_its_proof(run) -> None:
    async def scenario() -> None:
        server = Side("agent-1")
        server.answer = Copies("zone", "agent-1", ())
        port = await server.listen()
        reader, writer = await asyncio.open_connection(HOST, port)
        hello = Hello(FORMAT_VERSION, "tool", "demo")
        question = encode_frame(AskCopies("zone"))
        data = await shake_hands(reader, writer, hello, behind=question)
        frames = FrameReader()
        answers: list[Message] = frames.feed(data)
        while not answers:
            data = await reader.read(65536)
            assert data
            answers += frames.feed(data)

        assert answers == [server.answer]
        writer.close()

    run(scenario)


def test_a_close_sends_what_was_sent_before_and_the_reason(run) -> None:
    async def scenario() -> None:
        server, client = Side("agent-1"), Side("agent-2")
        _, link = await linked(server, client)
        for number in range(50):
            link.send(Heartbeat(1, number))
        link.close("a better master is known", "term")
        await until(lambda: server.count("down", "term"))

        assert len(server.messages) == 50
        await until(lambda: client.count("down", None))
        assert link.down_reason == "a better master is known"

    run(scenario)
