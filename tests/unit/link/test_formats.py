"""Sides of different versions speak the highest format that both know, and nothing beyond it."""

import msgspec
import pytest

from quorate.protocol.messages import formats
from quorate.protocol.messages.formats import SPOKEN, Formats
from quorate.protocol.messages.handshake import (
    FORMAT_LOWEST,
    NONCE_BYTES,
    Challenge,
    Hello,
    Refused,
)
from quorate.protocol.messages.master import MasterPing, Members
from quorate.wire.frames import decode_opening
from quorate_link import LinkSettings
from quorate_link.handshake import Handshake, Unproven
from quorate_loopback.sides import HOST, SECRET, Side
from quorate_loopback.waiting import until

AGENT = Hello(0, "agent", "demo", "agent-1", "store", 3)
MASTER = Hello(0, "master", "demo", master_term=7)


class ChallengeOfBefore(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The first frame of builds that spoke one format and refused every other."""

    format_version: int
    role: str
    cluster: str
    cluster_id: str
    nonce: bytes


def both(dialing: Formats, accepting: Formats) -> tuple[Handshake, Handshake]:
    keys = SECRET.keys()
    return (
        Handshake(keys, lambda: MASTER, dialed=True, formats=dialing),
        Handshake(keys, lambda: AGENT, dialed=False, formats=accepting),
    )


def shaken(dialer: Handshake, acceptor: Handshake) -> None:
    acceptor.feed(dialer.take_outgoing())
    dialer.feed(acceptor.take_outgoing())
    acceptor.feed(dialer.take_outgoing())
    dialer.feed(acceptor.take_outgoing())


@pytest.mark.parametrize(
    ("dialing", "accepting", "common"),
    [
        (Formats(2, 2), Formats(2, 2), 2),
        (Formats(2, 3), Formats(2, 2), 2),
        (Formats(2, 3), Formats(3, 5), 3),
        (Formats(2, 6), Formats(3, 5), 5),
        (Formats(3, 5), Formats(2, 6), 5),
    ],
)
def test_the_highest_common_format_is_spoken_and_both_hellos_say_it(
    dialing: Formats, accepting: Formats, common: int
) -> None:
    dialer, acceptor = both(dialing, accepting)

    shaken(dialer, acceptor)

    assert (dialer.format, acceptor.format) == (common, common)
    assert dialer.hello == msgspec.structs.replace(AGENT, format_version=common)
    assert acceptor.hello == msgspec.structs.replace(MASTER, format_version=common)


@pytest.mark.parametrize(
    ("dialing", "accepting"),
    [(Formats(4, 5), Formats(2, 3)), (Formats(2, 3), Formats(4, 5)), (SPOKEN, Formats(99, 99))],
)
def test_without_a_common_format_a_sentence_names_both_and_the_way_out(
    dialing: Formats, accepting: Formats
) -> None:
    dialer, acceptor = both(dialing, accepting)

    with pytest.raises(Unproven) as refused:
        shaken(dialer, acceptor)

    assert refused.value.code == "format"
    assert f"this agent speaks {accepting}, the master on the other side {dialing}" in str(
        refused.value
    )
    assert "upgrade the older one" in str(refused.value)


def test_a_side_of_before_takes_the_lowest_format_for_the_only_one() -> None:
    """It compares the first field with its own format, and ignores what follows the nonce."""
    dialer, _ = both(Formats(FORMAT_LOWEST, 9), SPOKEN)

    sent = msgspec.msgpack.decode(dialer.take_outgoing()[4:], type=ChallengeOfBefore)

    assert sent.format_version == FORMAT_LOWEST
    assert len(sent.nonce) == NONCE_BYTES


def test_a_challenge_of_before_is_answered_in_its_format() -> None:
    _, acceptor = both(SPOKEN, Formats(2, 9))
    old = ChallengeOfBefore(2, "master", "demo", SECRET.cluster_id, bytes(NONCE_BYTES))
    body = msgspec.msgpack.encode(old)

    acceptor.feed(len(body).to_bytes(4, "big") + body)

    assert acceptor.format == 2
    answered = decode_opening(acceptor.take_outgoing()[4:])
    assert isinstance(answered, Challenge)
    assert (answered.format_version, answered.format_highest) == (2, 9)


@pytest.mark.parametrize("version", [2, 3])
def test_a_message_goes_only_to_a_side_whose_format_has_it(
    run, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """`Members` plays a message of format 3: a side that speaks 2 is sent all but that one."""
    monkeypatch.setattr(formats, "SINCE", {Members: 3})

    async def scenario() -> None:
        server, client = Side("agent-1"), Side("", role="master")
        port = await server.listen(settings=LinkSettings(formats=Formats(2, version)))
        endpoint = client.open(LinkSettings(formats=Formats(2, 3)))
        peer = endpoint.dial(HOST, port)
        await until(lambda: peer.link and server.endpoint.links)
        link = peer.link
        assert link is not None

        sent = [send(Members(1, ())) for send in (link.send, link.send_urgent, link.send_bulk)]
        link.send(MasterPing(1, 7))
        await until(lambda: MasterPing(1, 7) in server.messages)

        assert sent == [version == 3] * 3
        await until(lambda: len(server.messages) == (4 if version == 3 else 1))
        assert endpoint.counters.unspoken == (0 if version == 3 else 3)
        assert server.endpoint.links[0].peer_hello == Hello(version, "master", "demo")

    run(scenario)


def test_the_owner_of_a_link_hears_that_there_is_no_common_format(run) -> None:
    async def scenario() -> None:
        later = SPOKEN.highest + 1
        server, client = Side("agent-1"), Side("", role="master")
        port = await server.listen(settings=LinkSettings(formats=Formats(later, later)))
        peer = client.open().dial(HOST, port)
        await until(lambda: client.count("refused", "format"))

        assert isinstance(peer.refused, Refused)
        assert f"format version {later}" in peer.refused.reason
        assert not server.heard

    run(scenario)
