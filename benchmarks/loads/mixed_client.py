"""Connections that send a mixed load, each with one pipeline outstanding, over and over.

    mixed_client.py PORT LOAD CONNECTIONS PIPELINE WAIT SECONDS NUMBER PARTS SCALE

Every connection goes to one primary (PORT is any of the cluster's) and sends PIPELINE commands on
keys of all its slots, then `WAIT n 0` where WAIT is not 0 and one of the commands writes.  The keys
are those of `Share(NUMBER, PARTS, SCALE)`.  Prints `ready`, begins when its input has a line,
prints one JSON object.  An error reply ends it.
"""

import itertools
import json
import select
import socket
import sys
import time
from collections import Counter
from collections.abc import Sequence

import hiredis

from quorate_cluster.mixed_load import Sent, Share
from quorate_cluster.processes import HOST
from quorate_cluster.routing import ports_of_slots
from quorate_differential.raw_replies import encode_command

LATENCY_UNIT_S = 1e-5
_GONE_S = 30
_RECEIVED_BYTES = 1 << 18
_NO_MORE = object()


class _Line:
    """One connection with one pipeline outstanding."""

    def __init__(self, port: int, pipelines: Sequence[tuple[bytes, int]], first: int) -> None:
        self._pipelines = pipelines
        self._at = first % len(pipelines)
        self._left = 0
        self._sent = 0.0
        self._reader = hiredis.Reader(notEnoughData=_NO_MORE)
        self.socket = socket.create_connection((HOST, port), 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self) -> None:
        stream, self._left = self._pipelines[self._at]
        self._at = (self._at + 1) % len(self._pipelines)
        self._sent = time.perf_counter()
        self.socket.sendall(stream)

    def take(self) -> float:
        """Return the seconds from the request to its last reply, or 0.0 until that is there."""
        data = self.socket.recv(_RECEIVED_BYTES)
        if not data:
            raise ConnectionError("the server closed a connection")
        self._reader.feed(data)
        found = list(iter(self._reader.gets, _NO_MORE))
        if hiredis.ReplyError in set(map(type, found)):
            raise RuntimeError(next(each for each in found if type(each) is hiredis.ReplyError))
        self._left -= len(found)
        if self._left < 0:
            raise RuntimeError("more replies than commands")
        return 0.0 if self._left else time.perf_counter() - self._sent


def pipelines_of(commands: Sequence[Sent], pipeline: int, copies: int) -> list[tuple[bytes, int]]:
    """Return (stream, number of replies) of each pipeline that the commands fill."""
    wait = encode_command([b"WAIT", b"%d" % copies, b"0"]) if copies else b""
    found = []
    for at in range(0, len(commands) - pipeline + 1, pipeline):
        part = commands[at : at + pipeline]
        tail = wait if any(each.writes for each in part) else b""
        stream = b"".join([*(each.stream for each in part), tail])
        found.append((stream, pipeline + bool(tail)))
    return found


def main() -> None:
    """Send, count and print."""
    port, load, connections, pipeline, copies, seconds, number, parts, scale = sys.argv[1:]
    ports = ports_of_slots(int(port))
    commands: dict[int, list[Sent]] = {each: [] for each in dict.fromkeys(ports)}
    for sent in Share(int(number), int(parts), float(scale)).commands(load):
        commands[ports[sent.slot]].append(sent)
    pipelines = {
        its: pipelines_of(each, int(pipeline), int(copies)) for its, each in commands.items()
    }
    lines: dict[int, _Line] = {}
    poll = select.epoll()
    for at, its in zip(range(int(connections)), itertools.cycle(pipelines), strict=False):
        first = at * len(pipelines[its]) // int(connections)
        line = _Line(its, pipelines[its], first)
        lines[line.socket.fileno()] = line
        poll.register(line.socket.fileno(), select.EPOLLIN)
    print("ready", flush=True)
    sys.stdin.readline()
    took: Counter[int] = Counter()
    began, cpu = time.perf_counter(), time.process_time()
    for line in lines.values():
        line.ask()
    outstanding, end = len(lines), began + float(seconds)
    while outstanding:
        for fd, _ in poll.poll(_GONE_S) or _silent(outstanding):
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
        "operations": took.total() * int(pipeline),
        "s": time.perf_counter() - began,
        "cpu_s": time.process_time() - cpu,
        "took": sorted(took.items()),
    }
    print(json.dumps(said))


def _silent(outstanding: int) -> list[tuple[int, int]]:
    raise TimeoutError(f"{outstanding} requests were not answered in {_GONE_S} s")


if __name__ == "__main__":
    main()
