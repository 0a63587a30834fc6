"""`quorate repair`: gives all copies of a key the same row again, by a strategy of a person's.

Without --execute it validates the zone and writes a plan, which changes nothing.  With it, exactly
that plan is executed.  Both run as a process of their own (quorate_spark.repair).
"""

import enum
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from quorate.wire.jobs.repair_result import RepairStrategy
from quorate_cli.commands.objects import ServerOption, check_all_run
from quorate_cli.copies.validation import IfKilled, run_validation, tool_command
from quorate_cli.dev.commands import FolderOption, dev_cluster
from quorate_cli.objects import resources
from quorate_cli.objects.operator_api import parse_server
from quorate_cli.objects.resources import STORAGE_CLUSTER, ZONE
from quorate_cli.processes.cluster_folder import DEFAULT_FOLDER, ClusterFolder
from quorate_cli.terminal.options import JsonOption, LimitOption, ZoneArgument, limit_words
from quorate_cli.terminal.problem import Problem
from quorate_cli.terminal.teller import PlainConsole

console = PlainConsole()


class RepairLevel(enum.StrEnum):
    """The depth to which copies are compared for a plan."""

    DIGEST = "digest"
    ROWS = "rows"


def repair(
    zone: ZoneArgument,
    strategy: Annotated[
        RepairStrategy | None, typer.Option(help="Rule by which the row of each key is chosen.")
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="File to which the plan is written. Default: repair-ZONE.parquet."),
    ] = None,
    execute: Annotated[
        Path | None, typer.Option(help="Plan to execute. Without it nothing is changed.")
    ] = None,
    level: Annotated[
        RepairLevel, typer.Option(help="How deeply copies are compared for the plan.")
    ] = RepairLevel.ROWS,
    limit: LimitOption = None,
    server: ServerOption = None,
    folder: FolderOption = DEFAULT_FOLDER,
    as_json: JsonOption = False,
) -> None:
    """Give all copies of each key that differs the same row again.

    With --strategy it writes a plan and changes nothing; the exit code is as of validate.

    With --execute it executes a plan: 0 if all its keys are repaired, 1 if not, 2 if it did not.
    """
    try:
        options = [*_options(zone, strategy, plan, execute, level), *limit_words(limit)]
        if server is None:
            check_all_run(ClusterFolder(folder))
        command = _command(zone, server, folder, options)
        if as_json:
            command.append("--json")
        elif execute is None and console.is_terminal and level is RepairLevel.ROWS:
            console.print(
                "Spark starts and reads every copy, in half a minute or more …", style="dim"
            )
    except Problem as problem:
        raise Problem(str(problem), 2) from problem  # 1 would say that keys differ
    raise typer.Exit(run_validation(command, if_killed=_if_killed(execute)))


def _if_killed(execute: Path | None) -> IfKilled:
    if execute is None:
        return IfKilled("nothing was changed")
    return IfKilled(f"some keys may be repaired: execute {quote(str(execute))} again", 1)


def _options(
    zone: str,
    strategy: RepairStrategy | None,
    plan: Path | None,
    execute: Path | None,
    level: RepairLevel,
) -> list[str]:
    """Return the options for either use.  Raises Problem if they are of both."""
    if execute is not None:
        if strategy is not None or plan is not None:
            raise Problem(
                "--execute takes a plan as it is: leave out --strategy and --plan, or leave out"
                " --execute to make another plan"
            )
        return ["--execute", str(execute)]
    if strategy is None:
        raise Problem(
            f"write --strategy and one of {', '.join(RepairStrategy)} to make a plan, or --execute"
            " and the file of a plan"
        )
    file = plan if plan is not None else Path(f"repair-{zone}.parquet")
    return ["--strategy", strategy, "--plan", str(file), "--level", level]


def _command(zone: str, server: str | None, folder: Path, options: list[str]) -> list[str]:
    api = parse_server(server, ClusterFolder(folder)) if server else dev_cluster(folder).api()
    found = resources.zone(resources.fetch(api, ZONE, zone))
    cluster = found.spec.cluster_ref.name
    agents = resources.cluster(resources.fetch(api, STORAGE_CLUSTER, cluster)).spec.dialed
    return tool_command(
        "repair",
        zone,
        cluster,
        ClusterFolder(folder).secret_file(cluster),
        agents,
        ClusterFolder(folder).work,
        found.spec.partitions,
        found.spec.replicas,
        *("--zone-uid", found.metadata.uid),
        *options,
    )
