"""`quorate dev …`: a whole cluster of real processes on this machine, without Kubernetes."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from quorate_cli.dev.dev_cluster import DevCluster, check_count
from quorate_cli.dev.json_output import dev_status_json
from quorate_cli.dev.membership import START_S
from quorate_cli.dev.process_states import process_states
from quorate_cli.dev.recover import recover_metastore
from quorate_cli.objects.serving import how_to_connect
from quorate_cli.processes.cluster_folder import DEFAULT_FOLDER, OPERATOR, ClusterFolder
from quorate_cli.terminal.problem import Problem
from quorate_cli.terminal.teller import Teller

app = typer.Typer(no_args_is_help=True, help="A cluster of real processes on this machine.")
console = Console(highlight=False)
teller = Teller(highlight=False)

FolderOption = Annotated[
    Path,
    typer.Option("--folder", envvar="QUORATE_FOLDER", help="Folder of the development cluster."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="For programs: docs/json.md names the keys.")
]
TimeoutOption = Annotated[
    float, typer.Option(min=0, help="Seconds the copies of an agent have to move away.")
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="agent-1, …, or operator.")]


def dev_cluster(folder: Path) -> DevCluster:
    """Return the cluster of `folder`; it prints what it does."""
    return DevCluster(ClusterFolder(folder), teller.print)


@app.command()
def up(
    folder: FolderOption = DEFAULT_FOLDER,
    name: Annotated[
        str | None, typer.Option(help="Name of a new cluster.", show_default="main")
    ] = None,
    agents: Annotated[
        int | None, typer.Option(help="Agents of a new cluster.", show_default="3")
    ] = None,
    client_port_base: Annotated[
        int | None,
        typer.Option(
            min=1024,
            max=65000,
            help="First port for clients of zones.",
            show_default="7000, or 7100, … where others listen",
        ),
    ] = None,
    debug_commands: Annotated[
        bool | None, typer.Option(help="Let agents obey `quorate debug damage`.")
    ] = None,
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds to wait until zones serve; 0: do not.")
    ] = START_S,
) -> None:
    """Start the cluster, or what of it is not running; data of an earlier `down` is there again.

    Ends when every zone serves, or with 1 and what is missing.
    """
    cluster = dev_cluster(folder)
    cluster.up(name, agents, client_port_base, debug_commands, wait)
    _print_states(cluster, teller)
    for line in how_to_connect(cluster.state()).values():
        teller.print(line, soft_wrap=True)
    if not cluster.has_zones():
        teller.print("next: quorate apply -f examples/zone.yaml")


@app.command()
def down(
    folder: FolderOption = DEFAULT_FOLDER,
    delete_data: Annotated[bool, typer.Option(help="Delete the folder too.")] = False,
) -> None:
    """Stop every process.  The data stays for the next `up`."""
    cluster = dev_cluster(folder)
    cluster.down()
    if delete_data:
        cluster.folder.delete()
        console.print(f"folder {cluster.folder.path} deleted")


@app.command()
def status(folder: FolderOption = DEFAULT_FOLDER, as_json: JsonOption = False) -> None:
    """Which processes run, and where they listen; why one does not."""
    cluster = dev_cluster(folder)
    if as_json:
        typer.echo(dev_status_json(cluster.folder))
    else:
        _print_states(cluster, console)


@app.command()
def recover(folder: FolderOption = DEFAULT_FOLDER) -> None:
    """Rebuild the operator's file, lost, damaged or too old, from what the agents store."""
    for sentence in recover_metastore(dev_cluster(folder)):
        console.print(sentence)


@app.command()
def kill(name: NameArgument, folder: FolderOption = DEFAULT_FOLDER) -> None:
    """SIGKILL one process, as in a crash.  `quorate dev start NAME` brings it back."""
    dev_cluster(folder).kill(name)
    teller.print(f"{name}: killed")


@app.command()
def stop(name: NameArgument, folder: FolderOption = DEFAULT_FOLDER) -> None:
    """Stop one process; an agent hands its primaries over first."""
    dev_cluster(folder).stop(name)


@app.command()
def start(
    name: NameArgument,
    folder: FolderOption = DEFAULT_FOLDER,
    set_aside: Annotated[
        bool,
        typer.Option(
            "--set-aside",
            help="Of an agent: keep its damaged data aside, start over a new store that the other"
            " agents fill; refused where they could not.",
        ),
    ] = False,
) -> None:
    """Start one process that is not running."""
    cluster = dev_cluster(folder)
    if set_aside:
        cluster.set_aside(name)
    cluster.start(name)


@app.command("put-back")
def put_back(folder: FolderOption = DEFAULT_FOLDER) -> None:
    """Put back what the agents set aside last, when every partition is LOST without it.

    What was answered since those folders were as they are is missing; nothing else brings any back.
    """
    dev_cluster(folder).put_back()


@app.command()
def restart(name: NameArgument, folder: FolderOption = DEFAULT_FOLDER) -> None:
    """Stop one process and start it again."""
    cluster = dev_cluster(folder)
    cluster.stop(name)
    cluster.start(name)


@app.command()
def add(folder: FolderOption = DEFAULT_FOLDER) -> None:
    """Start one more agent; data moves onto it by itself (`quorate status --watch`)."""
    name = dev_cluster(folder).add()
    console.print(f"{name} is a member; `quorate status --watch` shows data moving onto it")


@app.command()
def remove(
    name: NameArgument,
    folder: FolderOption = DEFAULT_FOLDER,
    timeout: TimeoutOption = 300.0,
) -> None:
    """Move every copy off an agent, then stop it and delete its data; or say why not."""
    with _moving_off() as told:
        dev_cluster(folder).remove(name, timeout, partial(told, name))
    console.print(f"{name}: removed with its data; every copy is elsewhere")


@app.command()
def scale(
    agents: Annotated[int, typer.Argument(help="How many agents there are to be.")],
    folder: FolderOption = DEFAULT_FOLDER,
    timeout: TimeoutOption = 300.0,
) -> None:
    """Add agents, or remove the last ones as `remove` does, until there are so many."""
    check_count("AGENTS", agents)
    cluster = dev_cluster(folder)
    while len(present := cluster.folder.read().agents) < agents:
        console.print(f"{cluster.add()} is a member")
    for agent in reversed(present[agents:]):
        with _moving_off() as told:
            cluster.remove(agent.name, timeout, partial(told, agent.name))
        console.print(f"{agent.name}: removed with its data; every copy is elsewhere")


@contextmanager
def _moving_off() -> Iterator[Callable[[str, int, int], None]]:
    """Show how many copies have left an agent.

    The function yielded takes the agent's name, how many copies there were, and how many are left.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("moving copies", total=None)

        def tell(name: str, first: int, left: int) -> None:
            about = f"moving copies off {name}"
            progress.update(task, description=about, total=first, completed=first - left)

        yield tell


@app.command()
def logs(
    name: NameArgument = OPERATOR,
    folder: FolderOption = DEFAULT_FOLDER,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=1, help="How many of the last lines.")
    ] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines.")] = False,
) -> None:
    """What a process said."""
    cluster = dev_cluster(folder)
    cluster.check_known(name)
    log = cluster.folder.log(name)
    try:
        with log.open(errors="replace") as file:
            for line in file.readlines()[-lines:]:
                console.print(_log_line(line), soft_wrap=True)
            while follow:
                line = file.readline()
                if line:
                    console.print(_log_line(line), soft_wrap=True)
                else:
                    time.sleep(0.2)
    except FileNotFoundError:
        raise Problem(f"{name} has said nothing yet: there is no {log}") from None


def _log_line(line: str) -> Text:
    """Return a JSON line as a person reads it: time, level, message, and the rest."""
    try:
        fields = msgspec.json.decode(line, type=dict[str, object])
    except msgspec.MsgspecError:
        return Text(line.rstrip("\n"))
    level = str(fields.pop("level", "")).upper()
    style = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}.get(level, "")
    moment = fields.pop("time", fields.pop("timestamp", fields.pop("ts", "")))
    text = Text(f"{moment} {level:7} {fields.pop('message', '')}", style)
    rest = " ".join(f"{key}={value}" for key, value in fields.items() if value not in ("", None))
    return text.append(f"  {rest}", "dim") if rest else text


def _print_states(cluster: DevCluster, to: Console) -> None:
    states = process_states(cluster.folder)
    table = Table(
        title=f"{cluster.folder.read().cluster} in {cluster.folder.path}", title_justify="left"
    )
    for heading in ("process", "pid", "listens", "log"):
        table.add_column(heading, overflow="fold")
    for state in states:
        log = cluster.folder.log(state.name).relative_to(cluster.folder.path)
        pid = Text("not running", "red") if state.pid is None else Text(str(state.pid), "green")
        listens = ", ".join(f"{what} {where}" for what, where in state.listens.items())
        table.add_row(state.name, pid, listens, str(log))
    to.print(table)
    for state in states:
        if state.reason:
            to.print(Text(f"{state.name}: {state.reason}", "red"), soft_wrap=True)
    for agent in cluster.folder.read().agents:
        for kept in cluster.folder.set_aside(agent.name):
            to.print(Text(kept, "yellow"), soft_wrap=True)
