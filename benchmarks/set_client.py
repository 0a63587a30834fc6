"""Connections that write, ask for copies if told so, and wait for the answer, over and over.

    set_client.py PORT CONNECTIONS PIPELINE WAIT SECONDS FIRST

Every connection goes to the primary of its keys (PORT is any of the cluster's) and sends PIPELINE
times SET, then `WAIT n 0` where WAIT is not 0, in one piece.  Says `ready`, begins when its input
has a line, prints one JSON object.  Raw sockets and answers compared as bytes: what it costs itself
is in the object, and must stay well below one CPU.
"""

import itertools
import json
import select
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from quorate_cluster.flood import commands
from quorate_cluster.processes import HOST
from quorate_cluster.routing import keys_by_port
from quorate_differential.raw_replies import encode_command

KEYS = 100_000
VALUE = b"v" * 100
LATENCY_UNIT_S = 1e-5
_STRIDE = 7919
"""Connections walk over the keys from different places, in steps that meet all of them."""


class _Line:
    """One connection with one request outstanding."""

    def __init__(self, port: int, requests: Iterator[bytes], answer: bytes) -> None:
        self._requests = requests
        self._answer = answer
        self._got = b""
        self._sent = 0.0
        self.socket = socket.create_connection((HOST, port), 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self) -> None:
        self._sent = time.perf_counter()
        self.socket.sendall(next(self._requests))

    def take(self) -> float:
        """Seconds from the request to the whole answer; 0.0 until that is there."""
        self._got += self.socket.recv(1 << 16)
        if self._got == self._answer:
            self._got = b""
            return time.perf_counter() - self._sent
        if not self._got or not self._answer.startswith(self._got):
            raise RuntimeError(f"answer {self._got[:200]!r} is not {self._answer!r}")
        return 0.0


def _requests(sets: Sequence[bytes], first: int, pipeline: int, tail: bytes) -> Iterator[bytes]:
    for at in itertools.count(first * _STRIDE, _STRIDE * pipeline):
        chosen = (sets[(at + each * _STRIDE) % len(sets)] for each in range(pipeline))
        yield b"".join(chosen) + tail


def main() -> None:
    port, connections, pipeline, copies = map(int, sys.argv[1:5])
    seconds, first = float(sys.argv[5]), int(sys.argv[6])
    sets = {its: commands(keys, VALUE) for its, keys in keys_by_port(port, KEYS).items()}
    tail = encode_command([b"WAIT", b"%d" % copies, b"0"]) if copies else b""
    answer = b"+OK\r\n" * pipeline + (b":%d\r\n" % copies if copies else b"")
    ports = itertools.cycle(sets)
    lines: dict[int, _Line] = {}
    poll = select.epoll()
    for number in range(connections):
        its = next(ports)
        line = _Line(its, _requests(sets[its], (first + number) * 101, pipeline, tail), answer)
        lines[line.socket.fileno()] = line
        poll.register(line.socket.fileno(), select.EPOLLIN)
    print("ready", flush=True)
    sys.stdin.readline()
    took: Counter[int] = Counter()
    began, cpu = time.perf_counter(), time.process_time()
    for line in lines.values():
        line.ask()
    outstanding, end = len(lines), began + seconds
    while outstanding:
        for fd, _ in poll.poll(30) or _silent(outstanding):
            line = lines[fd]
            waited = line.take()
            if not waited:
                continue
            took[int(waited / LATENCY_UNIT_S)] += 1
            if time.perf_counter() < end:
                line.ask()
            else:
                outstanding -= 1
    said = {
        "operations": took.total() * pipeline,
        "s": time.perf_counter() - began,
        "cpu_s": time.process_time() - cpu,
        "took": sorted(took.items()),
    }
    print(json.dumps(said))


def _silent(outstanding: int) -> list[tuple[int, int]]:
    raise TimeoutError(f"{outstanding} requests were not answered in 30 s")


if __name__ == "__main__":
    main()
