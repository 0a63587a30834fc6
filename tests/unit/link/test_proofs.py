"""Nobody is believed who has not proven that he knows the secret, whatever else he knows."""

import asyncio
import logging
import random
from collections.abc import Callable

import msgspec
import pytest

from quorate.facts.errors import WireError
from quorate.protocol.messages.handshake import (
    FORMAT_VERSION,
    Challenge,
    Hello,
    Proof,
    RefusalCode,
    Refused,
)
from quorate.protocol.messages.master import AskInventory, Members, ZoneGone
from quorate.protocol.messages.replication import Heartbeat
from quorate.protocol.messages.tools import AskRows
from quorate.wire.frames import encode_frame
from quorate_link import ClusterSecret, LinkSettings, RoleKeys, refusals
from quorate_link.handshake import OPENING_BYTES_MAX, Handshake, Unproven
from quorate_loopback.sides import HOST, SECRET, Side, ended, raw_peer, shake_hands
from quorate_loopback.waiting import until

AGENT = Hello(FORMAT_VERSION, "agent", "demo", "agent-1", "store", 3)
MASTER = Hello(FORMAT_VERSION, "master", "demo", master_term=7)
TOOL = Hello(FORMAT_VERSION, "tool", "demo")
OTHER_KEY = ClusterSecret(SECRET.cluster_id, bytes(32))
OTHER_CLUSTER = ClusterSecret("another-cluster", SECRET.key)


def dialing(hello: Hello = MASTER, keys: RoleKeys | None = None) -> Handshake:
    return Handshake(keys or SECRET.keys(), lambda: hello, dialed=True)


def accepting(
    hello: Hello = AGENT,
    keys: RoleKeys | None = None,
    judge: Callable[[Hello], Refused | None] = lambda hello: None,
) -> Handshake:
    return Handshake(keys or SECRET.keys(), lambda: hello, dialed=False, judge=judge)


def frames(data: bytes) -> list[bytes]:
    """Cut into frames, each with its length."""
    cut: list[bytes] = []
    while data:
        end = 4 + int.from_bytes(data[:4], "big")
        cut.append(data[:end])
        data = data[end:]
    return cut


def shaken(dialer: Handshake, acceptor: Handshake) -> None:
    assert acceptor.feed(dialer.take_outgoing()) is None
    assert dialer.feed(acceptor.take_outgoing()) is None
    assert acceptor.feed(dialer.take_outgoing()) == b""
    assert dialer.feed(acceptor.take_outgoing()) == b""


@pytest.mark.parametrize("hello", [MASTER, TOOL, AGENT])
def test_who_knows_the_key_of_his_role_is_believed_and_hears_a_proof(hello: Hello) -> None:
    dialer, acceptor = dialing(hello, SECRET.keys(hello.role)), accepting()

    shaken(dialer, acceptor)

    assert dialer.hello == AGENT
    assert acceptor.hello == hello


def test_what_follows_the_proof_in_one_piece_is_handed_on() -> None:
    dialer, acceptor = dialing(), accepting()
    acceptor.feed(dialer.take_outgoing())
    dialer.feed(acceptor.take_outgoing())

    assert acceptor.feed(dialer.take_outgoing() + b"behind") == b"behind"


def test_single_bytes_make_the_same_handshake() -> None:
    dialer, acceptor = dialing(), accepting()
    for _ in range(2):
        for side, other in ((dialer, acceptor), (acceptor, dialer)):
            for byte in side.take_outgoing():
                other.feed(bytes([byte]))

    assert dialer.hello == AGENT
    assert acceptor.hello == MASTER


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        (OTHER_KEY.keys(), RefusalCode.SECRET),
        (OTHER_CLUSTER.keys(), RefusalCode.CLUSTER),
        # A tool's key under the master's name.
        (RoleKeys(SECRET.cluster_id, {"master": SECRET.keys("tool").by_role["tool"]}), "secret"),
    ],
)
def test_another_key_is_not_believed(keys: RoleKeys, code: str) -> None:
    dialer, acceptor = dialing(MASTER, keys), accepting()

    with pytest.raises(Unproven) as refused:
        shaken(dialer, acceptor)

    assert refused.value.code == code
    assert acceptor.hello is None


def test_an_accepting_side_without_the_key_is_not_believed() -> None:
    dialer, acceptor = dialing(), accepting(keys=OTHER_KEY.keys())
    acceptor.feed(dialer.take_outgoing())
    dialer.feed(acceptor.take_outgoing())
    proof = encode_frame(Proof(bytes(32), msgspec.msgpack.encode(AGENT)))

    with pytest.raises(Unproven, match="does not prove that it knows the secret of cluster 'demo'"):
        dialer.feed(proof)
    assert dialer.hello is None


def test_a_recorded_proof_is_of_no_use_on_another_connection() -> None:
    dialer, acceptor = dialing(), accepting()
    challenge = dialer.take_outgoing()
    acceptor.feed(challenge)
    dialer.feed(acceptor.take_outgoing())
    proof = dialer.take_outgoing()
    again = accepting()
    again.feed(challenge)

    with pytest.raises(Unproven):
        again.feed(proof)


def test_what_one_side_says_is_of_no_use_when_it_is_sent_back_to_it() -> None:
    dialer = dialing(AGENT)
    mine = dialer.take_outgoing()
    with pytest.raises(Unproven, match="our own sent back"):
        dialer.feed(mine)

    # A second connection to the same agent as an oracle: its proof is for the other direction.
    dialer, oracle = dialing(AGENT), accepting()
    oracle.feed(dialer.take_outgoing())
    dialer.feed(oracle.take_outgoing())
    with pytest.raises(Unproven):
        dialer.feed(dialer.take_outgoing())


def test_a_hello_cannot_be_exchanged_under_a_proof() -> None:
    dialer, acceptor = dialing(), accepting()
    acceptor.feed(dialer.take_outgoing())
    dialer.feed(acceptor.take_outgoing())
    proof = msgspec.msgpack.decode(dialer.take_outgoing()[4:], type=Proof)
    higher = msgspec.structs.replace(MASTER, master_term=10**6)

    with pytest.raises(Unproven):
        acceptor.feed(encode_frame(Proof(proof.mac, msgspec.msgpack.encode(higher))))


def test_a_role_that_was_not_proven_cannot_be_claimed_in_the_hello() -> None:
    claims = Hello(FORMAT_VERSION, "tool", "demo")
    dialer = Handshake(SECRET.keys("tool"), lambda: claims, dialed=True)
    acceptor = accepting()
    acceptor.feed(dialer.take_outgoing())
    dialer._say_hello = lambda: MASTER
    dialer.feed(acceptor.take_outgoing())

    with pytest.raises(Unproven, match="says it is a master and has proven to be a tool"):
        acceptor.feed(dialer.take_outgoing())


def test_two_that_have_nothing_to_say_to_each_other_do_not_begin() -> None:
    for dialer, acceptor in ((TOOL, MASTER), (MASTER, TOOL), (TOOL, TOOL)):
        with pytest.raises(Unproven, match="has nothing to say to this"):
            accepting(acceptor).feed(dialing(dialer).take_outgoing())
    stranger = msgspec.structs.replace(MASTER, role="owner")
    with pytest.raises(Unproven, match="'owner' has nothing to say"):
        accepting().feed(dialing(stranger).take_outgoing())


def test_of_a_refusal_without_a_proof_nothing_but_the_sentence_is_used() -> None:
    dialer = dialing()
    dialer.take_outgoing()
    dialer.feed(encode_frame(Refused("later", RefusalCode.STALE_MASTER, 1 << 60)))

    assert dialer.refused == Refused("later")


def test_a_refusal_of_a_proven_side_is_proven_as_well() -> None:
    stale = Refused("term 7 is over", RefusalCode.STALE_MASTER, 9)
    dialer, acceptor = dialing(), accepting(judge=lambda hello: stale)

    shaken(dialer, acceptor)

    assert dialer.refused == stale
    assert acceptor.rejected == stale
    assert acceptor.hello is None
    assert dialer.hello is None


def test_oversized_and_cut_frames_are_refused_before_they_are_held() -> None:
    with pytest.raises(WireError, match="limit"):
        accepting().feed((OPENING_BYTES_MAX + 1).to_bytes(4, "big"))
    acceptor = accepting()
    assert acceptor.feed(dialing().take_outgoing()[:-1]) is None
    assert acceptor.take_outgoing() == b""


def test_frames_out_of_order_are_not_believed() -> None:
    with pytest.raises(Unproven, match="out of order"):
        accepting().feed(encode_frame(Proof(bytes(32), b"")))
    acceptor = accepting()
    challenge = dialing().take_outgoing()
    acceptor.feed(challenge)
    with pytest.raises(Unproven, match="out of order"):
        acceptor.feed(challenge)
    with pytest.raises(Unproven, match="says Hello without a proof"):
        accepting().feed(encode_frame(MASTER))
    short = Challenge(FORMAT_VERSION, "master", "demo", SECRET.cluster_id, b"short")
    with pytest.raises(Unproven, match="its challenge is none"):
        accepting().feed(encode_frame(short))


def test_whatever_is_changed_on_the_way_nobody_is_believed() -> None:
    """Every frame of a good handshake, with bits flipped, pieces cut out, put in or repeated."""
    draw = random.Random(5)
    believed = 0
    for _ in range(5_000):
        dialer, acceptor = dialing(), accepting()
        sides = [(dialer, acceptor), (acceptor, dialer), (dialer, acceptor), (acceptor, dialer)]
        hit = draw.randrange(3)  # the last proof is the accepting side's: it has believed by then
        changed = False
        try:
            for index, (sender, receiver) in enumerate(sides):
                data = bytearray(sender.take_outgoing())
                if index == hit:
                    before = bytes(data)
                    at = draw.randrange(len(data))
                    match draw.randrange(4):
                        case 0:
                            data[at] ^= 1 << draw.randrange(8)
                        case 1:
                            del data[at : at + draw.randrange(1, 9)]
                        case 2:
                            data[at:at] = draw.randbytes(draw.randrange(1, 9))
                        case _:
                            data += bytes(data)
                    changed = bytes(data[: len(before)]) != before
                receiver.feed(bytes(data))
        except (WireError, Unproven):
            pass
        if changed:
            assert acceptor.hello is None
            assert dialer.hello is None
        believed += acceptor.hello is not None

    assert believed < 600  # only where a frame was repeated behind itself


def test_a_stranger_is_told_nothing_and_harms_nobody(run, caplog) -> None:
    async def scenario() -> None:
        server = Side("agent-1")
        port = await server.listen()
        term = 10**6
        for messages in (
            [Hello(FORMAT_VERSION, "master", "demo", master_term=term), ZoneGone(term, "uid")],
            [ZoneGone(term, "uid")],
            [Members(term, ())],
            [TOOL, AskRows("zone", 0, None, 100)],
        ):
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(b"".join(encode_frame(message) for message in messages))
            assert await ended(reader)
            writer.close()

        assert server.heard == []
        assert server.messages == []
        assert server.endpoint.counters.strangers == 4
        assert "says Hello without a proof" in caplog.text

    run(scenario)


def test_a_stranger_that_refuses_first_is_counted_and_logged(run, caplog) -> None:
    async def scenario() -> None:
        server = Side("agent-1")
        port = await server.listen()
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(encode_frame(Refused("go away", RefusalCode.SECRET)))
        assert await ended(reader)

        assert server.heard == []
        assert server.endpoint.counters.strangers == 1
        assert "closed: it refuses, without a proof: go away" in caplog.text
        writer.close()

    run(scenario)


@pytest.mark.parametrize("sent", [b"", dialing().take_outgoing()], ids=["nothing", "challenge"])
def test_who_hangs_up_before_its_proof_is_counted_and_not_logged(run, caplog, sent) -> None:
    """Health probes do: a line for each would bury the others."""

    async def scenario() -> None:
        caplog.set_level(logging.INFO)
        server = Side("agent-1")
        port = await server.listen()
        for _ in range(3):
            _, writer = await asyncio.open_connection(HOST, port)
            writer.write(sent)
            writer.close()
        await until(lambda: server.endpoint.counters.strangers == 3)

        assert server.heard == []
        assert [each for each in caplog.messages if "link to" in each] == []

    run(scenario)


def test_a_member_that_is_refused_is_no_stranger(run) -> None:
    async def scenario() -> None:
        server, member = Side("agent-1"), Side("", role="tool")
        refusal = Refused("not now", RefusalCode.NOT_KEPT)
        port = await server.open(accept=lambda _: refusal).listen(HOST, 0)
        member.open().dial(HOST, port)
        await until(lambda: member.count("refused", RefusalCode.NOT_KEPT))
        await server.endpoint.close()

        assert server.endpoint.counters.refused >= 1
        assert server.endpoint.counters.strangers == 0

    run(scenario)


@pytest.mark.parametrize("said_s", [60, 0], ids=["within a minute", "after it"])
@pytest.mark.parametrize("refuses", ["the accepting side", "the dialing side"])
def test_a_refusal_with_the_same_reason_is_logged_once_a_minute_with_the_name_of_the_other_side(
    run, caplog, monkeypatch, refuses: str, said_s: int
) -> None:
    """The refused side dials again twice a second."""
    monkeypatch.setattr(refusals, "LOGGED_AGAIN_S", said_s)
    reasons = ["no room"]

    def accept(hello: Hello) -> Refused | None:
        return Refused(reasons[0], RefusalCode.NOT_KEPT) if reasons else None

    async def scenario() -> None:
        caplog.clear()
        server, member = Side("agent-1"), Side("agent-2")
        dialed = refuses == "the dialing side"
        side, other = (member, "agent-1") if dialed else (server, "agent-2")
        port = await server.open(accept=None if dialed else accept).listen(HOST, 0)
        endpoint = member.open(LinkSettings(redial_max_ms=10))
        endpoint.dial(HOST, port, accept=accept if dialed else None)
        counters = side.endpoint.counters
        await until(lambda: counters.refused >= 4)
        reasons[0] = "still no room"
        refused = counters.refused
        await until(lambda: counters.refused >= refused + 4)
        reasons.clear()
        await until(lambda: side.count("up", other))
        reasons.append("still no room")
        side.endpoint.links[0].abort("reset")
        again = counters.refused
        await until(lambda: counters.refused >= again + 4)

        said = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
        assert all(each.startswith(f"link to {other} at {HOST}:") for each in said)
        if said_s:
            assert [each.rpartition(": ")[2] for each in said] == [
                "no room",
                "still no room",
                "still no room",
            ]
        else:
            assert len(said) == counters.refused

    run(scenario)


def test_a_proven_tool_cannot_say_what_a_master_says(run) -> None:
    async def scenario() -> None:
        for message in (ZoneGone(1, "uid"), AskInventory(1), Heartbeat(1, 1)):
            server = Side("agent-1")
            port = await server.listen()
            reader, writer = await raw_peer(port, TOOL)
            writer.write(encode_frame(message))
            assert await ended(reader)

            assert server.messages == []
            assert server.endpoint.counters.garbage == 1
            writer.close()

    run(scenario)


def test_an_agent_cannot_say_what_a_master_says(run, caplog) -> None:
    async def scenario() -> None:
        server = Side("agent-1")
        port = await server.listen()
        reader, writer = await raw_peer(port, msgspec.structs.replace(AGENT, node="agent-2"))
        writer.write(encode_frame(ZoneGone(1, "uid")))
        assert await ended(reader)

        assert server.messages == []
        assert "ZoneGone: a agent may not send it to a agent" in caplog.text
        writer.close()

    run(scenario)


def test_both_sides_are_told_whose_the_other_is(run) -> None:
    async def scenario() -> None:
        server, client = Side("agent-1"), Side("", role="master")
        server.open(keys=OTHER_CLUSTER.keys())
        port = await server.endpoint.listen(HOST, 0)
        peer = client.open().dial(HOST, port)
        await until(lambda: client.count("refused", RefusalCode.CLUSTER))

        assert peer.refused is not None
        assert "this agent belongs to cluster 'demo' (id another-cluster)" in peer.refused.reason
        assert "the master on the other side to cluster 'demo'" in peer.refused.reason
        assert server.heard == []

    run(scenario)


def test_who_proves_nothing_in_time_is_closed_however_slowly_he_goes_on(run) -> None:
    async def scenario() -> None:
        server = Side("agent-1")
        port = await server.listen(settings=LinkSettings(hello_timeout_ms=100))
        reader, writer = await asyncio.open_connection(HOST, port)
        data = dialing().take_outgoing()

        async def drip() -> None:
            for byte in data[:-1]:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        assert await ended(reader)
        dripping.cancel()

        assert server.endpoint.counters.hello_timeouts == 1
        assert server.endpoint.counters.strangers == 1
        writer.close()

    run(scenario)


def test_of_many_that_prove_nothing_the_oldest_goes_and_members_come_in(run) -> None:
    async def scenario() -> None:
        server, member = Side("agent-1"), Side("agent-2")
        port = await server.listen(settings=LinkSettings(strangers_max=3))
        silent = [await asyncio.open_connection(HOST, port) for _ in range(5)]
        assert await ended(silent[0][0])
        assert await ended(silent[1][0])
        member.open().dial(HOST, port)
        await until(lambda: server.count("up", "agent-2"))

        assert await ended(silent[2][0])
        assert server.endpoint.counters.strangers == 3
        for _, writer in silent:
            writer.close()

    run(scenario)


def test_strangers_take_no_place_of_members(run) -> None:
    async def scenario() -> None:
        server = Side("agent-1")
        port = await server.listen(settings=LinkSettings(links_max=2, strangers_max=3))
        silent = [await asyncio.open_connection(HOST, port) for _ in range(2)]
        for name in ("agent-2", "agent-3"):
            Side(name).open().dial(HOST, port)
            await until(lambda name=name: server.count("up", name))

        assert server.endpoint.counters.strangers == 0  # the two are there yet
        for _, writer in silent:
            writer.close()

    run(scenario)


def test_many_strangers_of_one_host_do_not_end_the_handshake_of_another_host(run) -> None:
    async def scenario() -> None:
        server = Side("agent-1")
        port = await server.listen(settings=LinkSettings(strangers_max=3))
        slow = await asyncio.open_connection(HOST, port, local_addr=("127.0.0.2", 0))
        silent = [await asyncio.open_connection(HOST, port) for _ in range(8)]
        await until(lambda: server.endpoint.counters.strangers == 6)
        await shake_hands(*slow, TOOL, SECRET.keys("tool"))

        await until(lambda: server.endpoint.links)
        for _, writer in (slow, *silent):
            writer.close()

    run(scenario)


def test_a_member_may_keep_silent_once_it_is_proven(run) -> None:
    async def scenario() -> None:
        server = Side("agent-1")
        port = await server.listen(settings=LinkSettings(hello_timeout_ms=50))
        reader, writer = await asyncio.open_connection(HOST, port)
        await shake_hands(reader, writer, TOOL, SECRET.keys("tool"))
        await until(lambda: server.endpoint.links)
        await asyncio.sleep(0.15)  # three times as long as a stranger may

        assert len(server.endpoint.links) == 1
        writer.close()

    run(scenario)
