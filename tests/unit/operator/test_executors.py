"""The Job of a run with executors: who leads them, and what they are given."""

import json
from typing import Any

import pytest

from quorate.wire.exports.zone_backup import ZoneBackup
from quorate.wire.jobs.data_validation import DataValidation
from quorate.wire.jobs.executors import (
    EXECUTOR_FOLDER,
    EXECUTOR_SECRET,
    EXECUTORS_VARIABLE,
    Executors,
    decode_executors,
)
from quorate.wire.jobs.zone_history import HISTORY_VARIABLE, ZoneHistory
from quorate.wire.schema.resource import API_VERSION
from quorate_cluster.kubelet_arguments import expanded
from quorate_loopback.namespace import Namespace
from quorate_loopback.waiting import until
from quorate_operator.jobs.backup_job import backup_work
from quorate_operator.jobs.executors import with_executors
from quorate_operator.jobs.job import Copies, job_of
from quorate_operator.jobs.validation_job import validation_work
from quorate_operator.kube.api import KubeApi

COPIES = Copies("main", ("10.0.0.1:7100",), 64, 3, "uid-of-books", {"partitions": 64})
METADATA = {"name": "monday", "namespace": "shop", "uid": "uid-1"}
IMAGE = "quorate-spark:1"
CLAIM = {"persistentVolumeClaim": {"claimName": "backups", "path": "books"}}
S3 = {"s3": {"url": "s3://bucket/books", "credentialsSecretRef": {"name": "keys-of-minio"}}}
Json = dict[str, Any]


def head(kind: str, **spec: Any) -> Json:
    whole = {"zoneRef": {"name": "books"}, **spec}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": METADATA, "spec": whole}


def validation_job(**spec: Any) -> tuple[Json, Json]:
    """The Job without executors, and with."""
    parsed = DataValidation.parse(head("DataValidation", **spec))
    work = validation_work(parsed, COPIES, ZoneHistory("2026-01-05T03:00:00Z"))
    made = job_of(parsed, work, "main", IMAGE)
    return made, with_executors(made, parsed.spec, work, "main", IMAGE)


def backup_job(destination: Json, **spec: Any) -> Json:
    parsed = ZoneBackup.parse(head("ZoneBackup", destination=destination, **spec))
    work = backup_work(parsed, COPIES)
    return with_executors(job_of(parsed, work, "main", IMAGE), parsed.spec, work, "main", IMAGE)


def pod(job: Json) -> Json:
    return dict(job["spec"]["template"]["spec"])


def told(job: Json) -> Executors:
    [container] = pod(job)["containers"]
    [variable] = [each for each in container["env"] if each["name"] == EXECUTORS_VARIABLE]
    [value] = expanded([variable["value"]], {})
    return decode_executors(value)


def executor(job: Json) -> Json:
    [container] = told(job).template["spec"]["containers"]
    return dict(container)


def test_without_executors_the_pod_has_no_rights() -> None:
    before, after = validation_job()

    assert after == before
    assert "serviceAccountName" not in pod(after)
    assert pod(after)["automountServiceAccountToken"] is False


def test_the_pod_leads_executors_by_rights_of_a_name_that_no_object_chooses() -> None:
    before, job = validation_job(executors=3, executorCores=2, executorMemory="3Gi")

    assert pod(job)["serviceAccountName"] == "quorate-driver"
    assert pod(job)["automountServiceAccountToken"] is True
    executors = told(job)
    assert (executors.instances, executors.cores, executors.at_once) == (3, 2, 6)
    assert (executors.cpu, executors.memory, executors.image) == ("2", 3 << 30, IMAGE)
    assert told(validation_job(executors=1, executorCpu="500m")[1]).cpu == "500m"
    [was], [now] = pod(before)["containers"], pod(job)["containers"]
    assert now["args"] == was["args"]  # an earlier image does all itself
    assert now["ports"][: len(was["ports"])] == was["ports"]
    fields = {
        each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"]
        for each in now["env"]
        if "valueFrom" in each
    }
    assert fields == {
        "QUORATE_POD": "metadata.name",
        "QUORATE_NAMESPACE": "metadata.namespace",
        "QUORATE_ADDRESS": "status.podIP",
    }


def test_an_executor_has_no_token_and_writes_only_to_its_own_folder() -> None:
    spec = told(validation_job(executors=1)[1]).template["spec"]

    assert spec["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in spec
    assert spec["securityContext"]["runAsNonRoot"] is True
    [container] = spec["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
    assert mounts[EXECUTOR_SECRET]["readOnly"] is True
    assert mounts.keys() == {EXECUTOR_SECRET, EXECUTOR_FOLDER}
    assert mounts[EXECUTOR_FOLDER]["name"].startswith(
        "spark-local-dir-"
    )  # else Spark makes another one


def test_executors_are_agents_guests_and_no_pods_of_the_object() -> None:
    labels = told(validation_job(executors=1)[1]).template["metadata"]["labels"]

    assert labels["app.kubernetes.io/name"] == "quorate"
    assert labels["app.kubernetes.io/component"] == "executor"
    assert "quorate.io/validation" not in labels  # its result is the leading pod's


def test_executors_of_a_validation_get_neither_its_report_nor_the_past() -> None:
    job = validation_job(executors=1, report=CLAIM)[1]

    assert "reports" in str(pod(job)["volumes"])
    assert "reports" not in json.dumps(told(job).template)
    assert HISTORY_VARIABLE not in json.dumps(told(job).template)


def test_executors_of_a_backup_get_its_volume() -> None:
    job = backup_job(CLAIM, executors=1)

    assert pod(job)["volumes"][-1] in told(job).template["spec"]["volumes"]
    assert {"name": "exports", "mountPath": "/exports"} in executor(job)["volumeMounts"]


def test_executors_of_a_backup_get_credentials_and_key_from_secrets() -> None:
    key = {"name": "backups-key"}
    job = backup_job(S3, executors=1, encryptionKeySecretRef=key)

    [leading] = pod(job)["containers"]
    secret = [each for each in leading["env"] if "secretKeyRef" in each.get("valueFrom", {})]
    assert {each["name"] for each in secret} >= {"AWS_SECRET_ACCESS_KEY", "QUORATE_EXPORT_KEY"}
    assert all(each in executor(job)["env"] for each in secret)
    assert {"name": "AWS_EC2_METADATA_DISABLED", "value": "true"} in executor(job)["env"]


def test_users_additions_are_those_of_executors_too() -> None:
    more = {
        "labels": {"team": "books", "app.kubernetes.io/component": "mine"},
        "annotations": {"note": "$(A) $$"},
        "env": [{"name": "TZ", "value": "$(B)"}, {"name": "AWS_EC2_METADATA_DISABLED"}],
        "imagePullSecrets": [{"name": "registry"}],
    }
    job = backup_job(S3, executors=1, podTemplate=more, nodeSelector={"disk": "ssd"})

    template = told(job).template
    assert template["metadata"]["labels"]["team"] == "books"
    assert template["metadata"]["labels"]["app.kubernetes.io/component"] == "executor"
    assert template["metadata"]["annotations"] == {"note": "$(A) $$"}
    assert template["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert template["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    names = [each["name"] for each in executor(job)["env"]]
    assert len(names) == len(set(names))
    assert {"name": "TZ", "value": "$(B)"} in executor(job)["env"]


def test_no_user_says_that_a_run_has_executors() -> None:
    more = {"env": [{"name": EXECUTORS_VARIABLE, "value": "{}"}, {"name": "A"}]}

    [container] = pod(validation_job(podTemplate=more)[1])["containers"]

    names = [each["name"] for each in container["env"]]
    assert "A" in names
    assert EXECUTORS_VARIABLE not in names


async def test_more_than_a_variable_can_have_is_refused_for_good(led: Namespace) -> None:
    account = "/api/v1/namespaces/default/serviceaccounts/quorate-driver"
    led.api.put(account, {"metadata": {"name": "quorate-driver"}})
    for name, size in (("large", 120_000), ("small", 90_000)):
        more = {"env": [{"name": "TZ", "value": "a" * size}]}
        zone = {"name": "books"}
        led.declare("DataValidation", name, zoneRef=zone, executors=1, podTemplate=more)

    def status(name: str) -> Json:
        return dict(led.api.objects[led.path("DataValidation", name)].get("status", {}))

    await until(lambda: status("large").get("phase") == "Refused", "Refused")
    assert "has 118 KiB, and a variable may have 100: write less" in status("large")["message"]
    await until(lambda: status("small").get("phase") == "Running", "Running")
    [job] = [path for path in led.api.objects if "/jobs/" in path]
    assert job.endswith("/small-validation")


async def test_only_the_account_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Json] = []

    async def request(self: KubeApi, method: str, path: str, **more: Any) -> Json:
        asked.append(more["query"])
        return {"metadata": {}}

    monkeypatch.setattr(KubeApi, "_request", request)
    api = KubeApi.__new__(KubeApi)

    assert not [each async for each in api.list("/accounts", name="quorate-driver")]
    assert [each["fieldSelector"] for each in asked] == ["metadata.name=quorate-driver"]


async def test_without_the_account_a_run_with_executors_waits(led: Namespace) -> None:
    another = "/api/v1/namespaces/default/serviceaccounts/default"
    led.api.put(another, {"metadata": {"name": "default"}})
    led.declare("DataValidation", "first", zoneRef={"name": "books"}, executors=1)

    def status() -> Json:
        return dict(led.api.objects[led.path("DataValidation", "first")].get("status", {}))

    await until(lambda: status().get("phase") == "Waiting", "Waiting")
    assert "namespace default has no ServiceAccount quorate-driver" in status()["message"]
    assert not [path for path in led.api.objects if "/jobs/" in path]
    account = "/api/v1/namespaces/default/serviceaccounts/quorate-driver"
    led.api.put(account, {"metadata": {"name": "quorate-driver"}})
    await until(lambda: status().get("phase") == "Running", "Running")
    [job] = [led.api.objects[path] for path in led.api.objects if "/jobs/" in path]
    assert pod(job)["serviceAccountName"] == "quorate-driver"
