"""The metric of how runs of zones ended; API, agents and pods are in memory."""

from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import Counter

from quorate.protocol.messages.events import Event
from quorate.wire.crds import KINDS
from quorate.wire.exports.export_result import RunOutcome
from quorate.wire.jobs.repair_result import RepairOutcome
from quorate.wire.jobs.validation_result import ValidationVerdict
from quorate_loopback.namespace import Namespace
from quorate_loopback.waiting import until
from quorate_operator import names
from quorate_operator.declared.kinds import Kind
from quorate_operator.declared.runs.job_runs import JobRuns
from quorate_operator.mastership.runner import Runner
from quorate_operator.process.run_counts import RunCounts

Json = dict[str, Any]
REPAIR = ("main", "books", "zonerepair")
ENDS = {
    Kind.VALIDATION: ValidationVerdict,
    Kind.BACKUP: RunOutcome,
    Kind.RESTORE: RunOutcome,
    Kind.REPAIR: RepairOutcome,
}


def series(counter: Counter) -> dict[tuple[str, ...], float]:
    """Return how many runs ended, by cluster, zone, kind and outcome."""
    labels = ("cluster", "zone", "kind", "outcome")
    [family] = counter.collect()
    return {
        tuple(each.labels[label] for label in labels): each.value
        for each in family.samples
        if each.name.endswith("_total")
    }


def ended(led: Namespace) -> dict[tuple[str, ...], float]:
    return {of: count for of, count in series(led.metrics.runs_ended).items() if count}


def declare(led: Namespace, name: str, zone: str = "books", **spec: Any) -> Json:
    """Declare a repair; return it as it was before it was looked at."""
    led.declare("ZoneRepair", name, zoneRef={"name": zone}, **spec)
    return dict(led.api.objects[led.path("ZoneRepair", name)])


async def until_phase(led: Namespace, name: str, phase: str) -> None:
    def status() -> Json:
        return dict(led.api.objects[led.path("ZoneRepair", name)].get("status", {}))

    def is_so() -> bool:
        led.show(led.api.objects[led.path("Zone", "books")])  # the watch shows what was written
        return status().get("phase") == phase

    await until(is_so, f"{name}: {phase}")


async def until_running(led: Namespace, name: str) -> str:
    """Declare a dry run; return the path of its Job."""
    claim = {"persistentVolumeClaim": {"claimName": "backups", "path": name}}
    declare(led, name, strategy="LWW", destination=claim)
    await until_phase(led, name, "Running")
    return f"/apis/batch/v1/namespaces/default/jobs/{name}-repair"


async def test_counts_of_a_zone_begin_at_0_before_any_run_of_it(led: Namespace) -> None:
    kinds = led.controller._runs._of.items()
    runs = {kind: each for kind, each in kinds if isinstance(each, JobRuns)}
    wanted = {
        ("main", "books", str(kind)): len(ENDS[kind]) + 1  # or it is refused
        for kind in runs
    }
    found = series(led.metrics.runs_ended)

    assert {of: sum(each[:3] == of for each in found) for of in wanted} == wanted
    assert len(found) == sum(wanted.values())
    assert set(found.values()) == {0}
    assert (*REPAIR, "nothing_to_repair") in found


def test_every_end_of_a_run_of_every_kind_has_a_reason(led: Namespace) -> None:
    jobs = {each.kind_name().lower() for each in KINDS if "job" in _status_fields(each)}
    runs = led.controller._runs._of
    assert {kind for kind, each in runs.items() if isinstance(each, JobRuns)} == jobs == {*ENDS}
    for kind, each in runs.items():
        if isinstance(each, JobRuns):
            assert set(each.reasons) == set(ENDS[kind])


def _status_fields(kind: Any) -> set[str]:
    status = kind.model_fields.get("status")
    return set(status.annotation.model_fields) if status is not None else set()


async def test_the_end_of_a_run_is_counted_once_after_it_was_told(
    led: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[dict[tuple[str, ...], float]] = []
    tell: Callable[[Runner, list[Event]], None] = Runner.tell

    def told(runner: Runner, events: list[Event]) -> None:
        counts.append(ended(led))
        tell(runner, events)

    monkeypatch.setattr(Runner, "tell", told)
    job = await until_running(led, "first")
    running = led.api.objects[led.path("ZoneRepair", "first")]
    del led.api.objects[job]
    await until_phase(led, "first", "Finished")
    led.show(running)
    await until(lambda: led.controller.queued == 0, "nothing to do")

    assert ended(led) == {(*REPAIR, "unknown"): 1}
    assert counts == [{}]


async def test_a_refused_run_that_the_watch_shows_as_it_was_is_counted_once(
    led: Namespace,
) -> None:
    before = declare(led, "first", level="Depth")
    await until_phase(led, "first", "Refused")
    led.show(before)
    declare(led, "second", level="Depth")
    await until_phase(led, "second", "Refused")
    await until(lambda: led.controller.queued == 0, "nothing to do")

    assert ended(led) == {(*REPAIR, "refused"): 2}


async def test_a_run_of_a_paused_zone_is_of_this_zone(led: Namespace) -> None:
    led.zone("books", {names.ANNOTATION_PAUSED: "true"})
    declare(led, "odd", level="Depth")
    await until_phase(led, "odd", "Refused")

    assert ended(led) == {(*REPAIR, "refused"): 1}


async def test_a_zone_that_is_not_declared_is_no_label(led: Namespace) -> None:
    declare(led, "odd", "no-such-zone", level="Depth")
    await until_phase(led, "odd", "Refused")

    assert ended(led) == {("", "", "zonerepair", "refused"): 1}


async def test_counts_go_with_their_zone_and_with_the_one_who_leads(led: Namespace) -> None:
    led.zone("more")
    assert {zone for _, zone, *_ in series(led.metrics.runs_ended)} == {"books", "more"}
    await led.delete("more")
    assert {zone for _, zone, *_ in series(led.metrics.runs_ended)} == {"books"}
    former = led.metrics
    await led.restart()
    assert series(former.runs_ended) == {}
    assert set(series(led.metrics.runs_ended).values()) == {0}


def test_counts_of_a_zone_that_is_in_another_cluster_begin_again() -> None:
    counter = Counter("ended", "", ["namespace", "cluster", "zone", "kind", "outcome"])
    counts = RunCounts(counter, "ns", {"zonebackup": ["Complete"]})
    counts.zone_seen("books", "main")
    counts.run_ended("zonebackup", "books", "Complete")
    counts.zone_seen("books", "main")
    assert sum(series(counter).values()) == 1

    counts.zone_seen("books", "other")
    assert series(counter) == {
        ("other", "books", "zonebackup", outcome): 0 for outcome in ("complete", "refused")
    }
    counts.zone_gone("other")
    counts.zone_gone("books")
    assert series(counter) == {}
