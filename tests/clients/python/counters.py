"""Counters through redis-py or valkey-py, whichever is on the path, as its manual shows it.

    python counters.py HOST:PORT,HOST:PORT PREFIX EVERY_MS shared|each

`each`: a client for each thread instead of one that all of them share.

The contract of this program and its siblings in other languages is in `tests/clients/README.md`.
"""

import json
import os
import re
import sys
import threading
import time
from collections import Counter
from typing import Any

WORKERS = 4
KEYS_EACH = 8
END_S_MAX = 15


def connect(seeds: list[tuple[str, int]]) -> Any:
    """The library's cluster client with nothing set but where to begin."""
    try:
        from redis.cluster import ClusterNode, RedisCluster
    except ImportError:
        from valkey.cluster import ClusterNode
        from valkey.cluster import ValkeyCluster as RedisCluster
    nodes: list[Any] = [ClusterNode(host, port) for host, port in seeds]
    return RedisCluster(startup_nodes=nodes)


class Tally:
    """What all workers saw."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.commands = 0
        self.failed = 0
        self.failed_at_end = 0
        self.wrong: list[str] = []
        self.longest_ms = 0.0
        self.unwritable_ms = 0.0
        self.errors: Counter[str] = Counter()
        self.begun = 0

    def command(self, took_ms: float, error: Exception | None, is_last: bool) -> None:
        with self.lock:
            self.commands += 1
            self.longest_ms = max(self.longest_ms, took_ms)
            if error is not None:
                self.failed += 1
                self.failed_at_end += is_last
                said = re.sub(r"\d+", "N", f"{type(error).__name__}: {error}")
                self.errors[said[:100]] += 1

    def write(self, took_ms: float) -> None:
        with self.lock:
            self.unwritable_ms = max(self.unwritable_ms, took_ms)

    def begin(self) -> None:
        with self.lock:
            self.begun += 1
            if self.begun == WORKERS:
                print("ready", flush=True)


class Worker(threading.Thread):
    """Writes ever larger numbers to keys of its own, in turn, and reads back each of them."""

    def __init__(
        self, client: Any, name: str, every_s: float, tally: Tally, ending: threading.Event
    ) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._keys = [f"{name}-{number}" for number in range(KEYS_EACH)]
        self._every_s = every_s
        self._tally = tally
        self._ending = ending
        self._last: dict[str, str | None] = dict.fromkeys(self._keys)
        self._maybe: dict[str, set[str]] = {key: set() for key in self._keys}
        self._since: dict[str, float] = {}
        self._number = name.rpartition("-")[2]
        self._fails = False

    def run(self) -> None:
        value = 0
        begun = False
        is_last = False
        while not is_last:
            is_last = self._ending.is_set()  # one whole round after the end was asked for
            self._fails = False
            for key in self._keys:
                value += 1
                written = self._set(key, str(value), is_last)
                self._ending.wait(self._every_s)
                while not written and not self._ending.is_set():
                    value += 1
                    written = self._set(key, str(value), is_last)
                    self._ending.wait(self._every_s)
                if written and not begun:
                    begun = True
                    self._tally.begin()
                self._get(key, is_last)
                self._ending.wait(self._every_s)
            if not self._fails:
                print(f"round {self._number}\n", end="", flush=True)

    def _set(self, key: str, value: str, is_last: bool) -> bool:
        began = time.monotonic()
        self._since.setdefault(key, began)
        error = None
        try:
            self._client.set(key, value)
        except Exception as caught:
            error = caught
            self._maybe[key].add(value)
            self._fails = True
        ended = time.monotonic()
        self._tally.command((ended - began) * 1000, error, is_last)
        if error is None:
            self._last[key] = value
            self._tally.write((ended - self._since.pop(key)) * 1000)
        elif is_last:
            self._tally.write((ended - self._since[key]) * 1000)
        return error is None

    def _get(self, key: str, is_last: bool) -> None:
        began = time.monotonic()
        error = None
        found = None
        try:
            answer = self._client.get(key)
            found = None if answer is None else answer.decode()
        except Exception as caught:
            error = caught
            self._fails = True
        self._tally.command((time.monotonic() - began) * 1000, error, is_last)
        if error is not None or found == self._last[key]:
            return
        if found in self._maybe[key]:
            # A write of which nobody knew whether it took effect: it did, and only once.
            self._maybe[key].remove(found)
            self._last[key] = found
            return
        with self._tally.lock:
            self._tally.wrong.append(f"{key}: {found} instead of {self._last[key]}")


def main() -> None:
    seeds = [each.rsplit(":", 1) for each in sys.argv[1].split(",")]
    prefix, every_s = sys.argv[2], float(sys.argv[3]) / 1000
    at = [(host, int(port)) for host, port in seeds]
    clients = [connect(at) for _ in range(WORKERS if sys.argv[4] == "each" else 1)] * WORKERS
    tally, ending = Tally(), threading.Event()
    workers = [Worker(clients[n], f"{prefix}-{n}", every_s, tally, ending) for n in range(WORKERS)]
    for worker in workers:
        worker.start()
    sys.stdin.read()  # until whoever started this closes it
    ending.set()
    deadline = time.monotonic() + END_S_MAX
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
    report = {
        "commands": tally.commands,
        "failed": tally.failed,
        "failed_at_end": tally.failed_at_end,
        "wrong": len(tally.wrong),
        "longest_ms": round(tally.longest_ms),
        "unwritable_ms": round(tally.unwritable_ms),
        "unfinished": sum(worker.is_alive() for worker in workers),
        "errors": dict(tally.errors),
        "examples": tally.wrong[:5],
    }
    print(json.dumps(report), flush=True)
    os._exit(0)  # a worker that hangs must not keep the process


if __name__ == "__main__":
    main()
