"""Drivers of the servers: redis-benchmark, a raw loader, a closed loop that notes latencies."""

import csv
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from figures.rounds import Run

from quorate.facts.keyspace import SLOT_COUNT

CLIENTS = 50
VALUE_BYTES = 100
KEYS = 100_000
KEYS_OF_SLOT = KEYS // SLOT_COUNT
_CHUNK = 1000


def redis_benchmark(
    port: int,
    command: str,
    requests: int,
    *,
    pids: Sequence[int] = (),
    pipeline: int = 1,
    cluster: bool = False,
    keys_of_slot: int = KEYS_OF_SLOT,
) -> Run:
    """One run over random keys, with the CPU seconds of the servers `pids`.

    In a cluster redis-benchmark makes `keys_of_slot` of each slot; those of a pipeline are of one.
    """
    keys = keys_of_slot if cluster else KEYS
    words = ["redis-benchmark", "-h", "127.0.0.1", "-p", str(port), "-t", command.lower()]
    words += ["-c", str(CLIENTS), "-n", str(requests), "-d", str(VALUE_BYTES), "-r", str(keys)]
    words += ["-P", str(pipeline), "--csv", *(["--cluster"] if cluster else [])]
    servers, client = cpu_s(pids), _children_cpu_s()
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=600).stdout
    used = [cpu_s(pids) - servers, _children_cpu_s() - client]
    each = [one * 100_000 / requests for one in used]
    for line in csv.reader(said.splitlines()):
        if line and line[0] == command.upper():
            _name, rate, _average, _least, p50, _p95, p99, *_rest = line
            return Run(float(rate), float(p50), float(p99), *each)
    raise RuntimeError(f"{' '.join(words)} said no figure: {said[-300:]}")


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cpu_s(pids: Sequence[int]) -> float:
    """CPU seconds, user and system, that the processes have used so far."""
    total = 0.0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def load(port: int, count: int, value_bytes: int, prefix: str = "key") -> None:
    """Write `count` keys to the one server that has all slots, pipelined."""
    value = os.urandom(value_bytes)
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        for start in range(0, count, _CHUNK):
            keys = [
                f"{prefix}:{number:012d}".encode()
                for number in range(start, min(start + _CHUNK, count))
            ]
            connection.sendall(b"".join(_set(key, value) for key in keys))
            missing = 5 * len(keys)  # of "+OK" and its line end
            while missing:
                answer = connection.recv(missing)
                if not answer or b"-" in answer:
                    raise RuntimeError(f"loading: {answer[:100]!r}")
                missing -= len(answer)


def _set(key: bytes, value: bytes) -> bytes:
    sizes = len(key), key, len(value), value
    return b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % sizes


class ClosedLoop:
    """One stock client in a process of its own: SET and GET by turns, each waited for.

    `stop` answers its latencies in milliseconds with the time (monotonic) at which each ended; what
    its commands failed with is in `failed` then.
    """

    def __init__(self, endpoints: Sequence[tuple[str, int]]) -> None:
        script = str(Path(__file__).with_name("closed_loop.py"))
        self.failed: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, script, json.dumps([*endpoints])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()  # it runs

    def stop(self) -> list[tuple[float, float]]:
        said, _ = self._process.communicate("stop\n", timeout=60)
        found: dict[str, Any] = json.loads(said)
        self.failed = found["failed"]
        return [(float(at), float(took)) for at, took in found["took"]]


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)
