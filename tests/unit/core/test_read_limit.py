"""The limit of what a run reads of each agent, in every kind that has it."""

from typing import Any

import pytest

from quorate.facts.errors import WireError
from quorate.wire.crds import crd
from quorate.wire.exports.scheduled_zone_backup import ScheduledZoneBackup
from quorate.wire.exports.zone_backup import ZoneBackup
from quorate.wire.exports.zone_restore import ZoneRestore
from quorate.wire.jobs.data_validation import DataValidation
from quorate.wire.jobs.scheduled_data_validation import ScheduledDataValidation
from quorate.wire.jobs.zone_repair import ZoneRepair
from quorate.wire.schema.resource import API_VERSION, Resource

FIELD = "maxMiBPerSecondPerAgent"
CLAIM = {"persistentVolumeClaim": {"claimName": "backups", "path": "one"}}
ZONE = {"zoneRef": {"name": "books"}}
TO_CLAIM = {**ZONE, "destination": CLAIM}
HAVE_IT: tuple[tuple[type[Resource], dict[str, Any]], ...] = (
    (DataValidation, ZONE),
    (ZoneBackup, TO_CLAIM),
    (ZoneRepair, {**TO_CLAIM, "strategy": "LWW"}),
    (ZoneRestore, {**ZONE, "source": CLAIM}),
    (ScheduledDataValidation, ZONE),
    (ScheduledZoneBackup, TO_CLAIM),
)
of_each = pytest.mark.parametrize(("kind", "spec"), HAVE_IT, ids=lambda each: str(each)[-20:])


def is_scheduled(kind: type[Resource]) -> bool:
    return kind.__name__.startswith("Scheduled")


def manifest(kind: type[Resource], spec: dict[str, Any]) -> dict[str, Any]:
    whole = {"schedule": "0 3 * * *", "template": {"spec": spec}} if is_scheduled(kind) else spec
    name = {"name": "nightly", "namespace": "shop"}
    return {"apiVersion": API_VERSION, "kind": kind.__name__, "metadata": name, "spec": whole}


def limit_of(kind: type[Resource], spec: dict[str, Any]) -> tuple[int | None, tuple[str, ...]]:
    made: Any = kind.parse(manifest(kind, spec))
    found = made.spec.template.spec if is_scheduled(kind) else made.spec
    return found.max_mib_per_second_per_agent, found.limit_options


@of_each
def test_a_run_has_no_limit_or_the_one_that_it_names(
    kind: type[Resource], spec: dict[str, Any]
) -> None:
    assert limit_of(kind, spec) == (None, ())
    assert limit_of(kind, {**spec, FIELD: 8}) == (8, ("--max-mib-per-second-per-agent=8",))


@of_each
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "is 0: should be greater than or equal to 1"),
        (10_001, "is 10001: should be less than or equal to 10000"),
        (1.5, "is 1.5: should be a valid integer"),
        ("8", "is '8': should be a valid integer"),
    ],
)
def test_a_limit_that_is_none_is_refused_with_object_field_and_value(
    kind: type[Resource], spec: dict[str, Any], value: object, said: str
) -> None:
    with pytest.raises(WireError) as refused:
        limit_of(kind, {**spec, FIELD: value})

    path = "spec.template.spec" if is_scheduled(kind) else "spec"
    assert str(refused.value) == f"{kind.__name__} nightly: {path}.{FIELD} {said}"


@of_each
def test_the_api_server_refuses_the_same(kind: type[Resource], spec: dict[str, Any]) -> None:
    made: Any = crd(kind)
    [version] = made["spec"]["versions"]
    found = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    if is_scheduled(kind):
        found = found["template"]["properties"]["spec"]["properties"]

    bounds = {name: found[FIELD][name] for name in ("type", "minimum", "maximum")}
    assert bounds == {"type": "integer", "minimum": 1, "maximum": 10_000}
