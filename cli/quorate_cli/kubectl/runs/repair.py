"""`kubectl quorate repair`: a ZoneRepair that is followed to its end.

Executing a plan quotes the digest that the status of its dry run has.
"""

from typing import NamedTuple

from rich.console import Console

from quorate.facts.errors import QuorateError
from quorate.wire.jobs.repair_result import RepairOutcome, RepairStrategy
from quorate.wire.jobs.zone_repair import ZoneRepair
from quorate_cli.commands.repair import RepairLevel
from quorate_cli.kubectl.kube_api import KubeApi, objects_path
from quorate_cli.kubectl.options import Place
from quorate_cli.kubectl.runs.follow import OTHERWISE, Spec, print_end, print_json, run_to_end
from quorate_cli.objects.resources import parsed
from quorate_cli.terminal.options import limit_field
from quorate_cli.terminal.problem import Problem

STYLES = {
    RepairOutcome.INCOMPLETE: "bold yellow",
    RepairOutcome.FAILED: "bold red",
    RepairOutcome.UNKNOWN: "bold red",
}


class Wanted(NamedTuple):
    """The options that say what is to be done."""

    strategy: RepairStrategy | None
    execute: str
    """The name of a dry run; empty: a new plan is made."""
    without_review: bool
    level: RepairLevel | None
    """None: the default."""
    limit: int | None = None
    """MiB per second of each agent; None: no limit."""


def repair(
    zone: str, wanted: Wanted, at: Spec | None, place: Place, as_json: bool, console: Console
) -> int:
    """Run a ZoneRepair and print its end; return the exit code."""
    try:
        api = KubeApi(place.kubeconfig, place.context)
        namespace = place.namespace or api.namespace
        spec = _spec(api, zone, wanted, at, namespace)
        run, done = run_to_end(api, zone, ZoneRepair, spec, namespace, place)
    except QuorateError as problem:
        raise Problem(str(problem), OTHERWISE) from problem
    status, outcome = done.status, done.status.outcome
    if as_json:
        print_json(status)
    elif outcome is not None:
        print_end(run, zone, outcome, STYLES.get(outcome, "bold green"), status, console)
    if outcome is None:
        raise Problem(f"{run.about}: {status.message}", OTHERWISE)
    if outcome.is_good:
        return 0
    return 1 if outcome is RepairOutcome.INCOMPLETE else OTHERWISE


def _spec(api: KubeApi, zone: str, wanted: Wanted, at: Spec | None, namespace: str) -> Spec:
    """Return what the options ask for.  Raises Problem."""
    if wanted.execute:
        made_new = (wanted.strategy, at, wanted.level, wanted.without_review or None)
        if any(each is not None for each in made_new):
            raise Problem(
                "--execute takes a plan as it is: leave out --strategy, --level, --destination and"
                " --without-review"
            )
        plan = _quoted(api, zone, wanted.execute, namespace)
        return {"dryRun": False, "plan": plan, **limit_field(wanted.limit)}
    if wanted.strategy is None or at is None:
        raise Problem(
            f"write --strategy and one of {', '.join(RepairStrategy)}, and --destination, to make a"
            " plan; or --execute and the name of the ZoneRepair that has made one"
        )
    made = {
        "strategy": wanted.strategy.value,
        "level": (wanted.level or RepairLevel.ROWS).value.capitalize(),
        "destination": at,
        **limit_field(wanted.limit),
    }
    return {**made, "dryRun": False, "withoutReview": True} if wanted.without_review else made


def _quoted(api: KubeApi, zone: str, name: str, namespace: str) -> Spec:
    """Return the plan of a dry run, with the digest that its status has.  Raises Problem."""
    planned = parsed(ZoneRepair, api.get(objects_path(ZoneRepair.plural, namespace, name)))
    spec, status = planned.spec, planned.status
    if spec.zone_ref.name != zone:
        raise Problem(f"zonerepair {name} is of zone {spec.zone_ref.name}, not of zone {zone}")
    if status.outcome is not RepairOutcome.PLANNED or not status.plan_digest:
        said = status.message or "it has not ended"
        raise Problem(f"zonerepair {name} has no plan: {said}")
    source = spec.place.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {"source": source, "digest": status.plan_digest}
