"""`quorate aside`: lists and shows rows that were set aside because a reset left them."""

import os
from pathlib import Path

import typer

from quorate.facts.addresses import split_address
from quorate_cli.commands.objects import ServerOption
from quorate_cli.copies.agent_question import Asked
from quorate_cli.copies.aside_view import Found, Wanted, find_aside, print_list, print_rows
from quorate_cli.dev.commands import FolderOption, dev_cluster
from quorate_cli.objects import resources
from quorate_cli.objects.cluster_state import ClusterState, fetch_state
from quorate_cli.objects.operator_api import OperatorApi, parse_server
from quorate_cli.objects.resources import STORAGE_CLUSTER, ZONE
from quorate_cli.processes.cluster_folder import DEFAULT_FOLDER, ClusterFolder
from quorate_cli.terminal.options import (
    AsideAgentOption,
    AsideZoneArgument,
    DiffersOption,
    JsonLinesOption,
    JsonOption,
    KeyOption,
    PartitionArgument,
    ZoneArgument,
)

HELP = "Show rows that were set aside after a reset."
aside = typer.Typer(no_args_is_help=True, help=HELP)


@aside.command("list")
def list_aside(
    zone: AsideZoneArgument = None,
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
            in_zone, silent = find_aside(agents, name)
            found += in_zone
            unasked |= silent
        if not zone:
            unasked |= {node.name: "it is not online" for node in state.nodes if not node.online}
    print_list(found, unasked, as_json)


@aside.command()
def show(
    zone: ZoneArgument,
    partition: PartitionArgument,
    agent: AsideAgentOption = None,
    key: KeyOption = None,
    differs: DiffersOption = False,
    server: ServerOption = None,
    folder: FolderOption = DEFAULT_FOLDER,
    as_json: JsonLinesOption = False,
) -> None:
    """Show rows of a partition that were set aside: keys and values."""
    api = parse_server(server, ClusterFolder(folder)) if server else dev_cluster(folder).api()
    named = os.fsencode(key) if key is not None else None
    wanted = Wanted(zone, partition, agent, named, differs)
    print_rows(_agents(_state(api, zone), folder), wanted, as_json)


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
