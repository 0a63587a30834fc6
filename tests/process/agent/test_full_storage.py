"""No room for more: writers are told as Redis tells them, readers are served, room mends it."""

import random

import pytest
import redis
from redis.exceptions import ResponseError

from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import StartCluster
from quorate_cluster.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]

OOM = "command not allowed when used memory > 'maxmemory'."
MISCONF = "Errors writing to the AOF file"
VALUE = random.Random(1).randbytes(50_000)  # what cannot be compressed


def _fill(client: redis.Redis, prefix: str, writes_max: int) -> tuple[list[str], str]:
    """Write until a write is refused: the keys that were acknowledged, and the refusal."""
    keys: list[str] = []
    for number in range(writes_max):
        key = f"{prefix}-{number}"
        try:
            client.set(key, VALUE)
        except ResponseError as error:
            return keys, f"{type(error).__name__}: {error}"
        keys.append(key)
    raise AssertionError(f"{writes_max} writes of {len(VALUE)} bytes and no refusal")


def _direct(cluster: Cluster) -> redis.Redis:
    return redis.Redis(port=cluster.port("z", "agent-1"), socket_timeout=20)


def _is_writable(client: redis.Redis) -> bool:
    try:
        return bool(client.set("again", VALUE))
    except ResponseError:
        return False


@pytest.mark.parametrize("agents", [1, 3])
def test_a_zone_in_memory_at_its_limit_refuses_writes_until_there_is_room(
    start_cluster: StartCluster, agents: int
) -> None:
    cluster = start_cluster(agents=agents)
    cluster.apply_zone("z", partitions=1, storage="InMemory", maxMemory="8Mi")
    client = cluster.client("z")

    keys, refusal = _fill(client, "fill", 1000)

    assert OOM in refusal
    assert 40 < len(keys) < 8 * 1024 * 1024 // len(VALUE) + 10
    assert {client.get(key) for key in keys} == {VALUE}
    with pytest.raises(ResponseError, match="maxmemory"):
        client.append(keys[0], "more")
    assert client.delete(*keys[:1]) == 1
    for key in keys[1 : len(keys) // 2]:
        client.delete(key)
    wait_until(lambda: _is_writable(client), "room after deletes")
    assert {client.get(key) for key in keys[len(keys) // 2 :]} == {VALUE}


@pytest.mark.needs("small-disk")
def test_a_full_disk_refuses_writes_until_there_is_room(start_cluster: StartCluster) -> None:
    mount = 'mkdir -p "$0" && mount -t tmpfs -o size=192m tmpfs "$0" && exec "$@"'
    cluster = start_cluster(agents=0)
    data = cluster.folder / "agent-1"
    prefix = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, str(data)]
    agent = cluster.define_agent(prefix=prefix)
    agent.start()
    cluster.declare()
    cluster.apply_zone("z", partitions=4)
    filler = agent.data / "filler"
    filler.write_bytes(bytes(96 * 1024 * 1024))
    with _direct(cluster) as client:
        keys, refusal = _fill(client, "fill", 2000)

        assert MISCONF in refusal
        assert {client.get(key) for key in keys} == {VALUE}
        assert agent.is_alive()

        filler.unlink()
        wait_until(lambda: _is_writable(client), "room after the filler is gone", 60)

        assert {client.get(key) for key in keys} == {VALUE}
        more, _ = _fill(client, "more", 2000)
        assert len(more) > 20
        assert {client.get(key) for key in keys + more} == {VALUE}
