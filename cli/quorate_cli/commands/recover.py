"""`quorate recover`: a person's decisions about partitions that do not help themselves."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import msgspec
import typer

from quorate.protocol.recovery import Recovery, RecoveryAction, RecoveryAnswer
from quorate_cli.commands.objects import SERVER_VARIABLE, ServerOption
from quorate_cli.dev.commands import FolderOption, dev_cluster
from quorate_cli.objects.operator_api import parse_server
from quorate_cli.processes.cluster_folder import DEFAULT_FOLDER, FOLDER_VARIABLE, ClusterFolder
from quorate_cli.terminal.options import ZoneArgument
from quorate_cli.terminal.problem import Problem
from quorate_cli.terminal.teller import PlainConsole

DIGITS_MAX = 5
"""Partitions have numbers up to 16383."""

console = PlainConsole(soft_wrap=True)
HELP = "Decide where a zone does not help itself."
recover = typer.Typer(no_args_is_help=True, help=HELP)

PartitionsOption = Annotated[
    str, typer.Option("--partitions", metavar="LIST", help="For example 3,5,8-11.")
]
VersionsOption = Annotated[
    str, typer.Option("--versions", metavar="LIST", help="Rows that were shown, in that order.")
]
ToOption = Annotated[
    str, typer.Option("--to", help="Agent with the copy to go on from. Default: the freshest.")
]
NodeOption = Annotated[str, typer.Option("--node", help="Agent whose copies are restarted.")]
EraseOption = Annotated[bool, typer.Option("--erase", help="Drop the copy and make it anew.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it; else it is only shown.")]


@recover.command()
def cancel(
    zone: ZoneArgument,
    partitions: PartitionsOption,
    versions: VersionsOption = "",
    yes: YesOption = False,
    server: ServerOption = None,
    folder: FolderOption = DEFAULT_FOLDER,
) -> None:
    """Cancel the running migrations of partitions.  Owners stay as they are.

    All of them, or none if one row has changed since it was looked at.  The same migration is tried
    again after its wait, while the target is the same.
    """
    named = named_versions(zone, partitions, versions)
    _ask(zone, Recovery(RecoveryAction.CANCEL, named, dry_run=not yes), server, folder)


@recover.command()
def reset(
    zone: ZoneArgument,
    partitions: PartitionsOption,
    versions: VersionsOption = "",
    to: ToOption = "",
    yes: YesOption = False,
    server: ServerOption = None,
    folder: FolderOption = DEFAULT_FOLDER,
) -> None:
    """Narrow partitions whose majority is lost to one copy.  What only the others had is lost.

    All of them, or none if one row has changed since it was looked at.  The agents that are given
    up must be stopped: where they reach each other, they may go on serving.
    """
    named = named_versions(zone, partitions, versions)
    _ask(zone, Recovery(RecoveryAction.RESET, named, to, dry_run=not yes), server, folder)


@recover.command()
def reopen(
    zone: ZoneArgument,
    partitions: PartitionsOption,
    versions: VersionsOption = "",
    yes: YesOption = False,
    server: ServerOption = None,
    folder: FolderOption = DEFAULT_FOLDER,
) -> None:
    """Have LOST partitions begin again without data.

    All of them, or none if one row has changed since it was looked at, or a copy may still exist.
    """
    named = named_versions(zone, partitions, versions)
    _ask(zone, Recovery(RecoveryAction.REOPEN, named, dry_run=not yes), server, folder)


@recover.command()
def rebuild(
    zone: ZoneArgument,
    partitions: PartitionsOption,
    versions: VersionsOption = "",
    yes: YesOption = False,
    server: ServerOption = None,
    folder: FolderOption = DEFAULT_FOLDER,
) -> None:
    """Discard rows that are set aside as invalid, and make them from what agents know.

    All of them, or none if one is valid, has changed since it was looked at, or if too few agents
    have told what they know.
    """
    named = named_versions(zone, partitions, versions)
    _ask(zone, Recovery(RecoveryAction.REBUILD, named, dry_run=not yes), server, folder)


@recover.command()
def restart(
    zone: ZoneArgument,
    partitions: PartitionsOption,
    node: NodeOption,
    versions: VersionsOption = "",
    erase: EraseOption = False,
    yes: YesOption = False,
    server: ServerOption = None,
    folder: FolderOption = DEFAULT_FOLDER,
) -> None:
    """Have an agent's copies of partitions promise and catch up anew, in a new term.

    All of them, or none if one row has changed since it was looked at, or if a copy may be the last
    healthy one.  A primary hands its role to another owner.
    """
    named = named_versions(zone, partitions, versions)
    asked = Recovery(RecoveryAction.RESTART, named, node, erase, dry_run=not yes)
    _ask(zone, asked, server, folder)


def _ask(zone: str, asked: Recovery, server: str | None, folder: Path) -> None:
    """Have the operator do it; print what it did, or how to have it done."""
    api = parse_server(server, ClusterFolder(folder)) if server else dev_cluster(folder).api()
    body = msgspec.to_builtins(asked, str_keys=True)
    answer = api.ask(f"/zones/{quote(zone, safe='')}/recover", body, RecoveryAnswer)
    print_answer(zone, asked, answer, "quorate", _cluster_options(server, folder))


def _cluster_options(server: str | None, folder: Path) -> list[str]:
    """Return the options that name the same cluster in another command."""
    options = ["--server", server] if server else []
    # With one of these set, no option would mean another folder, or a server.
    is_set = SERVER_VARIABLE in os.environ or FOLDER_VARIABLE in os.environ
    is_default = folder == DEFAULT_FOLDER and not is_set
    return options if is_default else [*options, "--folder", str(folder)]


def print_answer(
    zone: str, asked: Recovery, answer: RecoveryAnswer, program: str, options: Sequence[str] = ()
) -> None:
    """Print the effect on each partition, and after a dry run the command that does it.

    `program`, `options`: the command line that asked, without the decision.
    """
    for each in answer.partitions:
        console.print(
            f"zone {zone}, partition {each.partition} (row {each.version}): {each.sentence}"
        )
    if asked.dry_run:
        command = shlex.join([*_command(zone, asked, answer), *options, "--yes"])
        console.print(f"nothing was changed; this does it:\n  {program} {command}")


def _command(zone: str, asked: Recovery, answer: RecoveryAnswer) -> list[str]:
    """Return the words that have done what was shown, without confirmation."""
    partitions = ",".join(str(each.partition) for each in answer.partitions)
    versions = ",".join(str(each.version) for each in answer.partitions)
    words = ["recover", asked.action.lower(), zone]
    words += ["--partitions", partitions, "--versions", versions]
    if asked.node:
        words += ["--to" if asked.action is RecoveryAction.RESET else "--node", asked.node]
    return [*words, "--erase"] if asked.erase else words


def named_versions(zone: str, partitions: str, versions: str) -> dict[int, int]:
    """Return the row version that was named for each partition, 0 without `versions`."""
    named = _numbers("--partitions", partitions)
    rows = _numbers("--versions", versions) if versions else [0] * len(named)
    if len(set(named)) != len(named):
        raise Problem(f"zone {zone}: --partitions {partitions}: name each partition once")
    if len(rows) != len(named):
        raise Problem(
            f"zone {zone}: --partitions {partitions} names {len(named)} partitions and --versions"
            f" {versions} {len(rows)} rows: name the row of each partition, in the same order"
        )
    return dict(zip(named, rows, strict=True))


def _numbers(option: str, text: str) -> list[int]:
    """Return the numbers of a list like 3,5,8-11."""
    numbers: list[int] = []
    for word in text.split(","):
        first, dash, last = word.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise Problem(f"{option} {text}: {word!r} is no number: write for example 3,5,8-11")
        if int(last or first) < int(first) or len(last) > DIGITS_MAX:
            raise Problem(f"{option} {text}: {word!r} is no range: write for example 8-11")
        numbers += range(int(first), int(last or first) + 1)
    return numbers
