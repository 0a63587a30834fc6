"""A zone is exported encrypted, and imported into another one, by commands on a real cluster."""

import json
import random
from base64 import b64encode
from pathlib import Path

import pytest

from quorate.wire.restoring import RESTORING
from quorate_cli.dev.dev_cluster import DevCluster
from quorate_cli.objects import resources
from quorate_spark.exports.export_key import read_key
from quorate_spark.exports.manifest import MANIFEST, open_manifest, read_manifest
from quorate_spark.exports.target import Target
from quorate_spark_fixtures.exported_zones import LIBRARY, SHELVES, Damageable, Quorate

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

KNOWN = 200


def unguessable(number: int) -> bytes:
    """Return bytes that compression hardly shortens: in a file in the clear they are as such."""
    return random.Random(f"{number}").randbytes(48)


def rows_found(folder: Path) -> int:
    """Return how many of the known keys and values are in some file of an export."""
    whole = b"".join(path.read_bytes() for path in folder.iterdir())
    return sum(unguessable(number) in whole for number in range(2 * KNOWN))


def test_an_encrypted_export_shows_nothing_and_is_imported_by_its_key_alone(
    quorate: Quorate, cluster: DevCluster, damageable: Damageable, tmp_path: Path
) -> None:
    for name in ("right.key", "wrong.key"):
        path = tmp_path / name
        path.write_text(f"{b64encode(random.Random(name).randbytes(32)).decode()}\n")
        path.chmod(0o600)
    right, wrong = (f"--encryption-key-file={tmp_path}/{name}.key" for name in ("right", "wrong"))
    key, place = read_key(tmp_path / "right.key"), tmp_path / "encrypted"
    assert key is not None
    with damageable(LIBRARY, 0) as library:
        for number in range(KNOWN):
            library.set(unguessable(number), unguessable(KNOWN + number))
        said = quorate("export", "library", str(place), right)

    target = Target(str(place))
    manifest = open_manifest(target, read_manifest(target), key)
    assert f"encrypted with key {key.id}" in said
    assert f"digest {manifest.digest}" in said
    assert rows_found(place) == 0
    assert manifest.digest not in (place / MANIFEST).read_text()
    said = quorate("verify", str(place), right)
    assert f"encrypted with key {key.id}\ndigest {manifest.digest}" in said

    assert "and the key" in quorate("verify", str(place), wrong, code=2)
    (tmp_path / "shelves.yaml").write_text(SHELVES)
    quorate("apply", "-f", str(tmp_path / "shelves.yaml"), "--wait", "60")
    assert "and the key" in quorate("import", str(place), "shelves", wrong, code=2)
    shelves = resources.zone(resources.fetch(cluster.api(), resources.ZONE, "shelves"))
    assert RESTORING not in shelves.metadata.annotations

    first, second = (place / part.file for part in manifest.partitions[:2])
    before = first.read_bytes()
    byte = bytearray(before)
    byte[len(before) // 2] ^= 1
    for data in (bytes(byte), second.read_bytes()):
        first.write_bytes(data)
        assert f"{first.name} was changed" in quorate("verify", str(place), right, code=1)
    first.write_bytes(before)

    done = json.loads(quorate("import", str(place), "shelves", right, "--json"))
    assert (done["rows"], done["digest"]) == (KNOWN, manifest.digest)
    assert done["missing"] == done["differing"] == done["others"] == 0
