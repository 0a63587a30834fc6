"""Long messages travel in pieces: short ones overtake them, nothing is mixed, bounds hold."""

import random

import pytest

from quorate.facts.errors import WireError
from quorate.protocol.messages.handshake import FRAME_BYTES_MAX
from quorate.protocol.messages.master import MasterPing
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.replication import Heartbeat
from quorate.protocol.messages.tools import CopyRows
from quorate.protocol.messages.transfer import KeyRows
from quorate.wire.frames import FrameReader, encode_frame, encode_to_send
from quorate.wire.long_frames import LONG_BYTES, PIECE_BYTES, LongFrame
from quorate_link import LinkSettings
from quorate_loopback.sides import Side, linked
from quorate_loopback.waiting import until


def rows(size: int, seed: int = 1) -> CopyRows:
    value = random.Random(seed).randbytes(size)
    return CopyRows("zone", 0, None, 0, ((b"key", 1, 1, 0, value),))


def pieces_of(message: Message, *, bulk: bool = False) -> list[bytes]:
    frame = encode_to_send(message)
    assert isinstance(frame, LongFrame)
    pieces = list(frame.pieces(bulk=bulk))
    assert sum(map(len, pieces)) == len(frame)
    return pieces


def test_a_frame_that_is_not_long_is_sent_as_it_is() -> None:
    assert encode_to_send(MasterPing(1, 2)) == encode_frame(MasterPing(1, 2))
    assert max(map(len, pieces_of(rows(LONG_BYTES)))) == PIECE_BYTES + 4


@pytest.mark.parametrize("chunk_bytes", [1 << 16, 70_001, 1 << 22])
def test_pieces_of_two_messages_and_whole_frames_between_them_are_what_was_sent(
    chunk_bytes: int,
) -> None:
    ordinary, bulk = rows(1_500_000, 1), rows(1_200_000, 2)
    sent = b""
    waiting = [pieces_of(ordinary), pieces_of(bulk, bulk=True)]
    for number in range(max(map(len, waiting))):
        sent += b"".join([pieces[number] for pieces in waiting if number < len(pieces)])
        sent += encode_frame(MasterPing(1, number))
    reader = FrameReader()

    found = []
    for at in range(0, len(sent), chunk_bytes):
        found += reader.feed(sent[at : at + chunk_bytes])

    assert [each for each in found if isinstance(each, CopyRows)] == [bulk, ordinary]
    assert [each.sequence for each in found if isinstance(each, MasterPing)] == list(range(6))
    assert reader.pending_bytes == 0


def test_what_came_of_a_long_message_is_counted() -> None:
    reader = FrameReader()
    pieces = pieces_of(rows(1_000_000))

    assert reader.feed(b"".join(pieces[:-1])) == []

    assert reader.pending_bytes == (len(pieces) - 1) * PIECE_BYTES


@pytest.mark.parametrize("bulk", [False, True])
def test_pieces_of_more_than_a_frame_may_have_are_a_wire_error(bulk: bool) -> None:
    piece, *_ = pieces_of(rows(1_000_000), bulk=bulk)
    reader = FrameReader()
    for _ in range(FRAME_BYTES_MAX // PIECE_BYTES):
        assert reader.feed(piece) == []

    with pytest.raises(WireError, match=f"frame of {FRAME_BYTES_MAX + PIECE_BYTES} bytes: limit"):
        reader.feed(piece)


def key_rows(size: int) -> KeyRows:
    """What agents send each other."""
    return KeyRows("zone", 0, 1, 0, rows(size).rows)


def test_a_heartbeat_overtakes_a_value_that_is_on_its_way(run) -> None:
    async def scenario() -> None:
        server, client = Side("agent-1"), Side("agent-2")
        settings = LinkSettings()
        _, link = await linked(server, client)
        link.send(key_rows(32 << 20))
        link.send_bulk(key_rows(32 << 20))
        link.flush()
        assert link._transport.get_write_buffer_size() < 2 * settings.window_bytes
        link.send_urgent(Heartbeat(1, 1))
        await until(lambda: len(server.messages) == 3)

        assert server.messages[0] == Heartbeat(1, 1)
        assert (link.bulk_bytes, link.pending_bytes) == (0, 0)

    run(scenario)
