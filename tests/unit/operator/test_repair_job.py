"""The Job of a ZoneRepair: its arguments, its volume or credentials, and what is tried again."""

from typing import Any

import pytest

from quorate.wire.jobs.zone_repair import ZoneRepair
from quorate.wire.schema.resource import API_VERSION
from quorate_operator.jobs.job import Copies, job_of
from quorate_operator.jobs.repair_job import repair_work
from quorate_spark import __main__ as program

COPIES = Copies("main", ("10.0.0.1:7100",), 64, 3, "id-of-books", {}, "uid-of-books")
CLAIM = {"persistentVolumeClaim": {"claimName": "backups", "path": "books/one"}}
S3 = {"s3": {"url": "s3://bucket/books", "credentialsSecretRef": {"name": "keys"}}}
DIGEST = "0a" * 32
Json = dict[str, Any]
DRY = {"strategy": "RELATIVE_MAJORITY", "level": "Digest", "destination": CLAIM}
QUOTED = {"plan": {"source": CLAIM, "digest": DIGEST}, "dryRun": False}
AT_ONCE = {"strategy": "LWW", "destination": S3, "dryRun": False, "withoutReview": True}


def job(**spec: Any) -> Json:
    metadata = {"name": "one", "namespace": "shop", "uid": "uid-1"}
    head = {"apiVersion": API_VERSION, "kind": "ZoneRepair", "metadata": metadata}
    parsed = ZoneRepair.parse({**head, "spec": {"zoneRef": {"name": "books"}, **spec}})
    return job_of(parsed, repair_work(parsed, COPIES), COPIES.cluster, "quorate-spark:1")


@pytest.mark.parametrize(
    ("spec", "strategy", "digest", "executes"),
    [
        (DRY, "RELATIVE_MAJORITY", None, False),
        (QUOTED, None, DIGEST, True),
        (AT_ONCE, "LWW", None, True),
    ],
)
def test_the_program_takes_its_arguments(
    spec: Json, strategy: str | None, digest: str | None, executes: bool
) -> None:
    made = job(**spec)
    [container] = made["spec"]["template"]["spec"]["containers"]
    options = program._parser().parse_args(container["args"])

    assert (options.command, options.zone, options.run) == ("repair-run", "books", "uid-1")
    assert (options.strategy, options.digest, options.execute) == (strategy, digest, executes)
    assert (options.zone_uid, options.partitions) == ("id-of-books", 64)
    assert str(options.termination_message) == container["terminationMessagePath"]
    # Only what writes is waited for by others that write.
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert labels.get("quorate.io/zone-uid") == ("uid-of-books" if executes else None)
    assert labels["quorate.io/repair"] == "one"


def test_the_place_of_a_plan_can_be_written_also_if_it_is_only_executed() -> None:
    """The pod notes there that keys may be changed."""

    def mount(spec: Json) -> Json:
        [container] = job(**spec)["spec"]["template"]["spec"]["containers"]
        return next(each for each in container["volumeMounts"] if each["name"] == "exports")

    assert "readOnly" not in mount(QUOTED)
    assert "readOnly" not in mount(DRY)


def test_credentials_come_from_the_secret() -> None:
    [container] = job(**AT_ONCE)["spec"]["template"]["spec"]["containers"]
    env = {each["name"]: each for each in container["env"]}

    assert env["AWS_ACCESS_KEY_ID"]["valueFrom"]["secretKeyRef"]["name"] == "keys"


def test_an_end_that_another_pod_would_find_is_final() -> None:
    spec = job(**DRY)["spec"]
    rule = spec["podFailurePolicy"]["rules"][0]

    assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailJob", [1])
    assert rule["onExitCodes"]["containerName"] == "repair"
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (1, 6 * 3600)
