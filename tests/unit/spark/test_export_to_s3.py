"""An export in a bucket is the same as one in a folder: moto's server takes the part of S3."""

from collections.abc import Iterator
from hashlib import md5
from pathlib import Path

import pytest
from pyarrow.fs import S3FileSystem

from quorate_s3.server import s3_server
from quorate_spark.exports.export_zone import export_zone
from quorate_spark.exports.import_zone import import_zone
from quorate_spark.exports.manifest import MANIFEST, Manifest, read_manifest
from quorate_spark.exports.old_exports import delete_old
from quorate_spark.exports.target import Target, TargetRefused
from quorate_spark.exports.verify import verify
from quorate_spark.reading.settle import ZoneCopies
from quorate_spark_fixtures.logged_zone import LoggedZone
from quorate_spark_fixtures.scripted_zone import QUICK, listening

pytestmark = pytest.mark.needs("s3-server")

SECRET = "never-to-be-told"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def place(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A URI in an empty bucket; the credentials are in the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    bucket = "bucket-" + md5(bytes(tmp_path)).hexdigest()
    s3 = S3FileSystem(endpoint_override=endpoint, scheme="http", allow_bucket_creation=True)
    s3.create_dir(bucket)
    return f"s3://{bucket}/a/b?endpoint_override={endpoint}&scheme=http&region=us-east-1"


@pytest.fixture
def zone() -> Iterator[LoggedZone]:
    zone = LoggedZone(partitions=2)
    for number in range(50):
        zone.put(b"key-%02d" % number, b"value-%d" % number)
    with listening(zone):
        yield zone


def copies_of(zone: LoggedZone) -> ZoneCopies:
    agents = tuple(agent.address for agent in zone.agents)
    return ZoneCopies("z", agents, zone.cluster, zone.partitions, len(zone.agents))


def test_an_export_goes_to_a_bucket_and_back(place: str, zone: LoggedZone) -> None:
    target = Target(place)

    manifest = export_zone(target, copies_of(zone), "", {}, QUICK, None)

    assert [each.name for each in target.files()] == [
        MANIFEST,
        *(part.file for part in manifest.partitions),
    ]
    assert verify(Target(place), lambda done, total: None) == manifest
    assert SECRET.encode() not in (target.read(MANIFEST) or b"")
    other = LoggedZone(partitions=4)
    with listening(other):
        imported = import_zone(
            target,
            manifest,
            copies_of(other),
            QUICK,
            continues=False,
            into_non_empty=False,
            wait_s=5,
        )
    assert imported.digest == manifest.digest
    with pytest.raises(TargetRefused, match="has an export already"):
        export_zone(target, copies_of(zone), "", {}, QUICK, None)


def test_an_older_export_of_the_schedule_is_deleted_and_leaves_no_object(
    place: str, zone: LoggedZone
) -> None:
    target = Target(place)
    old, other = target.beside("nightly-20260105T030000Z"), target.beside("kept-20260105T030000Z")
    for each, series in ((old, "s"), (other, "t"), (target, "s")):
        export_zone(each, copies_of(zone), "u", {}, QUICK, None, series=series)

    names = ["nightly-20260105T030000Z", "kept-20260105T030000Z"]
    found = delete_old(target, read_manifest(target), names)
    assert found.folders == ("nightly-20260105T030000Z",)
    assert "is no export of this schedule" in found.problem
    listed = {each.name for each in target.beside("").files()}
    assert listed == {"b/", "kept-20260105T030000Z/"}
    for each in (target, other):
        verify(each, lambda done, total: None)


def test_an_export_that_ends_meanwhile_is_left_whole(
    place: str, zone: LoggedZone, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_last = Target.write_last
    ended: list[Manifest] = []

    def write(self: Target, name: str, data: bytes) -> None:
        monkeypatch.setattr(Target, "write_last", write_last)
        ended.append(export_zone(Target(place), copies_of(zone), "", {}, QUICK, None))
        write_last(self, name, data)

    monkeypatch.setattr(Target, "write_last", write)
    with pytest.raises(TargetRefused, match=r"has manifest\.json by now"):
        export_zone(Target(place), copies_of(zone), "", {}, QUICK, None)

    assert verify(Target(place), lambda done, total: None) == ended[0]


def test_an_export_that_does_not_end_leaves_no_object(place: str, zone: LoggedZone) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_zone(Target(place), copies_of(zone), "", {}, QUICK, None, interrupt)

    assert Target(place).files() == []
    with pytest.raises(TargetRefused, match="is no export"):
        read_manifest(Target(place))


def test_a_bucket_that_is_not_there_is_said_without_credentials(
    place: str, zone: LoggedZone
) -> None:
    target = Target(place.replace("bucket-", "basket-"))

    with pytest.raises(TargetRefused) as refused:
        export_zone(target, copies_of(zone), "", {}, QUICK, None)

    assert "s3://basket" in str(refused.value)
    assert SECRET not in str(refused.value)
