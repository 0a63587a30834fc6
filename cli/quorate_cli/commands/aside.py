"""`quorate aside`: lists and shows rows that were set aside because a reset left them."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import typer

from quorate.facts.addresses import split_address
from quorate.facts.keyspace import printable
from quorate.protocol.messages.tools import RowsAside, Value
from quorate_cli.commands.objects import ServerOption
from quorate_cli.copies.agent_question import Asked
from quorate_cli.copies.rows_aside import (
    DELETED,
    Differing,
    Rows,
    find_differing,
    find_primary,
    rows_aside,
)
from quorate_cli.dev.commands import FolderOption, dev_cluster
from quorate_cli.objects import resources
from quorate_cli.objects.cluster_state import ClusterState, fetch_state
from quorate_cli.objects.operator_api import OperatorApi, parse_server
from quorate_cli.objects.resources import STORAGE_CLUSTER, ZONE
from quorate_cli.objects.status_view import moment, size
from quorate_cli.processes.cluster_folder import DEFAULT_FOLDER, ClusterFolder
from quorate_cli.terminal.options import JsonLinesOption, JsonOption, ZoneArgument
from quorate_cli.terminal.problem import Problem

SHOWN_CHARACTERS = 100
aside = typer.Typer(no_args_is_help=True, help="Show rows that were set aside after a reset.")


class Found(NamedTuple):
    """Rows of one copy that one agent has set aside."""

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


@aside.command("list")
def list_aside(
    zone: Annotated[str | None, typer.Argument(metavar="[ZONE]")] = None,
    server: ServerOption = None,
    folder: FolderOption = DEFAULT_FOLDER,
    as_json: JsonOption = False,
) -> None:
    """List the rows that agents have set aside, and when they are dropped."""
    api = parse_server(server, ClusterFolder(folder)) if server else dev_cluster(folder).api()
    found: list[Found] = []
    unasked: dict[str, str] = {}
    for state in [_state(api, zone)] if zone else _states(api):
        agents = _agents(state, folder)
        # The operator knows of those that are online where there is something.
        for name in [zone] if zone else [each.name for each in state.zones if each.aside]:
            in_zone, silent = _find(agents, name)
            found += in_zone
            unasked |= silent
        if not zone:
            unasked |= {node.name: "it is not online" for node in state.nodes if not node.online}
    if as_json:
        whole = {"aside": [each.as_json for each in found], "unasked": unasked}
        typer.echo(msgspec.json.format(msgspec.json.encode(whole), indent=2).decode())
        return
    for each in found:
        typer.echo(_sentence(each))
    if not found:
        typer.echo("nothing is set aside")
    _warn(unasked)


@aside.command()
def show(
    zone: ZoneArgument,
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0)],
    agent: Annotated[str | None, typer.Option(help="Only what this agent has set aside.")] = None,
    key: Annotated[str | None, typer.Option(help="Only this key, however long its value.")] = None,
    differs: Annotated[
        bool, typer.Option("--differs", help="Only what differs from the zone's present rows.")
    ] = False,
    server: ServerOption = None,
    folder: FolderOption = DEFAULT_FOLDER,
    as_json: JsonLinesOption = False,
) -> None:
    """Show rows of a partition that were set aside: keys and values."""
    api = parse_server(server, ClusterFolder(folder)) if server else dev_cluster(folder).api()
    agents = _agents(_state(api, zone), folder)
    everywhere, unasked = _find(agents, zone)
    found = [
        each
        for each in everywhere
        if each.rows.partition == partition and agent in (None, each.agent.node)
    ]
    _warn(unasked)
    if not found:
        where = f" by {agent}" if agent else ""
        raise Problem(
            f"zone {zone}, partition {partition}: nothing is set aside{where}:"
            f" see `quorate aside list {zone}`"
        )
    wanted = os.fsencode(key) if key is not None else None
    there = [each for each in agents if each.node not in unasked]
    primary = find_primary(there, zone, partition) if differs else None
    for each in found:
        if not as_json:
            typer.echo(_sentence(each))
        for row in _rows(each, primary, wanted):
            if as_json:
                line = msgspec.json.encode(_row_json(each, row, differs)).decode()
            else:
                line = _line(row, differs, key is not None)
            typer.echo(line)


def _find(agents: Sequence[Asked], zone: str) -> tuple[list[Found], dict[str, str]]:
    """Return what is set aside of a zone, and why some agents did not tell."""
    found: list[Found] = []
    unasked: dict[str, str] = {}
    for agent in agents:
        try:
            found += [Found(zone, agent, rows) for rows in rows_aside(agent, zone)]
        except Problem as problem:
            unasked[agent.node] = str(problem)
    return sorted(found, key=lambda each: (each.rows.partition, each.agent.node)), unasked


def _state(api: OperatorApi, zone: str) -> ClusterState:
    """Return the state of the zone's cluster."""
    return fetch_state(api, resources.zone(resources.fetch(api, ZONE, zone)).spec.cluster_ref.name)


def _states(api: OperatorApi) -> list[ClusterState]:
    clusters = resources.fetch_all(api, STORAGE_CLUSTER)
    return [fetch_state(api, resources.name_of(whole)) for whole in clusters]


def _agents(state: ClusterState, folder: Path) -> list[Asked]:
    secret_file = ClusterFolder(folder).secret_file(state.cluster)
    return [
        Asked(*split_address(node.address), state.cluster, node.name, secret_file)
        for node in state.nodes
    ]


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


def _warn(unasked: dict[str, str]) -> None:
    for node, why in unasked.items():
        typer.echo(f"{node}: what it has set aside is unknown: {why}", err=True)
