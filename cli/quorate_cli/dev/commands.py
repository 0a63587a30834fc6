"""`quorate dev …`: a whole cluster of real processes on this machine, without Kubernetes."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
from quorate_cli.dev.monitoring import scrape_configuration
from quorate_cli.dev.process_states import process_states
from quorate_cli.dev.recover import recover_metastore
from quorate_cli.objects.serving import how_to_connect
from quorate_cli.objects.status_view import unrecorded_sentence
from quorate_cli.processes.cluster_folder import (
    DEFAULT_FOLDER,
    FOLDER_VARIABLE,
    OPERATOR,
    ClusterFolder,
)
from quorate_cli.terminal.options import JsonOption
from quorate_cli.terminal.problem import Problem
from quorate_cli.terminal.teller import PlainConsole, Teller

app = typer.Typer(no_args_is_help=True, help="Run a cluster of real processes on this machine.")
console = PlainConsole()
teller = Teller()

FolderOption = Annotated[
    Path,
    typer.Option("--folder", envvar=FOLDER_VARIABLE, help="Folder of the development cluster."),
]
TimeoutOption = Annotated[
    float, typer.Option(min=0, help="Seconds in which an agent's copies must have moved away.")
]
NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Process: agent-1, agent-2, … or operator.")
]


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
        int | None, typer.Option(help="Number of agents of a new cluster.", show_default="3")
    ] = None,
    client_port_base: Annotated[
        int | None,
        typer.Option(
            min=1024,
            max=65000,
            help="First client port.",
            show_default="7000, or 7100, … if that is taken",
        ),
    ] = None,
    debug_commands: Annotated[
        bool | None, typer.Option(help="Let agents accept `quorate debug damage`.")
    ] = None,
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds to wait until zones serve; 0: do not wait.")
    ] = START_S,
    monitoring: Annotated[
        bool, typer.Option("--monitoring", help="Print a configuration for Prometheus.")
    ] = False,
) -> None:
    """Create the cluster if it is new, and start every process that is not running.

    Data of an earlier `down` is used again.  Returns when every zone serves; if one does not in
    time, prints the reason and exits with 1.
    """
    cluster = dev_cluster(folder)
    cluster.up(name, agents, client_port_base, debug_commands, wait)
    _print_states(cluster, teller)
    for line in how_to_connect(cluster.state()).values():
        teller.print(line, soft_wrap=True)
    if not cluster.has_zones():
        teller.print("no zone yet; declare one: quorate apply -f examples/zone.yaml")
    if monitoring:
        teller.print(scrape_configuration(cluster.folder), soft_wrap=True)


@app.command()
def down(
    folder: FolderOption = DEFAULT_FOLDER,
    delete_data: Annotated[bool, typer.Option(help="Also delete the folder.")] = False,
) -> None:
    """Stop every process.  The data is kept for the next `up`."""
    cluster = dev_cluster(folder)
    cluster.down(delete_data)
    if delete_data:
        left = cluster.folder.left()
        said = f"the cluster is deleted; left are: {', '.join(left)}" if left else "deleted"
        console.print(f"folder {cluster.folder.path}: {said}")


@app.command()
def status(folder: FolderOption = DEFAULT_FOLDER, as_json: JsonOption = False) -> None:
    """Show the processes, their ports, and why one is not running."""
    cluster = dev_cluster(folder)
    if as_json:
        typer.echo(dev_status_json(cluster.folder))
    else:
        _print_states(cluster, console)


@app.command()
def recover(folder: FolderOption = DEFAULT_FOLDER) -> None:
    """Rebuild the operator's file from the agents' data if it is lost, damaged or too old."""
    for sentence in recover_metastore(dev_cluster(folder)):
        console.print(sentence)


@app.command()
def kill(name: NameArgument, folder: FolderOption = DEFAULT_FOLDER) -> None:
    """Kill one process by SIGKILL, as in a crash.  `quorate dev start NAME` starts it again."""
    dev_cluster(folder).kill(name)
    teller.print(f"{name}: killed")


@app.command()
def stop(name: NameArgument, folder: FolderOption = DEFAULT_FOLDER) -> None:
    """Stop one process.  An agent hands its primaries over first."""
    dev_cluster(folder).stop(name)


@app.command()
def start(
    name: NameArgument,
    folder: FolderOption = DEFAULT_FOLDER,
    set_aside: Annotated[
        bool,
        typer.Option(
            "--set-aside",
            help="Set the agent's damaged data aside and start it with a new store, which the other"
            " agents fill. Refused if they cannot.",
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
    """Restore the data that agents set aside last, if every partition is LOST without it.

    Writes acknowledged after that data was set aside are lost.  Nothing else can bring data back.
    """
    dev_cluster(folder).put_back()


@app.command()
def restart(name: NameArgument, folder: FolderOption = DEFAULT_FOLDER) -> None:
    """Stop one process and start it again."""
    dev_cluster(folder).restart(name)


@app.command()
def add(folder: FolderOption = DEFAULT_FOLDER) -> None:
    """Start one more agent.  Data moves onto it by itself (`quorate status --watch`)."""
    name = dev_cluster(folder).add()
    console.print(f"{name}: joined; `quorate status --watch` shows data moving onto it")


@app.command()
def remove(
    name: NameArgument,
    folder: FolderOption = DEFAULT_FOLDER,
    timeout: TimeoutOption = 300.0,
) -> None:
    """Move every copy off an agent, then stop it and delete its data."""
    with _moving_off() as told:
        dev_cluster(folder).remove(name, timeout, partial(told, name))
    console.print(f"{name}: removed with its data; other agents have all its copies")


@app.command()
def scale(
    agents: Annotated[int, typer.Argument(help="Number of agents wanted.")],
    folder: FolderOption = DEFAULT_FOLDER,
    timeout: TimeoutOption = 300.0,
) -> None:
    """Add agents, or remove the last ones as `remove` does, until there are AGENTS."""
    check_count("AGENTS", agents)
    cluster = dev_cluster(folder)
    while len(present := cluster.folder.read().agents) < agents:
        console.print(f"{cluster.add()}: joined")
    for agent in reversed(present[agents:]):
        with _moving_off() as told:
            cluster.remove(agent.name, timeout, partial(told, agent.name))
        console.print(f"{agent.name}: removed with its data; other agents have all its copies")


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
        int, typer.Option("--lines", "-n", min=1, help="Number of last lines to print.")
    ] = 50,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new lines until Ctrl-C.")
    ] = False,
) -> None:
    """Print the log of one process."""
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
        raise Problem(f"{name} has logged nothing yet: {log} does not exist") from None


def _log_line(line: str) -> Text:
    """Return a JSON line as a person reads it: time, level, message, and the rest."""
    try:
        fields = msgspec.json.decode(line, type=dict[str, object])
    except msgspec.MsgspecError:
        return Text(line.rstrip("\n"))
    for known in ("cluster", "agent"):  # whose log it is
        fields.pop(known, None)
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
    with suppress(Problem):  # the operator does not run, which is told above
        if said := unrecorded_sentence(cluster.state().nodes):
            to.print(Text(said, "yellow"), soft_wrap=True)
