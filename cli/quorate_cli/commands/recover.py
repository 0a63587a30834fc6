"""`quorate recover`: what a person decides where a zone does not help itself."""

from typing import Annotated
from urllib.parse import quote

import typer
from rich.console import Console

from quorate.protocol.status import Cancellation
from quorate_cli.commands.objects import ServerOption
from quorate_cli.dev.commands import FolderOption, dev_cluster
from quorate_cli.objects.operator_api import parse_server
from quorate_cli.processes.cluster_folder import DEFAULT_FOLDER, ClusterFolder
from quorate_cli.terminal.options import ZoneArgument
from quorate_cli.terminal.problem import Problem

console = Console(highlight=False, soft_wrap=True)
recover = typer.Typer(no_args_is_help=True, help="Decide where a zone does not help itself.")


@recover.callback()
def _recover() -> None:
    """Without this, a single command would have no name."""


@recover.command()
def cancel(
    zone: ZoneArgument,
    partitions: Annotated[list[int], typer.Argument(metavar="PARTITION...", min=0)],
    versions: Annotated[
        list[int],
        typer.Option("--version", help="Row that `quorate status` shows, one per partition."),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it; else it is only shown.")] = False,
    server: ServerOption = None,
    folder: FolderOption = DEFAULT_FOLDER,
) -> None:
    """Cancel the running migrations of partitions.  Owners stay as they are.

    All of them, or none if one row has changed since it was looked at.  The same migration is tried
    again after its wait, while the target is the same.
    """
    if len(versions) != len(partitions) or len(set(partitions)) != len(partitions):
        raise Problem(
            f"zone {zone}: {len(partitions)} partitions and {len(versions)} times --version: name"
            " each partition once, and for each its row, in the same order"
        )
    api = parse_server(server, ClusterFolder(folder)) if server else dev_cluster(folder).api()
    body = {"versions": dict(zip(partitions, versions, strict=True)), "dryRun": not yes}
    done = api.ask(f"/zones/{quote(zone, safe='')}/cancel", body, Cancellation)
    what = "cancelled" if yes else "would be cancelled"
    for each in done.migrations:
        road = " > ".join(node for node in (each.source, each.destination) if node)
        console.print(f"zone {zone}, partition {each.partition}: {each.kind} {road} {what}")
    if not yes:
        console.print("nothing was changed: --yes does it")
