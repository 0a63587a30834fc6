"""Shows rows that agents have set aside, without the packages that agents' images lack."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from quorate.facts.keyspace import printable
from quorate.protocol.messages.tools import RowsAside, Value
from quorate_cli.copies.agent_question import Asked
from quorate_cli.copies.rows_aside import (
    DELETED,
    Differing,
    Rows,
    find_differing,
    find_primary,
    rows_aside,
)
from quorate_cli.terminal.figures import moment, size
from quorate_cli.terminal.problem import Problem

SHOWN_CHARACTERS = 100


class Found(NamedTuple):
    """The rows that one agent has set aside of one copy."""

    zone: str
    agent: Asked
    rows: RowsAside

    @property
    def as_json(self) -> dict[str, Any]:
        """The keys that docs/json.md describes."""
        return {
            "zone": self.zone,
            "agent": self.agent.node,
            **msgspec.structs.asdict(self.rows),
        }


class Wanted(NamedTuple):
    """The rows that are set aside and to be shown.  `agent`, `key` None: of all."""

    zone: str
    partition: int
    agent: str | None = None
    key: bytes | None = None
    differs: bool = False


def find_aside(agents: Sequence[Asked], zone: str) -> tuple[list[Found], dict[str, str]]:
    """Return what is set aside of a zone, and why some agents did not tell."""
    found: list[Found] = []
    unasked: dict[str, str] = {}
    for agent in agents:
        try:
            found += [Found(zone, agent, rows) for rows in rows_aside(agent, zone)]
        except Problem as problem:
            unasked[agent.node] = str(problem)
    return sorted(found, key=lambda each: (each.rows.partition, each.agent.node)), unasked


def print_list(found: Sequence[Found], unasked: dict[str, str], as_json: bool) -> None:
    """Print what is set aside.

    Raises Problem, after the output, if there is nothing and some agents did not tell.
    """
    if as_json:
        whole = {"aside": [each.as_json for each in found], "unasked": unasked}
        print(msgspec.json.format(msgspec.json.encode(whole), indent=2).decode())
    else:
        for each in found:
            print(_sentence(each))
        _warn(unasked)
    if not found and unasked:
        raise Problem(_unknown(unasked))
    if not found and not as_json:
        print("nothing is set aside")


def print_rows(agents: Sequence[Asked], wanted: Wanted, as_json: bool) -> None:
    """Print rows, keys and values; raise Problem if nothing is set aside."""
    zone, partition = wanted.zone, wanted.partition
    everywhere, unasked = find_aside(agents, zone)
    found = [
        each
        for each in everywhere
        if each.rows.partition == partition and wanted.agent in (None, each.agent.node)
    ]
    _warn(unasked)
    if not found:
        where = f"zone {zone}, partition {partition}"
        silent = {node: why for node, why in unasked.items() if wanted.agent in (None, node)}
        if silent:
            raise Problem(f"{where}: {_unknown(silent)}")
        by = f" by {wanted.agent}" if wanted.agent else ""
        raise Problem(f"{where}: nothing is set aside{by}: see `quorate aside list {zone}`")
    there = [each for each in agents if each.node not in unasked]
    primary = find_primary(there, zone, partition) if wanted.differs else None
    for each in found:
        if not as_json:
            print(_sentence(each))
        for row in _rows(each, primary, wanted.key):
            if as_json:
                line = msgspec.json.encode(_row_json(each, row, wanted.differs)).decode()
            else:
                line = _line(row, wanted.differs, wanted.key is not None)
            print(line)


def _rows(found: Found, primary: Asked | None, key: bytes | None) -> Iterator[Differing]:
    """Yield the rows to show; without a primary to compare with, those that are not deleted."""
    partition = found.rows.partition
    rows = Rows(found.agent, found.zone, partition, found.rows.generation)
    if primary is not None:
        yield from find_differing(rows, Rows(primary, found.zone, partition, None), key)
        return
    for value in rows.values(key):
        if value.kind != DELETED:
            yield Differing(value, None)


def _sentence(found: Found) -> str:
    rows = found.rows
    return (
        f"zone {found.zone}, partition {rows.partition}, {found.agent.node}: {rows.rows} rows"
        f" ({size(rows.bytes)}) up to counter {rows.lwm} of term {rows.last_term}, set aside"
        f" {moment(rows.since_ms)} after the reset of term {rows.reset_term}, dropped"
        f" {moment(rows.until_ms)}"
    )


def _line(row: Differing, differs: bool, is_whole: bool) -> str:
    shown = f"{printable(row.aside.key)}  {_told(row.aside, is_whole)}"
    if not differs:
        return shown
    now = "no such key" if row.present is None else _told(row.present, is_whole)
    return f"{shown}  now: {now}"


def _told(value: Value, is_whole: bool) -> str:
    """Return a value in one line.  `is_whole`: however long it is."""
    if value.kind == DELETED:
        return "deleted"
    if value.items is None:
        what = value.kind or "not readable"
        return f"{what}  ({size(value.bytes)}{': --key shows it' if value.kind else ''})"
    text = " ".join(map(printable, value.items))
    if len(text) > SHOWN_CHARACTERS and not is_whole:
        text = f"{text[:SHOWN_CHARACTERS]}… ({size(value.bytes)})"
    return f"{value.kind}  {text}"


def _row_json(found: Found, row: Differing, differs: bool) -> dict[str, Any]:
    whole = {
        "agent": found.agent.node,
        "generation": found.rows.generation,
        "key": printable(row.aside.key),
        "key_hex": row.aside.key.hex(),
        **_value_json(row.aside),
    }
    if differs:
        whole["present"] = None if row.present is None else _value_json(row.present)
    return whole


def _value_json(value: Value) -> dict[str, Any]:
    items = value.items
    return {
        "type": value.kind,
        "items": None if items is None else [printable(each) for each in items],
        "items_hex": None if items is None else [each.hex() for each in items],
        "bytes": value.bytes,
        "counter": value.counter,
        "term": value.term,
        "expires_at": value.expires_at,
    }


def _unknown(unasked: dict[str, str]) -> str:
    return f"no agent that answered has set anything aside; unknown: {', '.join(unasked)}"


def _warn(unasked: dict[str, str]) -> None:
    for node, why in unasked.items():
        print(f"{node}: what it has set aside is unknown: {why}", file=sys.stderr)
