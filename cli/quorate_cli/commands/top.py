"""`quorate top`: what a development cluster does, live, from its processes' metrics."""

import time
from collections.abc import Callable
from typing import Annotated

import msgspec
import typer
from rich.console import Console, RenderableType
from rich.live import Live

from quorate_cli.dev.commands import FolderOption, dev_cluster
from quorate_cli.dev.process_states import process_states
from quorate_cli.objects.load import Reading, Samples, load_between, parse
from quorate_cli.objects.load_view import load_view
from quorate_cli.processes.agent_metrics import fetch_metrics
from quorate_cli.processes.cluster_folder import DEFAULT_FOLDER, OPERATOR, ClusterFolder
from quorate_cli.terminal.options import JsonOption
from quorate_cli.terminal.problem import Problem
from quorate_cli.terminal.teller import PlainConsole

console = PlainConsole()

INTERVAL_S = 2.0

IntervalOption = Annotated[
    float, typer.Option("--interval", min=0.1, max=3600, help="Seconds between two readings.")
]
OnceOption = Annotated[bool, typer.Option("--once", help="Print one interval, then end.")]


def top(
    once: OnceOption = False,
    interval: IntervalOption = INTERVAL_S,
    as_json: JsonOption = False,
    folder: FolderOption = DEFAULT_FOLDER,
) -> None:
    """Show what the cluster does: rates, times, lags, migrations, memory; until Ctrl-C.

    Rates and times are those of the last interval.  `--json` prints one interval."""
    dev_cluster(folder)  # says what is wrong with the folder
    cluster = ClusterFolder(folder)
    watch(lambda: read(cluster), interval, console, once=once, as_json=as_json)


def watch(
    reading: Callable[[], Reading],
    interval_s: float,
    to: Console,
    *,
    once: bool,
    as_json: bool,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Show interval after interval, or one."""
    before = reading()
    sleep(interval_s)
    after = reading()
    if once or as_json:
        load = load_between(before, after)
        if as_json:
            typer.echo(msgspec.json.encode(load))
        else:
            to.print(load_view(load))
        return
    with Live(console=to, auto_refresh=False) as live:
        while True:
            seen: RenderableType = load_view(load_between(before, after))
            live.update(seen, refresh=True)
            sleep(interval_s)
            before, after = after, reading()


def read(cluster: ClusterFolder) -> Reading:
    """Read the metrics of every process; what cannot be read is left out, with the reason."""
    found: dict[str, Samples] = {}
    problems: dict[str, str] = {}
    for state in process_states(cluster):
        where = state.listens.get("API" if state.name == OPERATOR else "admin")
        if state.pid is None or where is None:
            problems[state.name] = state.reason or "it does not run"
            continue
        host, _, port = where.rpartition(":")
        try:
            found[state.name] = parse(fetch_metrics(host, int(port)))
        except Problem as problem:
            problems[state.name] = str(problem)
    operator = found.pop(OPERATOR, {})
    why = problems.pop(OPERATOR, "")
    return Reading(time.monotonic(), found, operator, problems, why)
