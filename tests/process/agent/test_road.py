"""The whole road: a declared zone, and stock clients of Redis Cluster that use it."""

import re
import subprocess

import pytest

from quorate_cluster.cluster import Cluster

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def zone(cluster: Cluster) -> str:
    cluster.apply_zone("road", partitions=16)
    return "road"


def test_a_zone_becomes_available_with_all_copies_and_an_endpoint_on_each_agent(
    cluster: Cluster, zone: str
) -> None:
    status = cluster.wait_quiet(zone)["status"]

    assert status["partitions"]["available"] == 16
    assert sorted(status["dataNodes"]) == sorted(cluster.agents)
    assert len(status["endpoints"]) == len(cluster.agents)


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py_reads_what_it_wrote_to_every_agent(
    cluster: Cluster, zone: str, protocol: int
) -> None:
    client = cluster.client(zone, protocol=protocol)
    keys = [f"redis-py-{protocol}-{number}" for number in range(300)]

    for key in keys:
        assert client.set(key, f"value of {key}") is True

    assert [client.get(key) for key in keys] == [f"value of {key}".encode() for key in keys]
    assert client.get(f"redis-py-{protocol}-absent") is None
    assert len({client.get_node_from_key(key).name for key in keys}) == len(cluster.agents)
    assert client.incr(f"counter-{protocol}") == 1
    assert client.delete(*keys[:1]) == 1
    assert set(client.scan_iter(match=f"redis-py-{protocol}-*", count=100)) == {
        key.encode() for key in keys[1:]
    }


def test_redis_py_pipelines_reach_every_agent(cluster: Cluster, zone: str) -> None:
    client = cluster.client(zone)
    keys = [f"pipelined-{number}" for number in range(500)]
    pipeline = client.pipeline()

    for key in keys:
        pipeline.set(key, key)
    for key in keys:
        pipeline.get(key)

    assert pipeline.execute() == [True] * 500 + [key.encode() for key in keys]


def test_a_large_value_comes_back_whole(cluster: Cluster, zone: str) -> None:
    client = cluster.client(zone)
    value = bytes(range(256)) * 32_768  # 8 MiB

    client.set("large", value)

    assert client.get("large") == value


def test_wait_tells_how_many_other_copies_hold_the_write(cluster: Cluster, zone: str) -> None:
    client = cluster.client(zone)
    node = client.get_node_from_key("waited-for")
    direct = client.get_redis_connection(node)

    with direct.client() as connection:
        connection.set("waited-for", "1")

        assert connection.execute_command("WAIT", "2", "5000") == 2


@pytest.mark.needs("redis-cli")
def test_redis_cli_follows_redirections(cluster: Cluster, zone: str) -> None:
    def run(*command: str) -> str:
        port = str(cluster.port(zone, "agent-1"))
        words = ["redis-cli", "-c", "-h", "127.0.0.1", "-p", port, *command]
        return subprocess.run(words, capture_output=True, text=True, timeout=30, check=True).stdout

    for number in range(20):
        assert run("SET", f"cli-{number}", f"value {number}") == "OK\n"
    found = [run("GET", f"cli-{number}") for number in range(20)]

    assert found == [f"value {number}\n" for number in range(20)]


@pytest.mark.needs("redis-benchmark")
def test_redis_benchmark_runs_against_the_whole_cluster(cluster: Cluster, zone: str) -> None:
    port = str(cluster.port(zone, "agent-2"))
    words = ["redis-benchmark", "--cluster", "-h", "127.0.0.1", "-p", port]
    words += ["-t", "set,get", "-n", "3000", "-c", "10", "-d", "100", "--csv"]

    done = subprocess.run(words, capture_output=True, text=True, timeout=100)

    assert done.returncode == 0, done.stderr + done.stdout
    assert "Cluster has 3 master nodes" in done.stdout
    assert re.search(r'^"SET","[0-9]', done.stdout, re.M)
    assert re.search(r'^"GET","[0-9]', done.stdout, re.M)
    assert "error" not in (done.stdout + done.stderr).lower()
