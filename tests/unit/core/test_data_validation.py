"""The kind DataValidation, and the termination message that carries a validation's result."""

from typing import Any

import pytest

from quorate.facts.errors import WireError
from quorate.wire.jobs.data_validation import DataValidation, ValidationLevel
from quorate.wire.jobs.validation_result import (
    MESSAGE_BYTES_MAX,
    Outvoted,
    ValidationMode,
    ValidationResult,
    ValidationVerdict,
    decode_result,
    encode_result,
)
from quorate.wire.schema.resource import API_VERSION


def manifest(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "DataValidation",
        "metadata": {"name": "nightly"},
        "spec": {"zoneRef": {"name": "books"}, **spec},
    }


def env(name: str) -> dict[str, Any]:
    return {"podTemplate": {"env": [{"name": "TZ"}, {"name": name, "value": "hush"}]}}


NOT_LED = [
    *("SHELLOPTS", "PS4", "BASH_FUNC_dirname%%", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
    *("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_WEB_IDENTITY_TOKEN_FILE", "A", "tz", "TZ\n", ""),
    *("AWS_REGION_", "A_TZ", "Http_Proxy", "GOOGLE_APPLICATION_CREDENTIALS"),
    *("JAVA_HOME", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "LD_PRELOAD"),
    *("LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONSTARTUP", "PYSPARK_PYTHON", "SPARK_CONF_DIR"),
    *("QUORATE_EXECUTORS", "QUORATE_POD", "PATH", "HOME", "ENV", "BASH_ENV", "KUBECONFIG"),
    *("KUBERNETES_SERVICE_HOST", "KUBERNETES_TRUST_CERTIFICATES", "AWS_CONFIG_FILE"),
]


@pytest.mark.parametrize("name", NOT_LED)
def test_with_executors_no_variable_chooses_what_the_pod_runs(name: str) -> None:
    """The pod has a token: a variable may name code, an API server, or who is given the token."""
    with pytest.raises(WireError) as refused:
        DataValidation.parse(manifest(executors=1, **env(name)))

    assert "spec.podTemplate: write executors: 0, or only such env" in str(refused.value)
    assert "hush" not in str(refused.value)
    DataValidation.parse(manifest(**env(name)))  # without executors it has no rights


def test_with_executors_a_variable_has_a_name() -> None:
    without = {"podTemplate": {"env": [{"value": "hush"}]}}

    with pytest.raises(WireError, match="podTemplate: write executors: 0, or only such env"):
        DataValidation.parse(manifest(executors=1, **without))


@pytest.mark.parametrize("name", ["AWS_REGION", "HTTPS_PROXY", "no_proxy", "SSL_CERT_FILE", "TZ"])
def test_other_variables_may_be_had_with_executors(name: str) -> None:
    DataValidation.parse(manifest(executors=1, **env(name)))


def test_an_executor_has_memory_for_each_partition_that_it_reads() -> None:
    DataValidation.parse(manifest(executors=1, executorCores=4, executorMemory="2Gi"))
    DataValidation.parse(manifest(executorCores=5, executorMemory="2Gi"))

    with pytest.raises(WireError, match="executorMemory is 2Gi: write at least 512Mi for each of"):
        DataValidation.parse(manifest(executors=1, executorCores=5, executorMemory="2Gi"))


def test_a_validation_needs_only_a_zone() -> None:
    spec = DataValidation.parse(manifest()).spec

    assert spec.zone_ref.name == "books"
    assert spec.level is ValidationLevel.ROWS
    assert spec.mode is ValidationMode.LIVE
    assert spec.deadline_seconds == 6 * 3600


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"level": "rows"}, "spec.level is rows: write 'Counters', 'Digest' or 'Rows'"),
        ({"mode": "idle"}, "spec.mode is idle: write 'Live' or 'Idle'"),
        ({"deadlineSeconds": 0}, "spec.deadlineSeconds is 0: "),
        ({"ttlSecondsAfterFinished": 0}, "spec.ttlSecondsAfterFinished is 0: "),
        ({"executor": 2}, "spec.executor is not a known field"),
        ({"executors": 101}, "spec.executors is 101: "),
        ({"executors": 1, "level": "Digest"}, "write 0, or level: Rows"),
        ({"executors": 1, "executorMemory": "1023Mi"}, "write at least 1Gi"),
        ({"executors": 1, "executorCpu": "0"}, "spec.executorCpu is 0: "),
        ({"executors": 1, **env("LD_PRELOAD")}, "write executors: 0, or only such env as"),
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
        mode=ValidationMode.IDLE,
        zone_uid="uid-of-books",
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
