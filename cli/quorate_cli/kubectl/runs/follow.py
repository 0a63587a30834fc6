"""Creates an object that is run, and follows it to its end.

The run is the operator's and its Job's: the command looks on, and ending it ends nothing.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from quorate.wire.jobs.job_run import JobStatus, RunPhase
from quorate.wire.schema.resource import API_VERSION, NAME_LENGTH_MAX, Resource
from quorate_cli.guard import INTERRUPT_EXIT_CODE
from quorate_cli.kubectl import objects
from quorate_cli.kubectl.kube_api import KubeApi, Unreached, objects_path
from quorate_cli.kubectl.operator_lease import find_operator
from quorate_cli.kubectl.options import Place
from quorate_cli.objects.operator_api import NotThere
from quorate_cli.objects.resources import ZONE, Whole, parsed
from quorate_cli.terminal.problem import Problem

POLL_S = 1.0
UNREACHED_S = 60.0
"""How long the API server may not answer meanwhile."""
OTHERWISE = 2
"""The exit code where nothing was done, or nothing is known."""
PREFIX_MAX = NAME_LENGTH_MAX - 6
"""Of the zone's name in the object's, which the API server extends by a dash and five letters."""

Shown = Callable[[JobStatus], None]
Kind = TypeVar("Kind", bound=Resource)
Answer = TypeVar("Answer")
Spec = Mapping[str, object]


class Run(NamedTuple):
    """An object that is run.  `options`: of kubectl, for its place, as a shell reads them."""

    name: str
    options: str
    kind: str

    @property
    def about(self) -> str:
        """The object as messages name it."""
        return f"{self.kind} {self.name}"

    @property
    def how_to_look(self) -> str:
        """Commands that look at it."""
        return (
            f"kubectl get {self.about}{self.options}; end it with `kubectl delete"
            f" {self.about}{self.options}`"
        )

    @property
    def goes_on(self) -> str:
        """A sentence for a command that ends before its run."""
        return f"{self.about} goes on: {self.how_to_look}"


def run_to_end(
    api: KubeApi, zone: str, kind: type[Kind], spec: Spec, namespace: str, place: Place
) -> tuple[Run, Kind]:
    """Create an object about the zone, show how far it is, and return it when it has ended.

    Ctrl-C ends the command, and not the run.  Raises Problem.
    """
    run = _create(api, zone, kind, spec, namespace, place)
    with left_going(run.goes_on), _shown(run) as show:
        for found in looks(api, run, kind, namespace, POLL_S, UNREACHED_S):
            of_any_kind: Any = found
            status: JobStatus = of_any_kind.status
            if status.phase is not None and status.phase.is_final:
                break
            show(status)
    return run, found


def created(api: KubeApi, kind: type[Kind], manifest: Whole, namespace: str, place: Place) -> Run:
    """Create an object that is run.

    Raises Problem, which says so if it is unknown whether the object exists.
    """
    words = place.kubectl_words
    name = kind.kind_name().lower()
    unknown = (
        f"whether a {name} was created, and runs, is unknown: look before you try again:"
        f" kubectl get {kind.plural}{words}"
    )
    try:
        made = parsed(kind, api.create(objects_path(kind.plural, namespace), manifest))
    except Unreached as unreached:
        raise Problem(f"{unreached}; {unknown}") from unreached
    except KeyboardInterrupt:
        typer.echo(f"interrupted; {unknown}", err=True)
        raise typer.Exit(INTERRUPT_EXIT_CODE) from None
    return Run(made.metadata.name, words, name)


@contextmanager
def left_going(goes_on: str) -> Iterator[None]:
    """At Ctrl-C, print this sentence on what goes on without the command."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(goes_on, err=True)
        raise typer.Exit(INTERRUPT_EXIT_CODE) from None


def looks(
    api: KubeApi, run: Run, kind: type[Kind], namespace: str, poll_s: float, unreached_s: float
) -> Iterator[Kind]:
    """Yield the object again and again, without end.

    Raises Problem if it was deleted, or if the API server does not answer for `unreached_s`.
    """
    path = objects_path(kind.plural, namespace, run.name)

    def look() -> Kind:
        try:
            return parsed(kind, api.get(path))
        except NotThere as gone:
            raise Problem(f"{run.about} was deleted before its end") from gone

    return asked_again(look, run.goes_on, poll_s, unreached_s)


def asked_again(
    ask: Callable[[], Answer], goes_on: str, poll_s: float, unreached_s: float
) -> Iterator[Answer]:
    """Ask the API server again and again, without end, and yield its answers.

    Raises Problem, with the sentence `goes_on`, if it does not answer for `unreached_s`.
    """
    reached = time.monotonic()
    while True:
        try:
            found = ask()
        except Unreached as unreached:
            if time.monotonic() - reached > unreached_s:
                raise Problem(f"{unreached}; {goes_on}") from unreached
        else:
            reached = time.monotonic()
            yield found
        time.sleep(poll_s)


def print_end(
    run: Run, zone: str, outcome: str, style: str, status: JobStatus, console: Console
) -> None:
    """Print the outcome, the message, and where the whole result is."""
    console.print(Text(f"zone {zone}: "), Text(outcome, style), sep="")
    console.print(Text(status.message), soft_wrap=True)
    log = f"{run.about}; the whole result: kubectl logs job/{status.job}{run.options}"
    console.print(Text(log), soft_wrap=True)


def print_json(status: JobStatus) -> None:
    """Print the status of the object."""
    whole = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    typer.echo(msgspec.json.format(msgspec.json.encode(whole), indent=2).decode())


def _create(
    api: KubeApi, zone: str, kind: type[Kind], spec: Spec, namespace: str, place: Place
) -> Run:
    objects.fetch(api, ZONE, namespace, zone)
    operator = find_operator(api, namespace, place.operator_namespace)
    if operator.problem:
        raise Problem(f"zone {zone}: {operator.problem}; nothing was created")
    manifest: Whole = {
        "apiVersion": API_VERSION,
        "kind": kind.kind_name(),
        "metadata": {"generateName": f"{zone[:PREFIX_MAX]}-"},
        "spec": {"zoneRef": {"name": zone}, **spec},
    }
    return created(api, kind, manifest, namespace, place)


@contextmanager
def _shown(run: Run) -> Iterator[Shown]:
    """Yield what shows how far the run is: a bar on a terminal, elsewhere a line for each phase."""
    if not sys.stderr.isatty():
        yield _Lines(run)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(
        *columns,
        TimeElapsedColumn(),
        console=Console(stderr=True),
        refresh_per_second=2,
        transient=True,
    ) as bar:
        task = bar.add_task(run.name, total=None)

        def show(status: JobStatus) -> None:
            about = Text(f"{run.name}: {_state(status)}").markup
            if status.percent is None:
                bar.update(task, description=about)
            else:
                bar.update(task, description=about, total=100, completed=status.percent)

        yield show


class _Lines:
    """Prints on standard error what has changed, without percentages."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._last = ""

    def __call__(self, status: JobStatus) -> None:
        line = f"{self._run.about}: {_state(status)}"
        if line != self._last:
            typer.echo(line, err=True)
            self._last = line


def _state(status: JobStatus) -> str:
    if status.phase is None:
        return "the operator has not looked at it"
    if status.phase is RunPhase.WAITING:
        return f"it waits: {status.message}"
    return status.message
