"""The operator's file is deleted, damaged or put back to an older copy: said, and rebuilt."""

import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from redis import RedisCluster

from quorate_cluster.client_errors import CLIENT_ERRORS
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import StartCluster
from quorate_cluster.operator_api import ApiError
from quorate_cluster.processes import environment, python
from quorate_cluster.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

KEYS = [f"key-{number}" for number in range(200)]


def _file(cluster: Cluster) -> Path:
    return cluster.operator.data / "metastore.sqlite"


def _write(cluster: Cluster, value: str, zone: str = "z") -> None:
    client = cluster.client(zone)
    for key in KEYS:
        wait_until(lambda key=key: _is_set(client, key, value), f"written {key}")


def _is_set(client: RedisCluster, key: str, value: str) -> bool:
    try:
        return bool(client.set(key, value))
    except CLIENT_ERRORS:
        return False


def _read(cluster: Cluster, zone: str = "z") -> list[bytes | None]:
    client = cluster.client(zone)
    return [client.get(key) for key in KEYS]


def _recover(cluster: Cluster) -> str:
    """As `quorate dev recover` does once the operator is stopped."""
    addresses = ",".join(agent.peer_address for agent in cluster.agents.values())
    where = ("--data", str(cluster.operator.data), "--cluster", cluster.name)
    where = (*where, "--secrets", str(cluster.secret_file.parent))
    done = subprocess.run(
        python("quorate_operator", "recover", *where, "--agents", addresses),
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _start_recovered(cluster: Cluster, *zones: str) -> None:
    """The operator starts, and what agents have is declared again."""
    cluster.operator.start()
    for zone in zones:
        wait_until(lambda zone=zone: _is_declared(cluster, zone), f"zone {zone} declared again")


def _is_declared(cluster: Cluster, zone: str) -> bool:
    try:
        return bool(cluster.zone(zone))
    except ApiError:
        return False


def _problem(cluster: Cluster) -> str:
    """What the StorageCluster says of not being ready."""
    status = cluster.api.get("storageclusters", cluster.name).get("status", {})
    ready = [each for each in status.get("conditions", []) if each["type"] == "Ready"]
    return str(ready[0]["message"]) if ready and ready[0]["status"] == "False" else ""


def _delete(cluster: Cluster) -> str:
    for file in _file(cluster).parent.glob("metastore.sqlite*"):
        file.unlink()
    return "is missing"


def _damage(cluster: Cluster) -> str:
    data = bytearray(_file(cluster).read_bytes())
    data[100:4000] = b"\xff" * 3900
    _file(cluster).write_bytes(bytes(data))
    return "cannot be used"


def _holds(cluster: Cluster, agent: str) -> bool:
    """Whether it has copies by what the operator says."""
    nodes = cluster.api.status()["nodes"]
    return any(node["name"] == agent and node["owners"] for node in nodes)


def _has_record(cluster: Cluster, uid: str) -> bool:
    """Whether the operator's file has a record of the zone."""
    with closing(sqlite3.connect(_file(cluster))) as at:
        found = at.execute("SELECT 1 FROM records WHERE kind = 'zone' AND name = ?", (uid,))
        return found.fetchone() is not None


def _copied(cluster: Cluster) -> Path:
    """A copy of the file as it is now; the operator is started anew."""
    cluster.operator.terminate()
    older = cluster.operator.data / "older"
    shutil.copy(_file(cluster), older)
    cluster.operator.start()
    return older


def _put_back(cluster: Cluster, older: Path) -> None:
    """The file is what it was when it was copied; the operator does not run."""
    _delete(cluster)
    shutil.copy(older, _file(cluster))


@pytest.mark.parametrize("lose", [_delete, _damage])
def test_a_lost_file_is_said_and_rebuilt_from_the_agents(
    start_cluster: StartCluster, lose: Callable[[Cluster], str]
) -> None:
    cluster = start_cluster(agents=3)
    before = cluster.apply_zone("z", partitions=16)
    _write(cluster, "1")
    cluster.operator.terminate()
    said = lose(cluster)

    with pytest.raises(RuntimeError, match=said) as refused:
        cluster.operator.start()
    assert "quorate dev recover" in str(refused.value)
    assert "backups/metastore-" in str(refused.value)
    assert _recover(cluster)
    _start_recovered(cluster, "z")
    after = cluster.wait_quiet("z")

    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"] == before["spec"]
    assert after["status"]["ports"] == before["status"]["ports"]
    assert _read(cluster) == [b"1"] * len(KEYS)
    _write(cluster, "2")
    assert _read(cluster) == [b"2"] * len(KEYS)
    cluster.operator.terminate()  # and once more, as after any other stop
    cluster.operator.start()
    cluster.wait_quiet("z")
    cluster.apply_zone("later", partitions=4)


def test_an_older_file_is_not_obeyed_and_said_and_rebuilt(start_cluster: StartCluster) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=16)
    _write(cluster, "1")
    older = _copied(cluster)
    cluster.wait_quiet("z")
    victim = cluster.agents["agent-2"]
    victim.kill()
    cluster.wait_left("agent-2")
    _write(cluster, "2")
    victim.start()
    cluster.wait_quiet("z")

    cluster.operator.terminate()
    _put_back(cluster, older)
    cluster.operator.start()
    wait_until(lambda: "metastore is older" in _problem(cluster), "a problem that is told")
    said = _problem(cluster)
    assert "quorate dev recover" in said
    assert "backups/metastore-" in said
    assert _read(cluster) == [b"2"] * len(KEYS)  # agents go on

    cluster.operator.terminate()
    assert "set-aside-1" in _recover(cluster)
    _start_recovered(cluster, "z")
    cluster.wait_quiet("z")
    assert _read(cluster) == [b"2"] * len(KEYS)
    _write(cluster, "3")


def test_a_file_from_before_a_zone_was_declared_is_said_to_be_older_and_rebuilt(
    start_cluster: StartCluster,
) -> None:
    """Its rows are as new as the agents': only the zone that it lacks tells that it is older."""
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=16)
    _write(cluster, "1")
    older = _copied(cluster)
    cluster.wait_quiet("z")
    later = cluster.apply_zone("later", partitions=4)
    uid = later["metadata"]["uid"]
    _write(cluster, "2", "later")
    served = cluster.client("later")

    cluster.operator.terminate()
    _put_back(cluster, older)
    for _ in range(2):  # a user starts it again
        cluster.operator.start()
        wait_until(lambda: "metastore is older" in _problem(cluster), "a problem that is told")
        said = _problem(cluster)
        assert f"has data of zone {uid}, and the metastore holds no record of it" in said
        assert "quorate dev recover" in said
        assert "backups/metastore-" in said
        assert [served.get(key) for key in KEYS] == [b"2"] * len(KEYS)  # agents go on
        cluster.operator.terminate()

    assert "set-aside-1" in _recover(cluster)
    _start_recovered(cluster, "z", "later")
    cluster.wait_quiet("z")
    cluster.wait_quiet("later")
    assert cluster.zone("later")["metadata"]["uid"] == uid
    assert _read(cluster) == [b"1"] * len(KEYS)
    assert _read(cluster, "later") == [b"2"] * len(KEYS)
    victim = cluster.agents["agent-2"]
    victim.kill()
    cluster.wait_left("agent-2")
    _write(cluster, "3", "later")  # and it fails over


def test_an_agent_that_comes_back_with_a_deleted_zone_is_no_sign_of_an_older_file(
    start_cluster: StartCluster,
) -> None:
    """It was not told of the deletion, as it was not registered then, and its data stayed."""
    cluster = start_cluster(agents=4)
    cluster.apply_zone("z", partitions=16)
    uid = cluster.apply_zone("gone", partitions=16)["metadata"]["uid"]
    cluster.api.ask("POST", f"/nodes/agent-4/drain?cluster={cluster.name}")
    wait_until(lambda: not _holds(cluster, "agent-4"), "nothing left on agent-4", 60)
    away = cluster.agents["agent-4"]
    away.terminate()
    cluster.api.ask("DELETE", f"/nodes/agent-4?cluster={cluster.name}")
    cluster.delete_zone("gone")
    wait_until(lambda: not _has_record(cluster, uid), "its record deleted")
    assert (away.data / "zones" / uid).is_dir()

    away.start()
    cluster.wait_online("agent-4")
    for _ in range(2):
        cluster.operator.terminate()
        cluster.operator.start()
        cluster.wait_online("agent-4")
        cluster.wait_quiet("z")
    assert _problem(cluster) == ""


def test_with_one_agent_away_what_a_quorum_knows_is_served_and_the_rest_is_named(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(agents=4)
    cluster.apply_zone("z", partitions=16, replicas=3)
    cluster.apply_zone("alone", partitions=8, replicas=1)
    _write(cluster, "1")
    cluster.operator.terminate()
    away = cluster.agents["agent-4"]
    away.kill()
    _delete(cluster)

    assert away.peer_address in _recover(cluster)
    _start_recovered(cluster, "z", "alone")
    cluster.wait_available("z")
    assert _read(cluster) == [b"1"] * len(KEYS)
    _write(cluster, "2")

    def named() -> bool:
        said = str(cluster.zone_status("alone")["sentence"])
        return "waiting for the reports of agent-4" in said

    wait_until(named, "the missing agent named", 30, lambda: cluster.zone_status("alone"))
    assert cluster.zone_status("alone")["unavailable"] == 2
    away.start()
    cluster.wait_available("alone")
    cluster.wait_quiet("z")
    assert _read(cluster) == [b"2"] * len(KEYS)


def test_an_agent_that_was_down_through_two_recoveries_joins_by_itself(
    start_cluster: StartCluster,
) -> None:
    """Masterships went on further than it believes by itself: the other agents tell it."""
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=16)
    _write(cluster, "1")
    away = cluster.agents["agent-3"]
    away.kill()
    cluster.wait_left("agent-3")
    for _ in range(2):
        cluster.operator.terminate()
        _delete(cluster)
        _recover(cluster)
        _start_recovered(cluster, "z")
        cluster.wait_available("z")
    _write(cluster, "2")

    away.start()
    cluster.wait_online("agent-3", timeout_s=15)

    assert "is not believed" in cluster.operator.log.read_text()
    cluster.wait_quiet("z")
    assert _read(cluster) == [b"2"] * len(KEYS)
