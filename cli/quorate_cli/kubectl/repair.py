"""`kubectl quorate repair`: a ZoneRepair that is followed to its end.

The run is the operator's and its Job's: this command creates it and looks on, and ending it ends
nothing.  Executing a plan quotes the digest that the status of its dry run has.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from quorate.facts.errors import QuorateError
from quorate.wire.jobs.repair_result import RepairOutcome
from quorate.wire.jobs.zone_repair import ZoneRepair
from quorate.wire.resource import API_VERSION
from quorate_cli.commands.repair import RepairLevel, Strategy
from quorate_cli.guard import INTERRUPT_EXIT_CODE
from quorate_cli.kubectl import objects
from quorate_cli.kubectl.kube_api import KubeApi, objects_path
from quorate_cli.kubectl.operator_lease import find_operator
from quorate_cli.kubectl.recover import Place
from quorate_cli.kubectl.validate import PREFIX_MAX, Run, follow, shown
from quorate_cli.objects import resources
from quorate_cli.objects.resources import ZONE
from quorate_cli.terminal.problem import Problem

OTHERWISE = 2
"""The exit code where nothing was done, or nothing is known."""
STYLES = {
    RepairOutcome.INCOMPLETE: "bold yellow",
    RepairOutcome.FAILED: "bold red",
    RepairOutcome.UNKNOWN: "bold red",
}
Json = Mapping[str, object]


class Wanted(NamedTuple):
    """The options that say what is to be done."""

    strategy: Strategy | None
    execute: str
    """The name of a dry run; empty: a new plan is made."""
    without_review: bool
    level: RepairLevel | None
    """None: the default."""


def place_of(destination: str, bucket: Mapping[str, str], credentials_secret: str) -> Json | None:
    """Return the place of a plan as an object names it; None: none is named.  Raises Problem."""
    of_bucket = {name: value for name, value in bucket.items() if value}
    if destination.startswith("s3://"):
        secret = {"credentialsSecretRef": {"name": credentials_secret}}
        return {"s3": {"url": destination, **of_bucket, **(secret if credentials_secret else {})}}
    if of_bucket or credentials_secret:
        raise Problem(
            "--endpoint, --region and --credentials-secret are of a bucket: write --destination"
            " s3://BUCKET/FOLDER",
            OTHERWISE,
        )
    if not destination:
        return None
    claim, separator, path = destination.partition(":")
    if not (claim and separator and path):
        raise Problem("--destination: write CLAIM:FOLDER, or s3://BUCKET/FOLDER", OTHERWISE)
    return {"persistentVolumeClaim": {"claimName": claim, "path": path}}


def repair(
    zone: str, wanted: Wanted, at: Json | None, place: Place, as_json: bool, console: Console
) -> int:
    """Run a ZoneRepair and print its end; return the exit code."""
    try:
        api = KubeApi(place.kubeconfig, place.context)
        namespace = place.namespace or api.namespace
        run = _create(api, zone, wanted, at, namespace, place)
        path = objects_path(ZoneRepair.plural, namespace, run.name)
        try:
            with shown(run, console) as show:
                status = follow(api, run, path, lambda whole: resources.repair(whole).status, show)
        except KeyboardInterrupt:
            typer.echo(f"{run.about} goes on: {run.how_to_look}", err=True)
            return INTERRUPT_EXIT_CODE
    except QuorateError as problem:
        raise Problem(str(problem), OTHERWISE) from problem
    outcome = status.outcome
    if as_json:
        whole = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        typer.echo(msgspec.json.format(msgspec.json.encode(whole), indent=2).decode())
    elif outcome is not None:
        console.print(
            Text(f"zone {zone}: "), Text(outcome, STYLES.get(outcome, "bold green")), sep=""
        )
        console.print(Text(status.message), soft_wrap=True)
        log = f"{run.about}; the whole result: kubectl logs job/{status.job}{run.options}"
        console.print(Text(log), soft_wrap=True)
    if outcome is None:
        raise Problem(f"{run.about}: {status.message}", OTHERWISE)
    if outcome.is_good:
        return 0
    return 1 if outcome is RepairOutcome.INCOMPLETE else OTHERWISE


def _create(
    api: KubeApi, zone: str, wanted: Wanted, at: Json | None, namespace: str, place: Place
) -> Run:
    spec = _spec(api, zone, wanted, at, namespace)
    objects.fetch(api, ZONE, namespace, zone)
    operator = find_operator(api, namespace, place.operator_namespace)
    if operator.problem:
        raise Problem(f"zone {zone}: {operator.problem}; nothing was created")
    manifest: dict[str, object] = {
        "apiVersion": API_VERSION,
        "kind": ZoneRepair.kind_name(),
        "metadata": {"generateName": f"{zone[:PREFIX_MAX]}-"},
        "spec": {"zoneRef": {"name": zone}, **spec},
    }
    made = api.create(objects_path(ZoneRepair.plural, namespace), manifest)
    options = place._replace(operator_namespace="").options  # kubectl has no such option
    words = "".join(f" {each}" for each in options)
    return Run(resources.repair(made).metadata.name, words, "zonerepair")


def _spec(api: KubeApi, zone: str, wanted: Wanted, at: Json | None, namespace: str) -> Json:
    """Return what the options ask for.  Raises Problem."""
    if wanted.execute:
        made_new = (wanted.strategy, at, wanted.level, wanted.without_review or None)
        if any(each is not None for each in made_new):
            raise Problem(
                "--execute takes a plan as it is: leave out --strategy, --level, --destination and"
                " --without-review"
            )
        return {"dryRun": False, "plan": _quoted(api, zone, wanted.execute, namespace)}
    if wanted.strategy is None or at is None:
        raise Problem(
            f"write --strategy and one of {', '.join(Strategy)}, and --destination, to make a plan;"
            " or --execute and the name of the ZoneRepair that has made one"
        )
    made = {
        "strategy": wanted.strategy.value,
        "level": (wanted.level or RepairLevel.ROWS).value.capitalize(),
        "destination": at,
    }
    return {**made, "dryRun": False, "withoutReview": True} if wanted.without_review else made


def _quoted(api: KubeApi, zone: str, name: str, namespace: str) -> Json:
    """Return the plan of a dry run, with the digest that its status has.  Raises Problem."""
    planned = resources.repair(api.get(objects_path(ZoneRepair.plural, namespace, name)))
    spec, status = planned.spec, planned.status
    if spec.zone_ref.name != zone:
        raise Problem(f"zonerepair {name} is of zone {spec.zone_ref.name}, not of zone {zone}")
    if status.outcome is not RepairOutcome.PLANNED or not status.plan_digest:
        said = status.message or "it has not ended"
        raise Problem(f"zonerepair {name} has no plan: {said}")
    source = spec.place.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {"source": source, "digest": status.plan_digest}
