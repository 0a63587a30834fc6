"""Bytes that no honest client or peer sends: random, and valid ones with something changed."""

import random
from collections.abc import Sequence

import msgspec

from quorate.facts.lineage import Lineage
from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Holder, Voter
from quorate.protocol.messages import master, tools, transfer
from quorate.protocol.messages import replication as among
from quorate.protocol.messages.message import MAY_SEND, ROLES, Message
from quorate.wire.frames import encode_frame

_WORDS: Sequence[Sequence[bytes]] = (
    (b"SET", b"key", b"value"),
    (b"GET", b"key"),
    (b"SET", b"key", b"value", b"PX", b"100", b"NX", b"GET"),
    (b"MSET", b"{t}a", b"1", b"{t}b", b"2"),
    (b"INCRBY", b"counter", b"-1"),
    (b"HELLO", b"3"),
    (b"CLUSTER", b"SLOTS"),
    (b"CLIENT", b"SETINFO", b"LIB-NAME", b"x"),
    (b"SCAN", b"0", b"MATCH", b"*", b"COUNT", b"10"),
    (b"WAIT", b"1", b"10"),
    (b"COMMAND", b"DOCS", b"get"),
    (b"EXPIRE", b"key", b"10", b"GT"),
)
_NASTY = (
    b"*-1\r\n",
    b"*0\r\n",
    b"*1048577\r\n",
    b"*1000000\r\n",
    b"*1\r\n$-1\r\n",
    b"*1\r\n$67108865\r\n",
    b"*1\r\n$99999999999999999999\r\n",
    b"*1\r\n:1\r\n",
    b"*1\r\n*1\r\n*1\r\n*1\r\n$4\r\nPING\r\n",
    b"*" + b"9" * 40 + b"\r\n",
    b"$5\r\nhello\r\n",
    b"%1\r\n+a\r\n+b\r\n",
    b"\r\n\r\n\r\n",
    b'SET key "unbalanced\r\n',
    b"A" * 70_000,
    b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$60000000\r\nshort",
    b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
)


def client_bytes(chance: random.Random) -> bytes:
    """What one bad client sends."""
    kind = chance.random()
    if kind < 0.2:
        return chance.randbytes(chance.randrange(1, 400))
    if kind < 0.3:
        return chance.choice(_NASTY)
    commands = b"".join(
        _command(chance.choice(_WORDS)) for _ in range(chance.choice((1, 1, 2, 5, 40)))
    )
    return _mutated(commands, chance)


def peer_bytes(chance: random.Random, role: str, zones: Sequence[str]) -> bytes:
    """What one bad peer of this role sends, proven or not: mostly what the role may send."""
    kind = chance.random()
    if kind < 0.15:
        return chance.randbytes(chance.randrange(1, 400))
    if kind < 0.2:
        return chance.randrange(1 << 32).to_bytes(4, "big") + chance.randbytes(64)
    messages = _messages(chance, chance.choice(zones))
    if kind < 0.9 and role in ROLES:
        messages = [each for each in messages if isinstance(each, MAY_SEND[role, "agent"])]
    chosen = [chance.choice(messages) for _ in range(chance.randrange(1, 6))]
    frames = b"".join(map(encode_frame, chosen))
    return frames if kind < 0.4 else _mutated(frames, chance)


def _command(words: Sequence[bytes]) -> bytes:
    parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"*%d\r\n" % len(words) + b"".join(parts)


def _mutated(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8))):
        at = chance.randrange(len(changed) + 1)
        how = chance.random()
        if how < 0.4 and at < len(changed):
            changed[at] = chance.randrange(256)
        elif how < 0.6:
            changed[at:at] = chance.randbytes(chance.randrange(1, 9))
        elif how < 0.8:
            del changed[at : at + chance.randrange(1, 9)]
        else:
            del changed[at:]
    return bytes(changed)


def _messages(chance: random.Random, zone: str) -> list[Message]:
    """Valid messages with numbers from everywhere."""

    def number() -> int:
        top = chance.choice((1, 15, 16, 255, 1 << 31, (1 << 63) - 1))
        return chance.choice((-1, 1)) * chance.randrange(top + 1)

    def data() -> bytes:
        return chance.randbytes(chance.randrange(20))

    holder = Holder("ghost", "store", 1)
    lineage = Lineage()
    row = PartitionRow(number(), number(), number(), holder, ("ghost",), (Voter("ghost", "s"),))
    partition, term = chance.choice((0, 1, number())), number()
    update = msgspec.msgpack.encode(among.Update(number(), term, ((data(), data(), number()),)))
    ranges = ((number(), number()), (1, (1 << 63) - 1))
    rows = ((data(), number(), number(), number(), data()),)
    everything: list[Message] = [
        among.Fence(zone, partition, term, holder),
        among.FenceAck(zone, partition, term, "s", lineage, number(), ((term, ranges),), 1, True),
        among.FenceRefused(zone, partition, term, number()),
        among.Sync(zone, partition, term, lineage, number()),
        among.Append(
            zone, (among.Batch(partition, term, number(), number(), number(), (update,)),)
        ),
        among.Append(zone, (among.Batch(partition, term, 1, 1, 1, (data(),)),)),
        among.Acks(zone, ((partition, term, number()),)),
        among.Rejected(zone, partition, term, number()),
        transfer.FetchUpdates(zone, partition, term, ranges),
        transfer.Updates(zone, partition, term, (update,), number()),
        transfer.FetchKeys(zone, partition, term, (data(),)),
        transfer.KeyRows(zone, partition, term, number(), rows),
        transfer.FetchSnapshot(zone, partition, term, data(), number()),
        transfer.SnapshotChunk(zone, partition, term, None, data(), 1, 0, rows, number()),
        transfer.Unavailable(zone, partition, term),
        among.Heartbeat(number(), number()),
        among.HeartbeatAck(number(), number(), number(), ((zone, partition, term),)),
        tools.AskCopies("z"),
        tools.AskRows("z", partition, data(), number(), (number() % 300,)),
        tools.AskColumns("z", partition, data(), number(), data(), chance.random() < 0.5),
        tools.AskPaced(number() - 2),
        tools.AskDigests("z", (partition, number()), (number(),)),
        tools.AskBuckets("z", partition, number(), data()),
        tools.Damage("z", data(), data()),
        master.MasterPing(number(), number()),
        master.ZoneGone(number(), zone),
        master.PreparedRow(number(), zone, "id", row),
        master.Freeze(number(), zone, partition, "id", term),
        master.Inventory(zone, ()),
    ]
    return everything
