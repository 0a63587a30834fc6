"""`kubectl quorate validate`: a DataValidation that is followed to its verdict."""

import subprocess
from typing import Any, NamedTuple

import typer
from rich.console import Console
from rich.text import Text

from quorate.facts.errors import QuorateError
from quorate.wire.jobs.data_validation import DataValidation, DataValidationStatus
from quorate.wire.jobs.validation_result import DifferenceClass, ValidationVerdict
from quorate_cli.kubectl.kube_api import KubeApi, core_path
from quorate_cli.kubectl.options import Place
from quorate_cli.kubectl.runs.follow import OTHERWISE, Run, print_json, run_to_end
from quorate_cli.objects.resources import name_of
from quorate_cli.processes.process import python
from quorate_cli.terminal.options import (
    KeyNames,
    ValidationLevel,
    ValidationMode,
    executors_field,
    limit_field,
)
from quorate_cli.terminal.problem import Problem

LABEL_VALIDATION = "quorate.io/validation"

EXIT_CODES = {
    ValidationVerdict.AGREE: 0,
    ValidationVerdict.DIFFER: 1,
    ValidationVerdict.COULD_NOT_TELL: OTHERWISE,
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


_RAN_LIVE = (
    "its result is not of mode idle, because the CRDs or the operator of this cluster are of an"
    " earlier version: apply the CRDs of this one, upgrade the operator, then validate again"
)


class Chosen(NamedTuple):
    """The options that say how copies are compared, and by how many pods.

    `limit`: MiB per second of each agent.
    """

    level: ValidationLevel
    keys: KeyNames
    limit: int | None = None
    mode: ValidationMode = ValidationMode.LIVE
    executors: int = 0

    @property
    def spec(self) -> dict[str, object]:
        """The fields of the object."""
        named: dict[str, object] = {
            "level": self.level.value.capitalize(),
            "keys": self.keys.value.capitalize(),
        }
        if self.mode is not ValidationMode.LIVE:  # an earlier version knows no other
            named["mode"] = self.mode.value.capitalize()
        return {**named, **limit_field(self.limit), **executors_field(self.executors)}

    @property
    def about(self) -> str:
        """The depth and the mode, for people."""
        mode = "" if self.mode is ValidationMode.LIVE else f", {self.mode.value}"
        return f"level {self.level.value}{mode}"


def validate(
    zone: str,
    chosen: Chosen,
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
        run, done = run_to_end(api, zone, DataValidation, chosen.spec, namespace, place)
    except QuorateError as problem:
        raise Problem(str(problem), OTHERWISE) from problem
    status = done.status
    if chosen.mode is ValidationMode.IDLE and _ran_live(status):
        if status.verdict is ValidationVerdict.AGREE:
            raise Problem(f"datavalidation {run.name}: {_RAN_LIVE}", OTHERWISE)
        typer.echo(f"datavalidation {run.name}: {_RAN_LIVE}", err=True)
    if as_json:
        print_json(status)
    elif status.verdict is not None:
        _print(run, zone, chosen, status, console)
    if status.verdict is None:
        raise Problem(f"datavalidation {run.name}: {status.message}", OTHERWISE)
    if report:
        _keep(api, run, namespace, report)
    return EXIT_CODES[status.verdict]


def _ran_live(status: DataValidationStatus) -> bool:
    """Return whether the verdict is of mode live: copies that differ do so in any mode.

    "Could not tell" has no mode if no pod has told it.
    """
    is_told = status.verdict not in (None, ValidationVerdict.COULD_NOT_TELL)
    return is_told and (status.mode or "").lower() != ValidationMode.IDLE


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
        raise Problem(f"--report {folder}: {problem}", OTHERWISE) from problem
    kept = subprocess.run(
        python("quorate_spark", "keep", folder), input=log, capture_output=True, check=False
    )
    if kept.returncode:
        said = kept.stderr.decode(errors="replace").strip()
        raise Problem(f"--report {folder}: {said}", OTHERWISE)
    typer.echo(kept.stdout.decode().strip(), err=True)


def _began(pod: Any) -> str:
    return str(pod["metadata"].get("creationTimestamp") or "")


def _print(
    run: Run, zone: str, chosen: Chosen, status: DataValidationStatus, console: Console
) -> None:
    assert status.verdict is not None
    console.print(
        Text(f"zone {zone}, {chosen.about}: "),
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
