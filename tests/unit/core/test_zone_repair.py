"""The kind ZoneRepair: a new plan, or an earlier one that is quoted, and never both."""

from typing import Any

import pytest

from quorate.facts.errors import WireError
from quorate.wire.jobs.repair_result import (
    RepairOutcome,
    RepairResult,
    decode_repair_result,
    encode_repair_result,
)
from quorate.wire.jobs.validation_result import MESSAGE_BYTES_MAX
from quorate.wire.jobs.zone_repair import RepairStrategy, ZoneRepair
from quorate.wire.schema.resource import API_VERSION
from quorate_spark.repairing.decide import Strategy

Json = dict[str, Any]
CLAIM = {"persistentVolumeClaim": {"claimName": "backups", "path": "books/repair"}}
PLAN = {"source": CLAIM, "digest": "0a" * 32}
NEW = {"strategy": "LWW", "destination": CLAIM}


def manifest(**spec: Any) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": "ZoneRepair",
        "metadata": {"name": "first"},
        "spec": {"zoneRef": {"name": "books"}, **spec},
    }


@pytest.mark.parametrize(
    "spec",
    [
        NEW,
        {**NEW, "strategy": "CHECK_ONLY"},
        {"plan": PLAN, "dryRun": False},
        {**NEW, "dryRun": False, "withoutReview": True},
    ],
)
def test_a_plan_and_its_execution_are_taken(spec: Json) -> None:
    parsed = ZoneRepair.parse(manifest(**spec))

    assert parsed.spec.place.text == "backups:books/repair"
    assert parsed.spec.dry_run is spec.get("dryRun", True)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, "write destination, for a new plan, or plan"),
        ({**NEW, "plan": PLAN, "dryRun": False}, "one of them"),
        ({"destination": CLAIM}, "write strategy for a new plan"),
        ({"plan": PLAN, "strategy": "LWW", "dryRun": False}, "none with plan"),
        ({"plan": PLAN, "dryRun": False, "level": "Digest"}, "write no level with plan"),
        ({"plan": PLAN}, "with plan write dryRun: false"),
        ({**NEW, "dryRun": False}, "write withoutReview: true to execute a new plan"),
        ({**NEW, "withoutReview": True}, "and never else"),
        ({"plan": PLAN, "dryRun": False, "withoutReview": True}, "and never else"),
        (
            {**NEW, "strategy": "CHECK_ONLY", "dryRun": False, "withoutReview": True},
            "CHECK_ONLY changes nothing",
        ),
        ({"plan": {**PLAN, "digest": "AB"}, "dryRun": False}, "digest"),
    ],
)
def test_what_could_be_meant_otherwise_is_refused(spec: Json, said: str) -> None:
    with pytest.raises(WireError, match=said):
        ZoneRepair.parse(manifest(**spec))


def test_strategies_are_those_of_the_command_and_of_the_program() -> None:
    assert [*RepairStrategy] == [*Strategy]


def test_a_result_with_long_reasons_fits_into_a_message() -> None:
    counts = {"repaired": 10**6, "changed": 10**6}
    whole = RepairResult(
        RepairOutcome.INCOMPLETE, "f" * 64, {"write": 5}, counts, ("\x00ä" * 900,) * 9
    )
    message = encode_repair_result(whole)
    read = decode_repair_result(message.decode())

    assert len(message) <= MESSAGE_BYTES_MAX
    assert (read.keys, read.digest) == (counts, "f" * 64)
    assert read.reasons[0].endswith("…")
    with pytest.raises(WireError, match="no result of a repair"):
        decode_repair_result("Killed")
