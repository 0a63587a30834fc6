"""With syncWrites Always no answer leaves before its update is on disk: seen in system calls."""

import socket
import threading
from pathlib import Path

import pytest

from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import StartCluster
from quorate_cluster.system_calls import read_calls, replies_before_durable

pytestmark = [pytest.mark.process, pytest.mark.needs("strace")]

CLIENTS = 4
WRITES_EACH = 25
_CALLS = "write,pwrite64,writev,pwritev,sendto,sendmsg,fsync,fdatasync"


def _trace_writes(start_cluster: StartCluster, trace: Path, sync_writes: str) -> list[str]:
    """Write from several clients at once to a traced agent; what was answered too early."""
    # -D: the tracer is the grandchild, so that the pid we know is the agent's.
    strace = ["strace", "-D", "-f", "-yy", "-xx", "-s", "1000000", "-e", f"trace={_CALLS}"]
    cluster = start_cluster(agents=1, prefix=[*strace, "-o", str(trace)])
    cluster.apply_zone("z", partitions=4, syncWrites=sync_writes)
    ports: dict[int, list[bytes]] = {}
    threads = [
        threading.Thread(target=_write, args=(cluster, number, ports)) for number in range(CLIENTS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sum(map(len, ports.values())) == CLIENTS * WRITES_EACH
    cluster.agents["agent-1"].terminate()
    return replies_before_durable(read_calls(trace.read_text().splitlines()), ports)


def _write(cluster: Cluster, number: int, ports: dict[int, list[bytes]]) -> None:
    values = [b"value-%d-%d." % (number, count) for count in range(WRITES_EACH)]
    with socket.create_connection(("127.0.0.1", cluster.port("z", "agent-1")), 20) as client:
        for count, value in enumerate(values):
            key = b"key-%d-%d" % (number, count)
            words = (b"SET", key, value)
            client.sendall(
                b"*3\r\n" + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
            )
            assert client.recv(100) == b"+OK\r\n"
        ports[client.getsockname()[1]] = values


def test_no_answer_precedes_the_sync_of_its_update(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    assert _trace_writes(start_cluster, tmp_path / "trace", "Always") == []


def test_the_same_look_at_a_zone_that_syncs_by_interval_sees_early_answers(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    found = _trace_writes(start_cluster, tmp_path / "trace", "Interval")

    assert len(found) > CLIENTS * WRITES_EACH // 2
