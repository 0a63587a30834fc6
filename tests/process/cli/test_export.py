"""A zone is exported while clients write, and restored into another one, by commands."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow.parquet as pq
import pytest
from redis import RedisCluster

from quorate_cli.dev.dev_cluster import DevCluster
from quorate_cli.objects import resources
from quorate_cluster.meanwhile import meanwhile
from quorate_cluster.waiting import wait_until
from quorate_spark.exports.manifest import MANIFEST, read_manifest
from quorate_spark.exports.target import Target
from quorate_spark_fixtures.exported_zones import LIBRARY, SHELVES, Damageable, Quorate, set_keys

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

KEY_COUNT = 20_000
HOT = 50


def client_of(cluster: DevCluster, zone: str) -> RedisCluster:
    found = resources.zone(resources.fetch(cluster.api(), resources.ZONE, zone))
    host, _, port = found.status.endpoints[0].rpartition(":")
    return RedisCluster(host=host, port=int(port), decode_responses=True)


def available(cluster: DevCluster, zone: str) -> tuple[str, str]:
    found = resources.zone(resources.fetch(cluster.api(), resources.ZONE, zone))
    told = next(each for each in found.status.conditions if each.type == "Available")
    return told.status, told.reason


def exported_rows(target: Target) -> dict[bytes, bytes]:
    rows: dict[bytes, bytes] = {}
    for part in read_manifest(target).partitions:
        table = pq.read_table(Path(target.text) / part.file)
        rows.update(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
    return rows


def kill_when(begun: Callable[[], bool], folder: Path, *arguments: str) -> None:
    """Run a command, and kill all its processes once it has begun."""
    command = [sys.executable, "-m", "quorate_cli", *arguments]
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": paths, "QUORATE_FOLDER": str(folder)}
    with subprocess.Popen(command, env=environment, start_new_session=True) as running:
        wait_until(begun, f"the begin of {arguments[0]}", 60)
        os.killpg(running.pid, signal.SIGKILL)


def test_a_zone_is_restored_into_one_of_other_partitions_and_storage(
    quorate: Quorate, cluster: DevCluster, folder: Path, damageable: Damageable, tmp_path: Path
) -> None:
    target = Target(str(tmp_path / "export"))
    with damageable(LIBRARY, 100) as library:
        set_keys(library, 100, KEY_COUNT)
        library.hset("hash", mapping={"b": "1", "a": "2"})
        library.rpush("list", "x", "y", "z")
        library.sadd("set", "m", "n")
        library.set("lasting", "1", pxat=1_999_999_999_999)

        place = Path(target.text)
        kill_when(lambda: any(place.glob("*.parquet")), folder, "export", "library", target.text)
        left = {path.name for path in place.iterdir()}
        if MANIFEST in left:  # it was killed behind its end
            quorate("verify", target.text)
            rmtree(place)
        else:
            assert "is no export" in quorate("verify", target.text, code=2)
        with meanwhile(lambda number: library.set(f"{{hot}}-{number % HOT}", str(number))):
            said = quorate("export", "library", target.text, "--verify")

        manifest = read_manifest(target)
        assert f"digest {manifest.digest}" in said
        assert {path.name for path in place.iterdir()} & left <= {MANIFEST}
        rows = exported_rows(target)
        hot = {key: int(value) for key, value in rows.items() if key.startswith(b"{hot}")}
        last = max(hot.values())
        assert hot == {b"{hot}-%d" % (n % HOT): n for n in range(last - HOT + 1, last + 1)}, (
            "all keys of the partition are of one moment"
        )
        assert rows[b"key-1234"] == b"value-1234"
        assert "has an export already" in quorate("export", "library", target.text, code=2)

    assert "is not empty" in quorate("import", target.text, "library", code=2)
    (tmp_path / "shelves.yaml").write_text(SHELVES)
    quorate("apply", "-f", str(tmp_path / "shelves.yaml"), "--wait", "60")
    with client_of(cluster, "shelves") as shelves:
        kill_when(lambda: shelves.dbsize() > 0, folder, "import", target.text, "shelves")
        again_with = ["--into-non-empty"]  # if it was killed behind its end
        if "restoring" in quorate("get", "zone", "shelves", "-o", "yaml"):
            quorate("apply", "-f", str(tmp_path / "shelves.yaml"))
            assert available(cluster, "shelves") == ("False", "Restoring")
            again_with = []

        said = quorate("import", target.text, "shelves", "--json", *again_with)
        done: dict[str, Any] = json.loads(said)

        assert done["missing"] == done["differing"] == done["kept"] == done["others"] == 0
        assert (done["rows"], done["digest"]) == (manifest.rows, manifest.digest)
        assert available(cluster, "shelves") == ("True", "AllServing")
        assert shelves.hgetall("hash") == {"b": "1", "a": "2"}
        assert shelves.lrange("list", 0, -1) == ["x", "y", "z"]
        assert shelves.smembers("set") == {"m", "n"}
        assert shelves.pexpiretime("lasting") == 1_999_999_999_999

    again = Target(str(tmp_path / "again"))
    quorate("export", "shelves", again.text)
    assert read_manifest(again).digest == manifest.digest
    assert "is as it was exported" in quorate("verify", again.text)
    quorate("validate", "shelves", "--level", "digest")
    part = Path(again.text) / read_manifest(again).partitions[3].file
    part.write_bytes(part.read_bytes()[:-100])
    assert "is not as it was exported" in quorate("verify", again.text, code=1)
