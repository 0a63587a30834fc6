"""INFO of a real agent beside that of a real Redis: the same names, the same kinds of values."""

import os
import re
import time

import pytest
import redis

from quorate_differential.info_texts import of_one_kind, read_info
from quorate_differential.raw_replies import RawConnection

pytestmark = [pytest.mark.process, pytest.mark.needs("redis-server")]

WANTED = {
    "server": {"redis_version", "redis_mode", "os", "arch_bits", "multiplexing_api", "process_id",
               "run_id", "tcp_port", "uptime_in_seconds", "uptime_in_days", "executable",
               "server_time_usec", "io_threads_active"},
    "clients": {"connected_clients", "blocked_clients", "tracking_clients"},
    "memory": {"used_memory", "used_memory_rss", "used_memory_peak", "used_memory_dataset",
               "total_system_memory", "maxmemory", "maxmemory_policy"},
    "persistence": {"loading", "aof_enabled"},
    "stats": {"total_connections_received", "rejected_connections", "evicted_keys",
              "pubsub_channels", "pubsub_patterns", "latest_fork_usec"},
    "replication": {"role", "connected_slaves"},
    "cpu": {"used_cpu_sys", "used_cpu_user", "used_cpu_sys_children", "used_cpu_user_children"},
    "cluster": {"cluster_enabled"},
}  # fmt: skip
"""What redis-py's own tests and exporters of metrics read, and an agent knows."""


def _info(port: int, *sections: bytes) -> dict[str, dict[str, str]]:
    with RawConnection("127.0.0.1", port) as connection:
        return read_info(connection.ask([b"INFO", *sections]))


def test_every_field_is_one_of_redis_and_of_its_kind(redis_port: int, agent_port: int) -> None:
    for port in (redis_port, agent_port):
        with RawConnection("127.0.0.1", port) as connection:
            connection.ask_all([[b"FLUSHALL"], [b"SET", b"a", b"1", b"EX", b"1000"]])
    theirs, ours = _info(redis_port), _info(agent_port)

    assert [section for section in theirs if section in ours] == [*ours]
    for section, fields in ours.items():
        own = {name for name in fields if name.startswith("quorate_")}
        assert {*fields} - own <= {*theirs[section]}
        for name in {*fields} - own:
            assert of_one_kind(fields[name], theirs[section][name]), (name, fields[name])
        assert WANTED.get(section, set()) <= {*fields}


@pytest.mark.parametrize(
    "asked", ["server", "clients", "memory", "persistence", "stats", "replication", "cpu",
              "cluster", "keyspace", "nope", "default", "all", "everything"],
)  # fmt: skip
def test_a_section_is_shown_when_it_is_asked_for(
    redis_port: int, agent_port: int, asked: str
) -> None:
    theirs, ours = (_info(port, asked.upper().encode()) for port in (redis_port, agent_port))

    known = {*_info(agent_port)}
    assert [*ours] == [section for section in theirs if section in known]


def test_what_an_agent_says_of_itself_is_true(agent_port: int) -> None:
    with redis.Redis(port=agent_port) as client, redis.Redis(port=agent_port) as other:
        client.flushall()
        other.ping()
        client.execute_command("CLIENT TRACKING", "ON", "BCAST", "PREFIX", "p")
        found = client.info()
        received = found["total_connections_received"]
        pid = found["process_id"]
        assert found["connected_clients"] == 2
        assert found["arch_bits"] == 64
        with open(f"/proc/{pid}/cmdline", "rb") as cmdline:
            assert b"quorate_agent" in cmdline.read()
        assert found["executable"].startswith("/")
        assert re.fullmatch("[0-9a-f]{40}", found["run_id"])
        with open(f"/proc/{pid}/statm", "rb") as statm:
            resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        assert resident / 1.5 < found["used_memory_rss"] < resident * 1.5
        assert found["used_memory_peak"] >= found["used_memory_rss"]
        assert found["aof_enabled"] == ("persistent" in found["quorate_zone"])
        assert found["blocked_clients"] == 0
        assert (found["tracking_clients"], found["tracking_total_prefixes"]) == (1, 1)

        value = bytes(1_000_000)
        client.mset({f"{{t}}{number}": value for number in range(4)})
        for number in range(2):
            client.pexpire(f"{{t}}{number}", 1_000_000)
        client.set("{t}0", b"no longer expires")
        after = client.info()
        assert after["total_connections_received"] == received
        assert 3_000_000 <= after["used_memory_dataset"] < 3_100_000
        assert after["db0"]["keys"] == 4
        assert after["db0"]["expires"] == 1
        assert 900_000 < after["db0"]["avg_ttl"] <= 1_000_000
        assert after["used_cpu_user"] >= found["used_cpu_user"]
        assert after["run_id"] == found["run_id"]

        with other.pubsub() as listener:
            listener.psubscribe("__quorate__:*")
            assert listener.get_message(timeout=10) is not None
            with RawConnection("127.0.0.1", agent_port) as waits:
                waits.send(b"*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$4\r\n9000\r\n")
                deadline = time.monotonic() + 5
                while not client.info("clients")["blocked_clients"]:
                    assert time.monotonic() < deadline
            stats = client.info("stats")
            assert (stats["pubsub_channels"], stats["pubsub_patterns"]) == (0, 1)
            assert stats["total_connections_received"] > received
