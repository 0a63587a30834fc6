"""No room for more: writers are told as Redis tells them, readers are served, room mends it."""

import os
import random
from contextlib import suppress
from pathlib import Path

import pytest
import redis
from redis.exceptions import ResponseError

from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import StartCluster
from quorate_cluster.processes import Agent
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


def _on_small_disk(cluster: Cluster, *options: str) -> Agent:
    """One more agent, started on a disk of 192 MiB."""
    mount = 'mkdir -p "$0" && mount -t tmpfs -o size=192m tmpfs "$0" && exec "$@"'
    data = cluster.folder / f"agent-{len(cluster.agents) + 1}"
    prefix = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, str(data)]
    agent = cluster.define_agent(prefix=prefix, options=options)
    agent.start()
    return agent


@pytest.mark.needs("small-disk")
def test_a_full_disk_refuses_writes_until_there_is_room(start_cluster: StartCluster) -> None:
    cluster = start_cluster(agents=0)
    agent = _on_small_disk(cluster)
    cluster.declare()
    cluster.apply_zone("z", partitions=4)
    filler = agent.data / "filler"
    filler.write_bytes(bytes(96 * 1024 * 1024))
    with _direct(cluster) as client:
        keys, refusal = _fill(client, "fill", 2000)

        assert MISCONF in refusal
        assert f"(agent agent-1, {cluster.folder}/agent-1/zones/" in refusal
        assert {client.get(key) for key in keys} == {VALUE}
        assert agent.is_alive()

        filler.unlink()
        wait_until(lambda: _is_writable(client), "room after the filler is gone", 60)

        assert {client.get(key) for key in keys} == {VALUE}
        more, _ = _fill(client, "more", 2000)
        assert len(more) > 20
        assert {client.get(key) for key in keys + more} == {VALUE}


def _condition(cluster: Cluster) -> tuple[str, str]:
    conditions = cluster.zone("z")["status"]["conditions"]
    found = next(each for each in conditions if each["type"] == "StorageFull")
    return found["status"], found["message"]


def _told(cluster: Cluster) -> list[str]:
    """The reasons of what was told of storages."""
    told = cluster.api.ask("GET", "/events?after=1")["events"]
    return [each["reason"] for each in told if each["reason"].startswith("Storage")]


def _refusals(client: redis.Redis) -> dict[str, str]:
    """What became of a write of each of a hundred keys: empty, or the refusal."""
    told = {}
    for number in range(100):
        try:
            client.set(f"key-{number}", VALUE[:100])
        except ResponseError as error:
            told[f"key-{number}"] = str(error)
        else:
            told[f"key-{number}"] = ""
    return told


@pytest.mark.needs("small-disk")
def test_an_agent_whose_disk_is_full_is_named_until_there_is_room(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(agents=2)
    agent = _on_small_disk(cluster)
    cluster.declare()
    cluster.apply_zone("z", partitions=8)
    cluster.wait_quiet("z")
    client = cluster.client("z")
    assert cluster.zone_status("z")["full"] == {}
    assert _condition(cluster) == ("False", "every agent has room")
    filler = agent.data / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 20))

    wait_until(lambda: _condition(cluster)[0] == "True", "the condition StorageFull")

    named = f"{cluster.folder}/agent-3/zones/"
    assert [*cluster.zone_status("z")["full"]] == ["agent-3"]
    assert f"agent agent-3: {named}" in _condition(cluster)[1]
    assert "free space on these disks" in _condition(cluster)[1]
    told = _refusals(client)
    refused = [text for text in told.values() if text]
    assert 0 < len(refused) < len(told), "refused where it is primary, taken where it is not"
    assert all(f"(agent agent-3, {named}" in text for text in refused)
    assert agent.metrics("quorate_storage_full", zone="z") == [1.0]
    assert cluster.agents["agent-1"].metrics("quorate_storage_full", zone="z") == [0.0]

    filler.unlink()

    wait_until(lambda: _condition(cluster)[0] == "False", "the end of StorageFull")
    wait_until(lambda: not any(_refusals(client).values()), "writes of all keys")
    assert _told(cluster) == ["StorageFull", "StorageHasRoom"]
    wait_until(lambda: agent.metrics("quorate_storage_full", zone="z") == [0.0], "the metric")
    log = agent.log_tail(10_000)
    assert log.count("no room, commands that need some are refused") == 1
    assert log.count("there is room again") == 1


@pytest.mark.needs("small-disk")
def test_an_agent_that_cannot_record_a_new_master_or_a_deletion_goes_on_and_does_it_later(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(agents=3)
    agent = _on_small_disk(cluster)
    cluster.declare()
    cluster.apply_zone("z", partitions=8)
    cluster.apply_zone("gone", partitions=8)
    cluster.wait_quiet("z")
    client = cluster.client("z")
    filler = agent.data / "filler"
    _leave_no_room(filler)

    cluster.api.delete("zones", "gone")
    wait_until(lambda: "that it was deleted cannot be" in agent.log_tail(50), "the full disk")
    cluster.operator.terminate()
    cluster.operator.start()

    wait_until(lambda: "cannot be recorded" in _unreached(cluster), "why it takes no part")
    assert f"agent {agent.name}: mastership" in _unreached(cluster)
    assert "free some space on the disk of" in _unreached(cluster)
    cluster.wait_available("z")
    told = {f"key-{number}": client.set(f"key-{number}", VALUE[:100]) for number in range(100)}
    assert all(told.values())
    assert agent.is_alive()

    filler.unlink()

    cluster.wait_online()
    cluster.wait_quiet("z")
    assert {client.get(key) for key in told} == {VALUE[:100]}
    wait_until(lambda: len(cluster.api.status()["zones"]) == 1, "the end of the deleted zone")
    assert len([*(agent.data / "zones").iterdir()]) == 1
    log = agent.log_tail(10_000)
    assert log.count("cannot be recorded: [Errno 28] No space left on device; its master") == 1
    assert "Traceback" not in log


def _leave_no_room(filler: Path) -> None:
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 20))
    with suppress(OSError), filler.open("ab", buffering=0) as file:
        while True:
            file.write(b"0")


def _unreached(cluster: Cluster) -> str:
    found = cluster.api.get("storageclusters", cluster.name)
    return " ".join(each["message"] for each in found["status"]["conditions"])


def _use_up(filler: Path, but: int) -> None:
    """Leave so many bytes on the disk, and never more meanwhile."""
    disk = os.statvfs(filler.parent)
    missing = disk.f_bavail * disk.f_frsize - but
    with filler.open("ab") as file:
        if missing > 0:
            file.write(bytes(missing))
        else:
            file.truncate(file.tell() + missing)


@pytest.mark.needs("small-disk")
def test_a_disk_that_is_nearly_full_is_never_full_by_what_clients_write(
    start_cluster: StartCluster,
) -> None:
    """One agent in three has a disk of 192 MiB, of which a third is to be kept free."""
    cluster = start_cluster(agents=2)
    agent = _on_small_disk(cluster, "--disk-reserve", "64Mi")
    cluster.declare()
    cluster.apply_zone("z", partitions=8)
    cluster.wait_quiet("z")
    client = cluster.client("z")
    assert all(not text for text in _refusals(client).values())
    client.set("expires", VALUE[:100], px=1)
    filler = agent.data / "filler"
    _use_up(filler, but=60 << 20)

    wait_until(lambda: _condition(cluster)[0] == "True", "the condition StorageFull")
    message = _condition(cluster)[1]
    assert f"agent agent-3: {cluster.folder}/agent-3/zones/" in message
    assert "MiB left on the disk, 64 MiB are kept free (--disk-reserve)" in message
    told = _refusals(client)
    refused = [key for key, text in told.items() if text]
    assert 0 < len(refused) < len(told), "refused where it is primary, taken where it is not"
    assert all("64 MiB are kept free" in told[key] for key in refused)

    # Reads, deletes and expiry go on, and so does its part as a backup.
    assert {client.get(key) for key in told} == {VALUE[:100]}
    assert client.delete(refused[0]) == 1
    wait_until(lambda: client.get("expires") is None, "expiry")
    for _ in range(40):  # 2 MiB, little beside what is missing to the end of it
        client.set(next(key for key in told if not told[key]), VALUE)
    assert agent.metrics("quorate_storage_full", zone="z") == [1.0]
    assert agent.metrics("quorate_disk_reserve_bytes") == [64 << 20]
    assert agent.metrics("quorate_disk_free_bytes")[0] < 64 << 20

    # A little room is not enough: else it would be over and begin again all the time.
    _use_up(filler, but=67 << 20)
    wait_until(lambda: agent.metrics("quorate_disk_free_bytes")[0] > 64 << 20, "a little room")
    assert any(_refusals(client).values())

    _use_up(filler, but=100 << 20)
    wait_until(lambda: not any(_refusals(client).values()), "writes of all keys")
    wait_until(lambda: _condition(cluster)[0] == "False", "the end of StorageFull")
    assert _told(cluster) == ["StorageFull", "StorageHasRoom"]
    assert "No space left" not in agent.log_tail(10_000)


@pytest.mark.needs("small-disk")
def test_an_agent_at_the_end_of_its_disk_takes_no_updates_but_promises_and_rows(
    start_cluster: StartCluster,
) -> None:
    """As a backup it would fill the disk with what others' clients write, to the last byte."""
    cluster = start_cluster(agents=2)
    agent = _on_small_disk(cluster)
    cluster.declare()
    cluster.apply_zone("z", partitions=8)
    cluster.wait_quiet("z")
    client = cluster.client("z")
    filler = agent.data / "filler"
    _use_up(filler, but=14 << 20)  # below half of the 32 MiB that are kept of so small a disk
    wait_until(lambda: _condition(cluster)[0] == "True", "the condition StorageFull")
    wait_until(lambda: agent.metrics("quorate_disk_free_bytes")[0] < 16 << 20, "a look at the disk")

    data = {}
    for number in range(600):  # 30 MiB: twice of what is left
        key = f"data-{number}"
        with suppress(ResponseError):  # where it is primary
            client.set(key, VALUE)
            data[key] = VALUE
    assert len(data) > 300
    assert agent.metrics("quorate_disk_free_bytes")[0] > 2 << 20
    cluster.operator.terminate()  # it has to record the next mastership before it obeys
    cluster.operator.start()
    cluster.wait_online()
    cluster.wait_available("z")

    assert {key: client.get(key) for key in data} == data
    assert "No space left" not in agent.log_tail(10_000)
    assert agent.is_alive()

    filler.unlink()
    wait_until(lambda: _condition(cluster)[0] == "False", "the end of StorageFull")
    cluster.wait_quiet("z")
    assert {key: client.get(key) for key in data} == data
    wait_until(lambda: not any(_refusals(client).values()), "writes of all keys")
