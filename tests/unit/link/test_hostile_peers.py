"""Ten thousand random and mutated frames: no crash, no hang, bounded memory, others served."""

import asyncio
import random
import resource
from contextlib import suppress

import msgspec
import pytest
import uvloop

from quorate.facts.errors import WireError
from quorate.facts.lineage import Entry, Lineage
from quorate.facts.partition_row import Migration, MigrationKind, PartitionRow
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.facts.zone import ZoneRecord
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello, Refused
from quorate.protocol.messages.master import CopyReport, Inventory, MasterPing, Members, ZoneTable
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.replication import (
    Acks,
    Append,
    Batch,
    FenceAck,
    Heartbeat,
    HeartbeatAck,
    Sync,
    Update,
)
from quorate.protocol.messages.tools import CopyRows
from quorate.protocol.messages.transfer import SnapshotChunk
from quorate.wire.frames import FrameReader, decode_message, encode_frame
from quorate_link import BaseHandler, Endpoint, Link
from quorate_loopback.sides import HOST, SECRET, raw_peer, shake_hands

HELLO = Hello(FORMAT_VERSION, "tool", "demo")
FRAMES = 10_000
MEMORY_GROWTH_BYTES_MAX = 200 << 20

_lineage = Lineage(1, 5, (Entry(3, 6, ((7, 8),)),))
_holder = Holder("agent-1", "store", 4)
_migration = Migration(
    "m", MigrationKind.MOVE, "agent-1", _holder, ("agent-2",), (Voter("agent-2", "s"),)
)
_row = PartitionRow(3, 9, 7, _holder, ("agent-1", None), (Voter("agent-1", "store"),), _migration)
_update = msgspec.msgpack.encode(Update(5, 3, ((b"key", b"value", 0),)))
_rows = ((b"key", 5, 3, 0, b"value"), (b"gone", 6, 3, 0, None))

SAMPLES: list[Message] = [
    HELLO,
    MasterPing(1, 2),
    Members(1, (NodeRecord("agent-1", "store", 4, "h", 1, "h"),)),
    ZoneTable(1, ZoneRecord("uid", "zone", 64, 3), (_row,)),
    Append("uid", (Batch(3, 7, 5, 4, 3, (_update, _update)),)),
    Acks("uid", ((3, 7, 5),)),
    FenceAck("uid", 3, 7, "store", _lineage, 5, ((7, ((8, 9),)),), 100, True),
    Sync("uid", 3, 7, _lineage, 5),
    SnapshotChunk("uid", 3, 7, None, b"next", 5, 0, _rows, 100),
    HeartbeatAck(5, 2000, 1, (("uid", 3, 7),)),
    CopyRows("zone", 3, None, 5, _rows),
    Inventory("uid", (CopyReport(3, 9, _row, "m", 7, 5, 5, True),)),
]


def mutated(draw: random.Random) -> bytes:
    """One frame: random bytes, a damaged sample, a lying length, or hostile msgpack."""
    frame = bytearray(encode_frame(draw.choice(SAMPLES)))
    body = frame[4:]
    match draw.randrange(8):
        case 0:
            body = bytearray(draw.randbytes(draw.randrange(200)))
        case 1:
            return draw.randbytes(draw.randrange(1, 200))
        case 2:
            for _ in range(draw.randrange(1, 5)):
                body[draw.randrange(len(body))] = draw.randrange(256)
        case 3:
            del body[draw.randrange(len(body)) :]
        case 4:
            at = draw.randrange(len(body))
            body[at:at] = draw.randbytes(draw.randrange(1, 20))
        case 5:  # an array, a map or bytes that claim to be enormous
            kind = draw.choice([b"\xdd", b"\xdf", b"\xc6", b"\xdb"])
            body[draw.randrange(len(body)) :] = kind + draw.choice(
                [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\xff\xff\xff", b"\x04\x00\x00\x00"]
            )
        case 6:  # nested without end
            at = draw.randrange(len(body))
            body[at:at] = draw.choice([b"\x91", b"\x81\x01"]) * draw.randrange(5_000)
        case _:
            return draw.randrange(1 << 32).to_bytes(4, "big") + body
    return len(body).to_bytes(4, "big") + body


def peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_every_frame_is_a_message_or_a_wire_error() -> None:
    draw = random.Random(7)
    before = peak_memory()
    refused = 0
    for _ in range(FRAMES):
        reader = FrameReader()
        try:
            for message in reader.feed(mutated(draw)):
                encode_frame(message)
        except WireError:
            refused += 1

    assert FRAMES // 3 < refused < FRAMES
    assert peak_memory() - before < MEMORY_GROWTH_BYTES_MAX


@pytest.mark.parametrize("depth", [100, 10_000, 1_000_000])
@pytest.mark.parametrize("opening", [b"\x91", b"\x81\x01"])
def test_nesting_without_end_is_a_wire_error(opening: bytes, depth: int) -> None:
    update_of_append = b"\x93\x2e\xa1z\x91\x96\x01\x01\x01\x01\x01\x91"
    with pytest.raises(WireError):
        decode_message(update_of_append + opening * depth)
    with pytest.raises(WireError):
        decode_message(opening * depth)


class Listener(BaseHandler):
    """Counts what arrives; answers pings."""

    def __init__(self) -> None:
        self.lost = 0

    def on_message(self, link: Link, message: Message) -> None:
        if type(message) is Heartbeat and link.peer_name == "honest":
            link.send(message)

    def on_down(self, link: Link, refused: Refused | None) -> None:
        self.lost += 1


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_hostile_connections_are_closed_and_an_honest_peer_is_served(loop, caplog) -> None:
    async def scenario() -> None:
        draw = random.Random(11)
        listener = Listener()
        hello = Hello(FORMAT_VERSION, "agent", "demo", "agent-1")
        endpoint = Endpoint(lambda: hello, listener, SECRET.keys())
        port = await endpoint.listen(HOST, 0)
        honest_hello = Hello(FORMAT_VERSION, "agent", "demo", "honest")
        honest_reader, honest = await raw_peer(port, honest_hello)
        frames = FrameReader()
        heard: list[Message] = []
        before = peak_memory()
        sent = 0
        rounds = 0
        while sent < FRAMES:
            rounds += 1
            reader, writer = await asyncio.open_connection(HOST, port)
            if draw.random() < 0.8:
                await shake_hands(reader, writer, HELLO)
            for _ in range(100):
                writer.write(mutated(draw))
                sent += 1
            honest.write(encode_frame(Heartbeat(1, rounds)))
            while Heartbeat(1, rounds) not in heard:
                heard += frames.feed(await honest_reader.readexactly(1))
            if draw.random() < 0.5:
                await end(reader, writer)
            writer.close()
        honest.close()

        assert endpoint.counters.garbage > rounds // 3
        assert peak_memory() - before < MEMORY_GROWTH_BYTES_MAX
        await endpoint.close()

    problems: list[dict[str, object]] = []
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.get_loop().set_exception_handler(lambda _, problem: problems.append(problem))
        runner.run(asyncio.wait_for(scenario(), 60))
    assert problems == []
    assert "closed: not a message: " in caplog.text
    assert "closed: frame of " in caplog.text


async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say that nothing more comes and read what the other side still says."""
    with suppress(ConnectionError, RuntimeError):  # uvloop's word for a transport that is closed
        writer.write_eof()
        while await reader.read(65536):
            pass
