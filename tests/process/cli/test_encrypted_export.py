"""A zone is exported encrypted, and imported into another one, by commands on a real cluster."""

import json
import random
from base64 import b64encode
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from redis import RedisCluster

from quorate_cluster.waiting import wait_until
from quorate_spark.exports.export_key import read_key
from quorate_spark.exports.manifest import MANIFEST, opened, read_manifest
from quorate_spark.exports.target import Target

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

LIBRARY = """
apiVersion: quorate.io/v1alpha1
kind: Zone
metadata: {name: library}
spec: {clusterRef: {name: main}, partitions: 4, replicas: 3}
"""
SHELVES = """
apiVersion: quorate.io/v1alpha1
kind: Zone
metadata: {name: shelves}
spec: {clusterRef: {name: main}, partitions: 16, replicas: 2, storage: InMemory}
"""
KNOWN = 200

Quorate = Callable[..., str]
Damageable = Callable[[str, int], AbstractContextManager[RedisCluster]]


def unguessable(number: int) -> bytes:
    """Return bytes that compression hardly shortens: in a file in the clear they are as such."""
    return random.Random(f"{number}").randbytes(48)


def rows_found(folder: Path) -> int:
    """Return how many of the known keys and values are in some file of an export."""
    whole = b"".join(path.read_bytes() for path in folder.iterdir())
    return sum(unguessable(number) in whole for number in range(2 * KNOWN))


def digest_in(said: str) -> str:
    [line] = [line for line in said.splitlines() if line.startswith("digest ")]
    return line.removeprefix("digest ").split(",")[0]


def test_an_encrypted_export_shows_nothing_and_is_imported_by_its_key_alone(
    quorate: Quorate, damageable: Damageable, tmp_path: Path
) -> None:
    for name in ("right.key", "wrong.key"):
        path = tmp_path / name
        path.write_text(f"{b64encode(random.Random(name).randbytes(32)).decode()}\n")
        path.chmod(0o600)
    right, wrong = (f"--encryption-key-file={tmp_path}/{name}.key" for name in ("right", "wrong"))
    key = read_key(tmp_path / "right.key")
    assert key is not None
    clear, place, other = (tmp_path / name for name in ("clear", "encrypted", "other"))
    with damageable(LIBRARY, 0) as library:
        for number in range(KNOWN):
            library.set(unguessable(number), unguessable(KNOWN + number))
        quorate("export", "library", str(clear))
        said = quorate("export", "library", str(place), right, "--verify")
        quorate("export", "library", str(other), right)

    assert f"encrypted with key {key.id}" in said
    digest = digest_in(said)
    assert digest == read_manifest(Target(str(clear))).digest
    assert rows_found(clear) > KNOWN, "this is how they would be found"
    assert rows_found(place) == rows_found(other) == 0
    assert digest not in (place / MANIFEST).read_text()
    assert f"{place} is as it was exported" in quorate("verify", str(place), right)

    assert "and the key" in quorate("verify", str(place), wrong, code=2)
    assert "no key is given" in quorate("verify", str(place), code=2)
    assert "is not encrypted" in quorate("verify", str(clear), right, code=2)

    (tmp_path / "shelves.yaml").write_text(SHELVES)
    quorate("apply", "-f", str(tmp_path / "shelves.yaml"), "--wait", "60")
    assert "and the key" in quorate("import", str(place), "shelves", wrong, code=2)
    assert "restoring" not in quorate("get", "zone", "shelves", "-o", "yaml")

    parts = [
        place / part.file
        for part in opened(Target(str(place)), read_manifest(Target(str(place))), key).partitions
    ]
    of_other = sorted(other.glob("partition-00001-*"))[0]
    before = parts[1].read_bytes()
    byte = bytearray(before)
    byte[len(before) // 2] ^= 1
    for data in (bytes(byte), parts[2].read_bytes(), of_other.read_bytes()):
        parts[1].write_bytes(data)
        assert f"{parts[1].name} was changed" in quorate("verify", str(place), right, code=1)
    assert "nothing is imported" in quorate("import", str(place), "shelves", right, code=2)
    parts[1].write_bytes(before)

    said = quorate("import", str(place), "shelves", right, "--json")
    assert (json.loads(said)["digest"], json.loads(said)["missing"]) == (digest, 0)
    wait_until(lambda: "True" in quorate("get", "zones"), "the zone is Available", 60)
    again = quorate("export", "shelves", str(tmp_path / "again"), right)
    assert digest_in(again) == digest
