"""The Job of a ZoneBackup: its arguments, its volume or credentials, and what is tried again."""

import json
from typing import Any

import pytest

from quorate.wire.exports.zone_backup import ZoneBackup
from quorate.wire.schema.resource import API_VERSION
from quorate_cluster.kubelet_arguments import expanded
from quorate_operator.jobs.backup_job import backup_work
from quorate_operator.jobs.job import Copies, job_of
from quorate_spark import __main__ as program

COPIES = Copies("main", ("10.0.0.1:7100",), 64, 3, "uid-of-books", {"partitions": 64})
CLAIM = {"persistentVolumeClaim": {"claimName": "backups", "path": "books/monday"}}
S3 = {
    "s3": {
        "url": "s3://bucket/books",
        "region": "eu-1",
        "endpoint": "http://minio:9000",
        "credentialsSecretRef": {"name": "keys-of-minio"},
    }
}
Json = dict[str, Any]


def pod(destination: Json, **spec: Any) -> Json:
    made: Json = job(destination, **spec)["spec"]["template"]["spec"]
    return made


def job(destination: Json, copies: Copies = COPIES, **spec: Any) -> Json:
    metadata = {"name": "monday", "namespace": "shop", "uid": "uid-1"}
    head = {"apiVersion": API_VERSION, "kind": "ZoneBackup", "metadata": metadata}
    whole = {"zoneRef": {"name": "books"}, "destination": destination, **spec}
    parsed = ZoneBackup.parse({**head, "spec": whole})
    return job_of(parsed, backup_work(parsed, copies), copies.cluster, "quorate-spark:1")


@pytest.mark.parametrize(
    ("destination", "target"),
    [
        (CLAIM, "/exports/books/monday"),
        (S3, "s3://bucket/books?region=eu-1&endpoint_override=minio:9000&scheme=http"),
        ({"s3": {"url": "s3://bucket/books"}}, "s3://bucket/books"),
    ],
)
def test_the_program_takes_its_arguments(destination: Json, target: str) -> None:
    [container] = pod(destination)["containers"]
    options = program._parser().parse_args(container["args"])

    assert (options.command, options.zone, options.target) == ("export", "books", target)
    assert (options.run, options.zone_uid, options.verify) == ("uid-1", "uid-of-books", True)
    assert options.zone_spec == '{"partitions":64}'
    assert str(options.termination_message) == container["terminationMessagePath"]


def test_the_program_takes_the_base_of_an_incremental_export() -> None:
    metadata = {"name": "monday", "namespace": "shop", "uid": "uid-1"}
    head = {"apiVersion": API_VERSION, "kind": "ZoneBackup", "metadata": metadata}
    spec = {"zoneRef": {"name": "books"}, "destination": CLAIM}
    backup = ZoneBackup.parse({**head, "spec": spec})
    for base in ("", "nightly-20260105T030000Z"):
        work = backup_work(backup, COPIES, "uid-of-nightly", base=base)
        options = program._parser().parse_args(work.arguments)

        assert (options.base_folder, options.base) == (base, "")


def test_a_claim_is_a_volume_of_the_pod() -> None:
    made = pod(CLAIM)
    [container] = made["containers"]

    volumes = {each["name"]: each for each in made["volumes"]}
    assert volumes["exports"]["persistentVolumeClaim"] == {"claimName": "backups"}
    assert {"name": "exports", "mountPath": "/exports"} in container["volumeMounts"]
    assert "env" not in container


def test_credentials_come_from_the_secret_and_stand_nowhere() -> None:
    more = {"env": [{"name": "AWS_ACCESS_KEY_ID", "value": "another"}, {"name": "TZ"}]}
    [container] = pod(S3, podTemplate=more)["containers"]

    env = {each["name"]: each for each in container["env"]}
    assert len(env) == len(container["env"]) == 5
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        assert env[name]["valueFrom"]["secretKeyRef"] == {"name": "keys-of-minio", "key": name}
    assert env["AWS_SESSION_TOKEN"]["valueFrom"]["secretKeyRef"]["optional"] is True
    assert not any("keys-of-minio" in each for each in container["args"])


def test_the_key_of_an_encrypted_export_comes_from_its_secret() -> None:
    """A variable of the user's own does not replace it, and a Secret without it is not optional."""
    more = {"env": [{"name": "QUORATE_EXPORT_KEY", "value": "another"}]}
    for ref, key in (({"name": "keys"}, "key"), ({"name": "keys", "key": "of-june"}, "of-june")):
        [container] = pod(S3, encryptionKeySecretRef=ref, podTemplate=more)["containers"]
        env = {each["name"]: each for each in container["env"]}

        assert len(env) == len(container["env"]) == 5
        chosen = env["QUORATE_EXPORT_KEY"]["valueFrom"]["secretKeyRef"]
        assert chosen == {"name": "keys", "key": key}
        assert env["AWS_ACCESS_KEY_ID"]["valueFrom"]["secretKeyRef"]["name"] == "keys-of-minio"
        assert program._parser().parse_args(container["args"]).encrypted
        assert not any("keys" in each or key in each for each in container["args"])
    [without] = pod(CLAIM)["containers"]
    assert not program._parser().parse_args(without["args"]).encrypted


def test_a_pod_with_credentials_does_not_ask_the_machine_for_its_role() -> None:
    """The library of S3 would, also where it has credentials and a region."""
    without = {"s3": {"url": "s3://backups/monday"}}
    [with_keys], [of_machine] = (pod(place)["containers"] for place in (S3, without))

    disabled = {"name": "AWS_EC2_METADATA_DISABLED", "value": "true"}
    assert disabled in with_keys["env"]
    assert "env" not in of_machine


def test_no_variable_gets_into_an_argument() -> None:
    """Whoever may write a Zone must not get at the keys of the bucket."""
    spec = {"note": "$(AWS_SECRET_ACCESS_KEY) $$(TZ) $"}
    [container] = job(S3, COPIES._replace(spec=spec))["spec"]["template"]["spec"]["containers"]
    env = {"AWS_SECRET_ACCESS_KEY": "hush", "TZ": "UTC"}
    options = program._parser().parse_args(expanded(container["args"], env))

    assert json.loads(options.zone_spec) == spec


def test_an_export_that_is_not_as_written_is_not_read_again() -> None:
    rule = job(CLAIM)["spec"]["podFailurePolicy"]["rules"][0]

    assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailJob", [1])
    assert rule["onExitCodes"]["containerName"] == "backup"
    assert job(CLAIM)["spec"]["backoffLimit"] == 1
