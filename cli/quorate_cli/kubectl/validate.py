"""`kubectl quorate validate`: a DataValidation that is followed to its verdict.

The run is the operator's and its Job's: this command creates it and looks on, and ending it ends
nothing.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from quorate.facts.errors import QuorateError
from quorate.wire.jobs.data_validation import (
    DataValidation,
    DataValidationStatus,
)
from quorate.wire.jobs.job_run import JobStatus, RunPhase
from quorate.wire.jobs.validation_result import DifferenceClass, ValidationVerdict
from quorate.wire.resource import API_VERSION, NAME_LENGTH_MAX
from quorate_cli.guard import INTERRUPT_EXIT_CODE
from quorate_cli.kubectl import objects
from quorate_cli.kubectl.kube_api import KubeApi, Unreached, core_path, objects_path
from quorate_cli.kubectl.operator_lease import find_operator
from quorate_cli.kubectl.recover import Place
from quorate_cli.objects import resources
from quorate_cli.objects.operator_api import NotThere
from quorate_cli.objects.resources import ZONE, name_of
from quorate_cli.processes.process import python
from quorate_cli.terminal.options import KeyNames, ValidationLevel
from quorate_cli.terminal.problem import Problem

LABEL_VALIDATION = "quorate.io/validation"
POLL_S = 1.0
UNREACHED_S = 60.0
"""How long the API server may not answer meanwhile."""
COULD_NOT_TELL = 2
PREFIX_MAX = NAME_LENGTH_MAX - 6
"""Of the zone's name in the object's, which the API server extends by a dash and five letters."""

EXIT_CODES = {
    ValidationVerdict.AGREE: 0,
    ValidationVerdict.DIFFER: 1,
    ValidationVerdict.COULD_NOT_TELL: COULD_NOT_TELL,
}
STYLES = {
    ValidationVerdict.AGREE: "bold green",
    ValidationVerdict.DIFFER: "bold red",
    ValidationVerdict.COULD_NOT_TELL: "bold yellow",
}
_PARTITIONS = (
    DifferenceClass.COUNTER,
    DifferenceClass.LINEAGE,
    DifferenceClass.GAP,
    DifferenceClass.SKIPPED,
)

Shown = Callable[[JobStatus], None]
Status = TypeVar("Status", bound=JobStatus)


class Run(NamedTuple):
    """An object that is run, and the options of kubectl that name its place."""

    name: str
    options: str
    kind: str = "datavalidation"

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


def validate(
    zone: str,
    level: ValidationLevel,
    keys: KeyNames,
    report: str,
    place: Place,
    as_json: bool,
    console: Console,
) -> int:
    """Run a DataValidation and print its verdict; return the exit code, as `quorate validate`.

    Problems have the exit code 2: 1 would say that copies differ.
    """
    try:
        api = KubeApi(place.kubeconfig, place.context)
        namespace = place.namespace or api.namespace
        run = _create(api, zone, level, keys, namespace, place)
        try:
            path = objects_path(DataValidation.plural, namespace, run.name)
            with shown(run, console) as show:
                status = follow(
                    api, run, path, lambda whole: resources.validation(whole).status, show
                )
        except KeyboardInterrupt:
            typer.echo(f"{run.about} goes on: {run.how_to_look}", err=True)
            return INTERRUPT_EXIT_CODE
    except QuorateError as problem:
        raise Problem(str(problem), COULD_NOT_TELL) from problem
    if as_json:
        whole = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        typer.echo(msgspec.json.format(msgspec.json.encode(whole), indent=2).decode())
    elif status.verdict is not None:
        _print(run, zone, level, status, console)
    if status.verdict is None:
        raise Problem(f"datavalidation {run.name}: {status.message}", COULD_NOT_TELL)
    if report:
        _keep(api, run, namespace, report)
    return EXIT_CODES[status.verdict]


def _create(
    api: KubeApi,
    zone: str,
    level: ValidationLevel,
    keys: KeyNames,
    namespace: str,
    place: Place,
) -> Run:
    objects.fetch(api, ZONE, namespace, zone)
    operator = find_operator(api, namespace, place.operator_namespace)
    if operator.problem:
        raise Problem(f"zone {zone}: {operator.problem}; nothing was created")
    chosen = {"level": level.value.capitalize(), "keys": keys.value.capitalize()}
    manifest: dict[str, object] = {
        "apiVersion": API_VERSION,
        "kind": DataValidation.kind_name(),
        "metadata": {"generateName": f"{zone[:PREFIX_MAX]}-"},
        "spec": {"zoneRef": {"name": zone}, **chosen},
    }
    made = api.create(objects_path(DataValidation.plural, namespace), manifest)
    options = place._replace(operator_namespace="").options  # kubectl has no such option
    return Run(resources.validation(made).metadata.name, "".join(f" {each}" for each in options))


def follow(
    api: KubeApi, run: Run, path: str, parse: Callable[[Any], Status], show: Shown
) -> Status:
    """Return the status of the run, whose object is at `path`, when it has ended."""
    reached = time.monotonic()
    while True:
        try:
            status = parse(api.get(path))
        except NotThere as gone:
            raise Problem(f"{run.about} was deleted before its end") from gone
        except Unreached as unreached:
            if time.monotonic() - reached > UNREACHED_S:
                raise Problem(f"{unreached}; {run.about} goes on: {run.how_to_look}") from unreached
        else:
            reached = time.monotonic()
            if status.phase is not None and status.phase.is_final:
                return status
            show(status)
        time.sleep(POLL_S)


def _keep(api: KubeApi, run: Run, namespace: str, folder: str) -> None:
    """Write the report, which is the log of the pod that ended last, into a folder."""
    try:
        selector = f"{LABEL_VALIDATION}={run.name}"
        pods = api.collection(core_path("pods", namespace), labelSelector=selector)
        if not pods:
            raise Problem(f"datavalidation {run.name}: its pod is gone, and with it the report")
        name = name_of(max(pods, key=_began))
        log = api.text(f"{core_path('pods', namespace, name)}/log")
    except QuorateError as problem:
        raise Problem(f"--report {folder}: {problem}", COULD_NOT_TELL) from problem
    kept = subprocess.run(
        python("quorate_spark", "keep", folder), input=log, capture_output=True, check=False
    )
    if kept.returncode:
        said = kept.stderr.decode(errors="replace").strip()
        raise Problem(f"--report {folder}: {said}", COULD_NOT_TELL)
    typer.echo(kept.stdout.decode().strip(), err=True)


def _began(pod: Any) -> str:
    return str(pod["metadata"].get("creationTimestamp") or "")


@contextmanager
def shown(run: Run, console: Console) -> Iterator[Shown]:
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


def _print(
    run: Run, zone: str, level: ValidationLevel, status: DataValidationStatus, console: Console
) -> None:
    assert status.verdict is not None
    console.print(
        Text(f"zone {zone}, level {level.value}: "),
        Text(status.verdict, STYLES[status.verdict]),
        sep="",
    )
    lines = [status.message]
    if status.verdict is not ValidationVerdict.COULD_NOT_TELL:  # there, the message has them
        lines += [f"could not tell: {reason}" for reason in status.reasons]
    for kind, count in sorted(status.classes.items()):
        what = "partitions" if kind in _PARTITIONS else "keys"
        lines.append(f"{kind}: {count:,} {what}")
    for copy in status.outvoted:
        lines.append(
            f"kubectl quorate recover restart {zone} --partitions {copy.partition} --node"
            f" {copy.node} --erase{run.options}"
        )
    lines.append(
        f"datavalidation {run.name}; the whole report: kubectl logs job/{status.job}{run.options}"
    )
    for line in lines:
        console.print(Text(line), soft_wrap=True)
