"""Metrics of an agent's storage: how far its logs reach, and what zones take on disk and in
memory."""

import errno
import threading
import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from quorate.protocol.settings import DEFAULTS
from quorate_agent.clients.memory import ClientMemory
from quorate_agent.folder import disk_use
from quorate_agent.folder.disk_room import DiskRoom
from quorate_agent.folder.disk_use import DiskUse, bytes_in
from quorate_agent.metrics import AgentMetrics, Engine
from quorate_agent.storage.memory import MemoryStorage
from quorate_agent.storage.rocks import RocksStorage
from quorate_link import LinkCounters
from quorate_lone_agent.agent import Agent, key_in
from quorate_lone_agent.clock import MovedClock

MINUTE_MS = 60_000
ZONE = (("zone", "books"),)


def _registry(folder: Path, agent: Agent, engines: dict[str, Engine]) -> CollectorRegistry:
    metrics = AgentMetrics()
    disk = DiskRoom(folder)
    metrics.observe(
        lambda: [agent.replicas], engines, lambda: True, LinkCounters(), disk, ClientMemory()
    )
    return metrics.registry


def _value(registry: CollectorRegistry, name: str) -> float | None:
    return registry.get_sample_value(name, dict(ZONE))


def _minutes(agent: Agent, count: int) -> None:
    for _ in range(count):
        agent.tick(MINUTE_MS)


def test_the_logs_reach_as_far_as_the_shortest_of_them(tmp_path: Path) -> None:
    agent = Agent(memory_bytes=1 << 30)
    registry = _registry(tmp_path, agent, {})
    _minutes(agent, 11)
    full, small = key_in(0), key_in(1)
    agent.write(b"SET", small, b"v")
    before = _value(registry, "quorate_log_reach_seconds")
    share = DEFAULTS.log_bytes_max // 4
    for _ in range(3):
        agent.write(b"SET", full, bytes(share // 2))
    _minutes(agent, 2)
    after = _value(registry, "quorate_log_reach_seconds")
    log_from = agent.replicas.copies[0].log_from

    assert before == pytest.approx(600, abs=5)
    assert log_from > 0
    assert after == pytest.approx(60, abs=5), (
        "writes of the last two minutes only: older ones were cut"
    )
    assert _value(registry, "quorate_log_reach_updates") == 3 - log_from
    assert _value(registry, "quorate_log_reach_bytes") == pytest.approx(
        (3 - log_from) * share / 2, rel=0.01
    )


def test_a_log_that_was_never_cut_has_no_bound_in_updates(tmp_path: Path) -> None:
    agent = Agent()
    registry = _registry(tmp_path, agent, {})
    agent.write(b"SET", key_in(0), b"v")

    assert _value(registry, "quorate_log_reach_updates") is None
    assert _value(registry, "quorate_log_reach_bytes") is None


def test_a_partition_that_is_not_written_shortens_nothing(tmp_path: Path) -> None:
    agent = Agent()
    registry = _registry(tmp_path, agent, {})
    agent.write(b"SET", key_in(0), b"v")
    _minutes(agent, 70)

    assert agent.replicas.copies[0].log_from == agent.replicas.copies[0].lwm == 1
    assert _value(registry, "quorate_log_reach_updates") is None
    reach_s = _value(registry, "quorate_log_reach_seconds")
    assert reach_s == pytest.approx(3540, abs=5), "an hour, to the minute"


def test_without_a_partition_that_is_served_here_nothing_is_said_of_logs(tmp_path: Path) -> None:
    agent = Agent()
    registry = _registry(tmp_path, agent, {})
    _minutes(agent, 2)
    agent.replicas.roles.clear()

    assert _value(registry, "quorate_log_reach_seconds") is None


def test_a_zone_in_memory_takes_memory_and_no_disk(tmp_path: Path) -> None:
    agent = Agent()
    storage = agent.replicas.storage
    assert isinstance(storage, MemoryStorage)
    registry = _registry(tmp_path, agent, {agent.replicas.uid: storage})
    key = key_in(0)
    agent.write(b"SET", key, b"v" * 1000)

    assert _value(registry, "quorate_data_bytes") == pytest.approx(1000 + len(key), abs=20)
    assert 1000 < (_value(registry, "quorate_log_bytes") or 0) < 1500
    assert 2000 < (_value(registry, "quorate_zone_memory_bytes") or 0) < 3000
    assert _value(registry, "quorate_zone_disk_bytes") is None


def test_a_zone_on_disk_takes_what_its_files_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_use, "WAIT_S", 10.0)
    agent = Agent()
    storage = RocksStorage(tmp_path / "zone")
    registry = _registry(tmp_path, agent, {agent.replicas.uid: storage})
    storage.log_put(0, 1, 1, b"x" * 100_000)
    storage.log_put(1, 1, 1, b"x" * 1_000)
    storage.commit()
    storage.sync()

    disk = _value(registry, "quorate_zone_disk_bytes")
    memory = _value(registry, "quorate_zone_memory_bytes")
    log = _value(registry, "quorate_log_bytes")
    storage.close()

    assert log == 101_000
    assert disk is not None
    assert disk > 101_000
    assert memory is not None
    assert memory > 101_000
    assert _value(registry, "quorate_zone_memory_bytes") == 0, "it is closed"


def test_folders_are_measured_with_their_subfolders(tmp_path: Path) -> None:
    (tmp_path / "values").mkdir()
    for file in (tmp_path / "a", tmp_path / "values" / "1"):
        file.write_bytes(bytes(range(256)) * 64)

    assert 2 * 16_384 <= bytes_in(tmp_path) <= 2 * 16_384 + 8192
    assert bytes_in(tmp_path / "gone") == 0


def test_a_folder_is_measured_once_a_minute_and_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, looks = MovedClock(), list[Path]()

    def look(folder: Path) -> int:
        looks.append(folder)
        return len(looks)

    monkeypatch.setattr(disk_use, "bytes_in", look)
    monkeypatch.setattr(disk_use, "FOLDERS_MAX", 2)
    monkeypatch.setattr(disk_use, "WAIT_S", 10.0)
    use = DiskUse(clock)
    folders = {name: tmp_path / name for name in "abc"}

    assert use.measure(folders) == {"a": 1, "b": 2}
    assert use.measure(folders) == {"a": 1, "b": 2, "c": 3}
    assert use.measure(folders) == {"a": 1, "b": 2, "c": 3}
    clock.passed_ahead_s += 60
    assert use.measure(folders) == {"a": 4, "b": 5, "c": 3}
    del folders["a"]
    assert use.measure(folders) == {"b": 5, "c": 6}
    assert looks == [tmp_path / name for name in "abcabc"]


def test_a_folder_that_cannot_be_read_is_left_out_and_the_others_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = MovedClock()

    def look(folder: Path) -> int:
        if folder.name == "b" and clock.passed_ahead_s < 60:
            raise OSError(errno.EIO, "Input/output error")
        return 1

    monkeypatch.setattr(disk_use, "bytes_in", look)
    monkeypatch.setattr(disk_use, "WAIT_S", 10.0)
    use = DiskUse(clock)
    folders = {name: tmp_path / name for name in "abc"}

    assert use.measure(folders) == {"a": 1, "c": 1}
    clock.passed_ahead_s += 60
    assert use.measure(folders) == {"a": 1, "b": 1, "c": 1}


def test_a_slow_disk_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()

    def look(folder: Path) -> int:
        goes_on.wait(30)
        return 7

    monkeypatch.setattr(disk_use, "bytes_in", look)
    use, folders = DiskUse(MovedClock()), {"a": tmp_path}

    began_s = time.perf_counter()
    assert use.measure(folders) == {}
    assert use.measure(folders) == {}
    assert time.perf_counter() - began_s < 10
    goes_on.set()
    monkeypatch.setattr(disk_use, "WAIT_S", 10.0)

    assert use.measure(folders) == {"a": 7}
