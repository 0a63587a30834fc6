"""The Job of a DataValidation: what its pod is given, and which ends are tried again."""

from typing import Any

import pytest

from quorate.wire.jobs.data_validation import DataValidation
from quorate.wire.jobs.zone_history import HISTORY_VARIABLE, ExportTold, ZoneHistory
from quorate.wire.schema.resource import API_VERSION
from quorate_operator.jobs.job import Copies, job_of
from quorate_operator.jobs.validation_job import COULD_NOT_TELL, DIFFERS, validation_work
from quorate_spark import __main__ as validation
from quorate_spark.verdict import Mode, Outcome

COPIES = Copies("main", ("10.0.0.1:7100", "[fd00::2]:7100"), 64, 3)
Json = dict[str, Any]


def job(**spec: Any) -> Json:
    metadata = {"name": "nightly", "namespace": "shop", "uid": "uid-1"}
    head = {"apiVersion": API_VERSION, "kind": "DataValidation", "metadata": metadata}
    parsed = DataValidation.parse({**head, "spec": {"zoneRef": {"name": "books"}, **spec}})
    return job_of(parsed, validation_work(parsed, COPIES), COPIES.cluster, "quorate-spark:1")


def pod(**spec: Any) -> Json:
    found: Json = job(**spec)["spec"]["template"]["spec"]
    return found


def container(**spec: Any) -> Json:
    [found] = pod(**spec)["containers"]
    return dict(found)


def test_it_goes_with_its_validation() -> None:
    metadata = job()["metadata"]

    assert (metadata["name"], metadata["namespace"]) == ("nightly-validation", "shop")
    [owner] = metadata["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("DataValidation", "uid-1", True)
    chosen = {"quorate.io/validation": "nightly", "app.kubernetes.io/component": "validation"}
    assert chosen.items() <= metadata["labels"].items()
    assert chosen.items() <= job()["spec"]["template"]["metadata"]["labels"].items()


def test_the_program_takes_its_arguments() -> None:
    for level in ("Counters", "Digest", "Rows"):
        options = validation._parser().parse_args(container(level=level)["args"])

        assert (options.zone, options.cluster, options.level) == ("books", "main", level.lower())
        assert options.keys == "escaped"
        assert options.agents == "10.0.0.1:7100,[fd00::2]:7100"
        assert (options.partitions, options.replicas) == (64, 3)
        [port] = container()["ports"]
        assert (port["name"], port["containerPort"]) == ("progress", options.progress_port)
        assert str(options.termination_message) == container()["terminationMessagePath"]


def test_a_mode_is_an_option_if_an_earlier_image_need_not_know_it() -> None:
    assert validation._parser().parse_args(container(mode="Idle")["args"]).mode == Mode.IDLE
    assert not any("mode" in word for word in container(mode="Live")["args"])


@pytest.mark.parametrize(("mode", "codes"), [("Live", {1}), ("Idle", {1, 2})])
def test_in_mode_idle_no_end_that_was_told_is_tried_again(mode: str, codes: set[int]) -> None:
    """Another pod would speak of another time."""
    rules = job(mode=mode)["spec"]["podFailurePolicy"]["rules"]

    [ends] = [each for each in rules if each["action"] == "FailJob"]
    assert {*ends["onExitCodes"]["values"]} == codes
    assert {DIFFERS, COULD_NOT_TELL} == {Outcome.DIFFER.exit_code, Outcome.UNKNOWN.exit_code}


def test_keys_may_be_hashed() -> None:
    assert validation._parser().parse_args(container(keys="Hashed")["args"]).keys == "hashed"


def test_the_report_is_told_the_past_of_the_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    told = ZoneHistory("2026-01-05T03:00:00Z", last_backup=ExportTold("t", "$(run)", "a:b"))
    metadata = {"name": "nightly", "namespace": "shop", "uid": "uid-1"}
    head = {"apiVersion": API_VERSION, "kind": "DataValidation", "metadata": metadata}
    parsed = DataValidation.parse({**head, "spec": {"zoneRef": {"name": "books"}}})
    made = job_of(parsed, validation_work(parsed, COPIES, told), COPIES.cluster, "quorate-spark:1")

    [only] = made["spec"]["template"]["spec"]["containers"]
    assert only["args"] == container()["args"]  # an earlier image refuses what it does not know
    [variable] = only["env"]
    assert variable["name"] == HISTORY_VARIABLE
    monkeypatch.setenv(HISTORY_VARIABLE, variable["value"].replace("$$", "$"))
    assert validation._history() == told
    assert "$(run)" not in variable["value"].replace("$$", "")
    assert "env" not in container()


def test_a_past_that_cannot_be_read_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(HISTORY_VARIABLE, raising=False)
    assert validation._history() is None
    monkeypatch.setenv(HISTORY_VARIABLE, "{")

    assert validation._history() is None
    assert f"{HISTORY_VARIABLE} is left out of the report" in capsys.readouterr().err


def test_its_report_may_be_kept_on_a_volume() -> None:
    place = {"persistentVolumeClaim": {"claimName": "reports", "path": "shop/books"}}

    options = validation._parser().parse_args(container(report=place)["args"])

    assert options.report == "/reports/shop/books/"
    assert validation._parser().parse_args(container()["args"]).report is None
    [volume] = [each for each in pod(report=place)["volumes"] if each["name"] == "reports"]
    assert volume["persistentVolumeClaim"] == {"claimName": "reports"}
    assert {"name": "reports", "mountPath": "/reports"} in container(report=place)["volumeMounts"]
    assert "reports" not in str(pod()["volumes"])


def test_a_proven_difference_ends_it_and_only_that() -> None:
    spec = job()["spec"]
    differ, disrupted = spec["podFailurePolicy"]["rules"]

    assert differ["action"] == "FailJob"
    named = differ["onExitCodes"]
    assert (named["operator"], named["values"]) == ("In", [Outcome.DIFFER.exit_code])
    assert named["containerName"] == container()["name"]
    assert disrupted["action"] == "Ignore"
    assert disrupted["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert spec["backoffLimit"] == 1
    assert pod()["restartPolicy"] == "Never"  # a Job with such a policy may have no other


def test_its_time_is_bounded() -> None:
    spec = job(deadlineSeconds=90, ttlSecondsAfterFinished=3600)["spec"]

    assert (spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (90, 3600)


def test_its_pod_has_no_rights_and_writes_only_to_its_own_folder() -> None:
    assert pod()["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod()
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    volumes = {each["name"]: each for each in pod()["volumes"]}
    assert volumes["secret"]["secret"]["secretName"] == "main-quorate"
    mounts = {each["name"]: each for each in container()["volumeMounts"]}
    assert mounts["secret"]["readOnly"] is True
    assert volumes["work"] == {"name": "work", "emptyDir": {}}


@pytest.mark.parametrize(
    ("spec", "field", "value"),
    [
        ({"nodeSelector": {"disk": "ssd"}}, "nodeSelector", {"disk": "ssd"}),
        ({"tolerations": [{"key": "spot"}]}, "tolerations", [{"key": "spot"}]),
        (
            {"podTemplate": {"imagePullSecrets": [{"name": "registry"}]}},
            "imagePullSecrets",
            [{"name": "registry"}],
        ),
        ({"podTemplate": {"priorityClassName": "low"}}, "priorityClassName", "low"),
    ],
)
def test_what_is_said_of_the_pod_is_handed_on(spec: Json, field: str, value: object) -> None:
    assert pod(**spec)[field] == value
    assert field not in pod()


def test_additions_never_replace_our_own() -> None:
    labels = {"app.kubernetes.io/component": "agent", "team": "shop"}
    more = {"labels": labels, "annotations": {"a": "b"}, "env": [{"name": "TZ", "value": "UTC"}]}
    limits = {"limits": {"memory": "4Gi"}}
    made = job(podTemplate=more, resources=limits)["spec"]["template"]

    assert made["metadata"]["labels"]["app.kubernetes.io/component"] == "validation"
    assert made["metadata"]["labels"]["team"] == "shop"
    assert made["metadata"]["annotations"] == {"a": "b"}
    [only] = made["spec"]["containers"]
    assert (only["env"], only["resources"]) == ([{"name": "TZ", "value": "UTC"}], limits)
