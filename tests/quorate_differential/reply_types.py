"""Of what types a reply is made: whether ours would be read like that of Redis."""

from typing import NamedTuple

from quorate_differential.raw_replies import reply_end

_AGGREGATES = (b"*", b"~", b">", b"%")
_NULLS = (b"$-1", b"*-1")


class Reply(NamedTuple):
    """One reply, taken apart: of a map keys and values by turns; leaves have their bytes."""

    kind: bytes
    leaf: bytes
    parts: tuple["Reply", ...]


def taken_apart(data: bytes) -> Reply:
    """The one reply that `data` is."""
    reply, end = _read(data, 0)
    assert end == len(data)
    return reply


def _read(data: bytes, at: int) -> tuple[Reply, int]:
    line_end = data.index(b"\r\n", at)
    kind, header = data[at : at + 1], data[at:line_end]
    if header in _NULLS:
        return Reply(header, b"", ()), line_end + 2
    if kind not in _AGGREGATES:
        end = reply_end(data, at)
        return Reply(kind, data[at:end], ()), end
    parts = []
    at = line_end + 2
    for _ in range(int(header[1:]) * (2 if kind == b"%" else 1)):
        part, at = _read(data, at)
        parts.append(part)
    return Reply(kind, b"", tuple(parts)), at


def reads_like(ours: Reply, theirs: Reply) -> bool:
    """Whether every part of ours has a counterpart of the same type; of a map, under its key."""
    if ours.kind != theirs.kind:
        return False
    if ours.kind == b"%":
        known = {key.leaf: value for key, value in _pairs(theirs)}
        return all(
            key.leaf in known and reads_like(value, known[key.leaf]) for key, value in _pairs(ours)
        )
    return all(any(reads_like(part, other) for other in theirs.parts) for part in ours.parts)


def _pairs(reply: Reply) -> list[tuple[Reply, Reply]]:
    return list(zip(reply.parts[::2], reply.parts[1::2], strict=True))
