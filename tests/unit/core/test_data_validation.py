"""The kind DataValidation, and the termination message that carries a validation's result."""

from typing import Any

import pytest

from quorate.facts.errors import WireError
from quorate.wire.jobs.data_validation import DataValidation, ValidationLevel
from quorate.wire.jobs.validation_result import (
    MESSAGE_BYTES_MAX,
    Outvoted,
    ValidationResult,
    ValidationVerdict,
    decode_result,
    encode_result,
)
from quorate.wire.resource import API_VERSION


def manifest(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "DataValidation",
        "metadata": {"name": "nightly"},
        "spec": {"zoneRef": {"name": "books"}, **spec},
    }


def test_a_validation_needs_only_a_zone() -> None:
    spec = DataValidation.parse(manifest()).spec

    assert spec.zone_ref.name == "books"
    assert spec.level is ValidationLevel.ROWS
    assert spec.deadline_seconds == 6 * 3600


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"level": "rows"}, "spec.level is rows: write 'Counters', 'Digest' or 'Rows'"),
        ({"deadlineSeconds": 0}, "spec.deadlineSeconds is 0: "),
        ({"ttlSecondsAfterFinished": 0}, "spec.ttlSecondsAfterFinished is 0: "),
        ({"executors": 2}, "spec.executors is not a known field"),
        ({"zoneRef": {}}, "spec.zoneRef.name is missing"),
    ],
)
def test_a_bad_validation_is_refused_with_the_field(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(WireError) as refused:
        DataValidation.parse(manifest(**spec))

    assert said in str(refused.value)


def test_a_validation_is_never_changed() -> None:
    stored = DataValidation.parse(manifest())

    with pytest.raises(WireError, match="create another one"):
        DataValidation.parse(manifest(level="Digest"), stored)


def test_a_result_is_read_as_it_was_written() -> None:
    result = ValidationResult(
        ValidationVerdict.DIFFER,
        {"value": 2, "skipped": 1},
        partitions=64,
        copies=192,
        settled_keys=1000,
        unsettled_keys=3,
        differing_keys=2,
        reasons=("partition 7: agent-2 does not answer",),
        outvoted=(Outvoted(5, "agent-3", ("agent-1", "agent-2")),),
        duration_ms=1500,
    )

    assert decode_result(encode_result(result).decode()) == result


def test_a_long_result_is_cut_until_it_fits_and_the_verdict_stays() -> None:
    result = ValidationResult(
        ValidationVerdict.DIFFER,
        {"value": 100_000},
        reasons=("ü" * 5000,) * 50,
        outvoted=tuple(Outvoted(n, "agent-" + "x" * 150, ("y" * 150,)) for n in range(5000)),
    )

    message = encode_result(result)

    assert len(message) <= MESSAGE_BYTES_MAX
    told = decode_result(message.decode())
    assert (told.verdict, told.classes) == (result.verdict, result.classes)
    assert told.reasons[-1] == "and 45 more"
    assert 0 < len(told.outvoted) < 20


@pytest.mark.parametrize("message", ["", "Killed", "{}", '{"verdict":"Perhaps"}', "[1"])
def test_other_last_words_are_no_result(message: str) -> None:
    with pytest.raises(WireError, match="no result of a validation"):
        decode_result(message)
