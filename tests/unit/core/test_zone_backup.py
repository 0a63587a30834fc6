"""The kind ZoneBackup: where an export may go, and that a refusal never shows credentials."""

from typing import Any

import pytest

from quorate.facts.errors import WireError
from quorate.wire.exports.export_result import (
    ExportResult,
    RunOutcome,
    decode_export_result,
    encode_export_result,
)
from quorate.wire.exports.zone_backup import ZoneBackup
from quorate.wire.jobs.validation_result import MESSAGE_BYTES_MAX
from quorate.wire.schema.resource import API_VERSION

CLAIM = {"claimName": "backups", "path": "books/monday"}


def manifest(destination: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "ZoneBackup",
        "metadata": {"name": "monday"},
        "spec": {"zoneRef": {"name": "books"}, "destination": destination, **spec},
    }


@pytest.mark.parametrize(
    ("destination", "text"),
    [
        ({"persistentVolumeClaim": CLAIM}, "backups:books/monday"),
        ({"s3": {"url": "s3://b/books", "region": "eu-1"}}, "s3://b/books?region=eu-1"),
    ],
)
def test_a_place_is_told_without_the_pods_path(destination: dict[str, Any], text: str) -> None:
    assert ZoneBackup.parse(manifest(destination)).spec.destination.text == text


@pytest.mark.parametrize(
    ("destination", "said"),
    [
        ({}, "spec.destination.s3: write persistentVolumeClaim or s3, one of them"),
        (
            {"persistentVolumeClaim": CLAIM, "s3": {"url": "s3://b/c"}},
            "write persistentVolumeClaim or s3, one of them",
        ),
        ({"persistentVolumeClaim": {**CLAIM, "path": "../x"}}, "path is ../x: "),
        ({"persistentVolumeClaim": {**CLAIM, "path": "/x"}}, "path is /x: "),
        ({"persistentVolumeClaim": {"path": "x"}}, "claimName is missing"),
        ({"s3": {"url": "s3://b"}}, "s3.url: write s3://BUCKET/FOLDER"),
        ({"s3": {"url": "https://b/c"}}, "s3.url: write s3://BUCKET/FOLDER"),
        ({"s3": {"url": "s3://b/c", "endpoint": "minio:9000"}}, "write https://HOST:PORT"),
        ({"s3": {"url": "s3://b/c", "secret": "x"}}, "secret is not a known field"),
    ],
)
def test_a_bad_place_is_refused_with_the_field(destination: dict[str, Any], said: str) -> None:
    with pytest.raises(WireError) as refused:
        ZoneBackup.parse(manifest(destination))

    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("ref", "said"),
    [
        ({}, "spec.encryptionKeySecretRef.name is missing"),
        ({"name": "keys", "key": "of june"}, "spec.encryptionKeySecretRef.key is of june: "),
        ({"name": ""}, "spec.encryptionKeySecretRef.name"),
        ({"name": "keys", "value": "x"}, "value is not a known field"),
    ],
)
def test_a_bad_reference_to_a_key_is_refused_with_the_field(ref: dict[str, str], said: str) -> None:
    place = {"persistentVolumeClaim": CLAIM}

    with pytest.raises(WireError) as refused:
        ZoneBackup.parse(manifest(place, encryptionKeySecretRef=ref))

    assert said in str(refused.value)


@pytest.mark.parametrize(
    "s3",
    [
        {"url": "s3://AKIAKEY:hush@b/c"},
        {"url": "s3://b/c?access_key=AKIAKEY&secret_key=hush"},
        {"url": "s3://b/c", "endpoint": "https://AKIAKEY:hush@minio:9000"},
    ],
)
def test_a_refusal_shows_no_credentials(s3: dict[str, str]) -> None:
    with pytest.raises(WireError) as refused:
        ZoneBackup.parse(manifest({"s3": s3}))

    assert "hush" not in str(refused.value)
    assert "AKIAKEY" not in str(refused.value)


def test_a_backup_is_never_changed() -> None:
    stored = ZoneBackup.parse(manifest({"persistentVolumeClaim": CLAIM}))

    with pytest.raises(WireError, match="create another one"):
        ZoneBackup.parse(manifest({"s3": {"url": "s3://b/c"}}), stored)


def test_a_result_is_read_as_it_was_written_and_fits() -> None:
    whole = ExportResult(RunOutcome.COMPLETE, "0011aabb", 20, 300, "f" * 32)
    assert decode_export_result(encode_export_result(whole).decode()) == whole
    made = ExportResult(
        RunOutcome.COMPLETE, base="00aa", partitions_from_base=0, partitions_read_whole=4
    )
    assert decode_export_result(encode_export_result(made).decode()) == made
    long = ExportResult(RunOutcome.COMPLETE, read_whole="x" * 5000)
    assert len(encode_export_result(long)) < 300

    message = encode_export_result(ExportResult(RunOutcome.FAILED, reason="ü\0" * 5000))

    assert len(message) <= MESSAGE_BYTES_MAX
    assert decode_export_result(message.decode()).outcome is RunOutcome.FAILED


@pytest.mark.parametrize("message", ["", "Killed", "{}", '{"outcome":"Perhaps"}'])
def test_other_last_words_are_no_result(message: str) -> None:
    with pytest.raises(WireError, match="no result of an export"):
        decode_export_result(message)
