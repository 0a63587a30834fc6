"""Answers tools' questions about rows as clients see them: those set aside, and the present ones.

Each answer is short, so that the event loop is not held up: a tool asks again for the rest.
"""

from quorate.facts.keyspace import is_reserved
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.reports import tell_aside
from quorate.protocol.messages.tools import (
    AskAside,
    AskValues,
    RowsAside,
    SetAside,
    Value,
    Values,
)
from quorate.protocol.storage import Row, Space
from quorate_agent.resp.values.value import (
    Damaged,
    Kind,
    kind_of,
    string_of,
    unpack_elements,
    unpack_fields,
)

TOLD_MAX = 1000
"""Entries in one answer about what is set aside."""
ROWS_MAX = 2000
BYTES_MAX = 1024 * 1024
"""Rows are read until there are so many, or so many bytes: some 10 ms."""


def tell_set_aside(ask: AskAside, node: str, zone: Replicas | None, problem: str) -> SetAside:
    """Return what is set aside of the zone."""
    if zone is None:
        return SetAside(ask.zone_name, node, (), None, problem)
    found: list[RowsAside] = []
    for partition in sorted(each for each in zone.aside if each > ask.after):
        found += tell_aside(zone.copies[partition])
        if len(found) >= TOLD_MAX:
            return SetAside(ask.zone_name, node, tuple(found), partition)
    return SetAside(ask.zone_name, node, tuple(found))


def tell_values(ask: AskValues, node: str, zone: Replicas | None, problem: str) -> Values:
    """Return the next rows of what is set aside, or of the copy."""
    copy = zone.copies.get(ask.partition) if zone is not None else None
    space = _space(copy, ask.generation)
    if space is None:
        what = "no copy" if ask.generation is None else f"no rows {ask.generation} set aside"
        missing = problem or f"partition {ask.partition}: {what} on agent {node}"
        return Values(ask.zone_name, ask.partition, None, (), missing)
    if ask.key is not None:
        row = space.get(ask.key)
        found = (_value(ask.key, row, is_whole=True),) if row is not None else ()
        return Values(ask.zone_name, ask.partition, None, found)
    chunk = space.scan(ask.after, ROWS_MAX, BYTES_MAX)
    return Values(
        ask.zone_name,
        ask.partition,
        chunk[-1][0] if chunk else None,
        tuple([_value(key, row) for key, row in chunk if not is_reserved(key)]),
    )


def _space(copy: Copy | None, generation: int | None) -> Space | None:
    if copy is None:
        return None
    if generation is None:
        return copy.space if copy.present else None
    is_kept = any(kept.generation == generation for kept in copy.kept_rows)
    return copy.storage.space(copy.partition, generation) if is_kept else None


def is_readable(value: bytes) -> bool:
    """Return whether clients can read the stored value; of a long one only its kind is checked."""
    return bool(_content(value, len(value) <= BYTES_MAX)[0])


def _value(key: bytes, row: Row, *, is_whole: bool = False) -> Value:
    """Return the row for a tool.  `is_whole`: however long it is."""
    size = len(row.value) if row.value is not None else 0
    if row.value is None:
        return Value(key, row.counter, row.term, row.expires_at, "none", (), size)
    kind, items = _content(row.value, is_whole or size <= BYTES_MAX)
    return Value(key, row.counter, row.term, row.expires_at, kind, items, size)


def _content(value: bytes, is_told: bool) -> tuple[str, tuple[bytes, ...] | None]:
    try:
        kind = kind_of(value)
        name = kind.value.decode()
        if not is_told:
            return name, None
        if kind is Kind.STRING:
            text = string_of(value)
            return name, (text,) if text is not None else None
        if kind is Kind.HASH:
            pairs = unpack_fields(value).items()
            return name, tuple([part for pair in pairs for part in pair])
        return name, tuple(unpack_elements(value))
    except Damaged:
        return "", None
