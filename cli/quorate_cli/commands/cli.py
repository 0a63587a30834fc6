"""`quorate cli ZONE …`: gives commands to a zone of this cluster only, whatever its ports."""

import os
import re
import shutil
import signal
import subprocess
import sys
from typing import Annotated, NoReturn

import typer

from quorate_cli.commands.objects import ServerOption
from quorate_cli.dev.commands import FolderOption, dev_cluster
from quorate_cli.objects import resources
from quorate_cli.objects.cluster_state import fetch_state
from quorate_cli.objects.operator_api import OperatorApi, parse_server
from quorate_cli.objects.resources import ZONE
from quorate_cli.objects.serving import client_addresses, reachable
from quorate_cli.plain_client import PlainClient, run
from quorate_cli.processes.cluster_folder import DEFAULT_FOLDER, ClusterFolder
from quorate_cli.terminal.options import ZoneArgument
from quorate_cli.terminal.problem import Problem

# All words after ZONE are the client's, even those that look like options of ours.
SETTINGS = {"allow_interspersed_args": False}


def cli(
    zone: ZoneArgument,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMAND …]",
            help="One command, or options of redis-cli; without it, commands from standard input.",
        ),
    ] = None,
    server: ServerOption = None,
    folder: FolderOption = DEFAULT_FOLDER,
) -> None:
    """Run Redis commands in a zone, with redis-cli if it is installed, else a built-in client.

    quorate cli library set greeting hello

    The exit code is 1 if a reply is an error or an outcome is unknown.  The built-in client tells
    that also where redis-cli does not: commands from a pipe, redis-cli before version 7.  At a
    terminal, and with options of redis-cli, it is the exit code of redis-cli.

    Options of `quorate` come before ZONE.
    """
    api = parse_server(server, ClusterFolder(folder)) if server else dev_cluster(folder).api()
    host, port = _address(api, zone)
    words = command or []
    program = shutil.which("redis-cli")
    if program is not None and (options := _options(program, words)) is not None:
        _become_redis_cli(program, host, port, [*options, *words])
    raise typer.Exit(0 if _run_plainly(host, port, words) else 1)


def _address(api: OperatorApi, name: str) -> tuple[str, int]:
    whole = resources.fetch(api, ZONE, name)
    declared = resources.zone(whole)
    state = fetch_state(api, declared.spec.cluster_ref.name)
    zone = state.zone(name)
    if zone is None:
        said = "; ".join(each.message for each in declared.status.conditions[:1])
        raise Problem(f"zone {name} is not served: {said}")
    address = reachable(client_addresses(state, zone))
    if address is None:
        raise Problem(
            f"zone {name}: no agent accepts clients now: {zone.sentence}; `quorate status` shows"
            " which agents are online"
        )
    return address


def _options(program: str, command: list[str]) -> list[str] | None:
    """Return the options that make redis-cli tell an error by its exit code.

    None: it cannot, and no option asks for redis-cli.
    """
    if not command:
        return [] if sys.stdin.isatty() else None
    if _tells_errors(program):
        return ["-e"]
    return [] if command[0].startswith("-") else None


def _become_redis_cli(program: str, host: str, port: int, command: list[str]) -> NoReturn:
    """Become redis-cli, with this process's terminal, standard input and exit code."""
    arguments = [program, "-c", "-h", host, "-p", str(port)]
    sys.stdout.flush()
    # Python ignores SIGPIPE, and exec keeps that: `| head` would not end redis-cli.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execv(program, [*arguments, *command])


def _tells_errors(program: str) -> bool:
    """Return whether it knows -e (version 7 and later): an error reply becomes an exit code."""
    asked = subprocess.run(
        [program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    found = re.search(r"(\d+)\.\d+", asked.stdout)
    return found is not None and int(found[1]) >= 7


def _run_plainly(host: str, port: int, command: list[str]) -> bool:
    """Execute the command, or each line of standard input; return whether no reply was an error."""
    if command and command[0].startswith("-"):
        raise Problem(
            f"{command[0]} is an option of redis-cli, which is not installed: omit the option, or"
            " install redis-cli"
        )
    client = PlainClient(host, port, sys.stdout.buffer, sys.stdout.isatty())
    return run(client, [os.fsencode(word) for word in command])
