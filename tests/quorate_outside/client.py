"""What happens inside that network: `python -m quorate_outside.client`, with one JSON order a line.

A node's port is stood in for by a forwarder: it listens on an address that exists here only, and
leads out through a socket file, as the node's kernel would lead to a pod.
"""

import asyncio
import json
import socket
import sys
import threading
from typing import Any

import redis
from redis.cluster import ClusterNode, RedisCluster

from quorate.facts.keyspace import SLOT_COUNT, key_slot
from quorate_outside.streams import join

Json = dict[str, Any]
CHUNK = 1024
Node: Any = ClusterNode  # its constructor ships without types


def key_of_each_slot() -> list[str]:
    """One key per slot."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < SLOT_COUNT:
        key = f"key-{number}"
        found.setdefault(key_slot(key.encode()), key)
        number += 1
    return [found[slot] for slot in range(SLOT_COUNT)]


class Outside:
    """The client and the forwarders."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._keys = key_of_each_slot()
        self._client: Any = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._written: dict[str, str] = {}
        self._failures: list[str] = []
        self._count = 0

    def forward(self, host: str, port: int, to: str) -> None:
        """Lead from a node's port to a socket file."""

        async def listen() -> None:
            async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await join(reader, writer, *await asyncio.open_unix_connection(to))

            await asyncio.start_server(lead, host, port)

        asyncio.run_coroutine_threadsafe(listen(), self._loop).result(10)

    def connect(self, host: str, port: int) -> None:
        """A stock client that knows this one address."""
        self._client = RedisCluster(startup_nodes=[Node(host, port)], socket_timeout=20)

    def write(self, value: str) -> int:
        """SET a key of every slot."""
        return sum(self._in_chunks(lambda pipe, key: pipe.set(key, value)))

    def read(self, value: str) -> int:
        """How many of these keys have this value."""
        replies = self._in_chunks(lambda pipe, key: pipe.get(key))
        return sum(reply == value.encode() for reply in replies)

    def _in_chunks(self, add: Any) -> list[Any]:
        replies: list[Any] = []
        for first in range(0, SLOT_COUNT, CHUNK):
            with self._client.pipeline() as pipe:
                for key in self._keys[first : first + CHUNK]:
                    add(pipe, key)
                replies += pipe.execute()
        return replies

    def keep_writing(self) -> None:
        """One command after the other, until `stop`."""
        self._thread = threading.Thread(target=self._keep_writing, daemon=True)
        self._thread.start()

    def _keep_writing(self) -> None:
        while not self._stop.is_set():
            key = self._keys[self._count * 61 % SLOT_COUNT]
            self._count += 1
            try:
                self._client.set(key, str(self._count))
                self._written[key] = str(self._count)
            except (redis.RedisError, OSError) as error:
                self._failures.append(f"{key}: {error!r}")

    def stop(self) -> Json:
        """What was written, and what failed."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        wrong = [
            key for key, value in self._written.items() if self._client.get(key) != value.encode()
        ]
        return {"count": self._count, "failures": self._failures[:10], "wrong": wrong}

    def count(self) -> int:
        """Commands that were sent so far."""
        return self._count

    def nodes(self) -> list[str]:
        """Addresses that the client knows."""
        return sorted(f"{node.host}:{node.port}" for node in self._client.get_nodes())

    def ask(self, host: str, port: int, *words: str) -> str:
        """The reply of one agent, an error included."""
        with redis.Redis(host, port, socket_timeout=20) as one:
            try:
                return repr(one.execute_command(*words))
            except redis.ResponseError as error:
                return str(error)

    def reaches(self, host: str, port: int) -> bool:
        """Whether anybody answers there."""
        try:
            socket.create_connection((host, port), 2).close()
        except OSError:
            return False
        return True


def main() -> None:
    """Carry out orders until there are no more."""
    outside = Outside()
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            answer = {"answer": getattr(outside, name)(*arguments)}
        except Exception as error:  # who ordered it is to see it
            answer = {"error": repr(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
