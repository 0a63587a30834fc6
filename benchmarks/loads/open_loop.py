"""Commands at fixed moments, whatever becomes of those before; what each took from when it was due.

    python open_loop.py '[["HOST", PORT], …]' CLIENTS PER_SECOND stock|lean

A command that is held up makes those behind it late, as it would the requests of a service.  Each
client has one command under way at a time.  `stock`: redis-py, a thread per client.  `lean`: what
redis-py spends on reading the cluster's table anew would hide what the agents do; this one reads it
once, follows MOVED, and asks another agent when a connection ends.
"""

import asyncio
import json
import socket
import sys
import threading
import time

from redis.cluster import ClusterNode, RedisCluster
from redis.crc import key_slot

KEYS = 200
VALUE = b"v" * 100
Address = tuple[str, int]


class Tally:
    """The answers and latencies of all clients."""

    def __init__(self) -> None:
        self.took: list[tuple[float, float]] = []
        self.failed: list[str] = []

    def note(self, due: float, error: Exception | None) -> None:
        self.took.append((due, (time.monotonic() - due) * 1000))
        if error is not None:
            self.failed.append(f"{type(error).__name__}: {error}")


def key_of(client: int, count: int) -> bytes:
    """SET and GET of the same key follow each other; all keys are used in turn."""
    return b"%d:%d" % (client, count // 2 * 7 % KEYS)


# --- stock ---------------------------------------------------------------------------------------


def run_stock(seeds: list[Address], count: int, every_s: float, tally: Tally) -> None:
    """Threads, until the input closes."""
    stop = threading.Event()
    clients = [
        RedisCluster(startup_nodes=[ClusterNode(*seed) for seed in seeds]) for _ in range(count)
    ]
    for number, client in enumerate(clients):
        for key in range(KEYS):
            client.set(f"{number}:{key}", VALUE)

    def send(number: int, client: RedisCluster) -> None:
        due, at = time.monotonic() + every_s * number / count, 0
        while not stop.wait(max(0.0, due - time.monotonic())):
            at += 1
            error = None
            try:
                if at % 2:
                    client.set(key_of(number, at), VALUE)
                else:
                    client.get(key_of(number, at))
            except Exception as caught:  # whatever the library tells its caller
                error = caught
            tally.note(due, error)
            due += every_s

    threads = [threading.Thread(target=send, args=each) for each in enumerate(clients)]
    for thread in threads:
        thread.start()
    print("runs", flush=True)
    sys.stdin.readline()
    stop.set()
    for thread in threads:
        thread.join()


# --- lean ----------------------------------------------------------------------------------------


class LeanClient:
    """One connection per agent, one command at a time."""

    def __init__(self, seeds: list[Address]) -> None:
        self._seeds = seeds
        self._table: list[Address] = []  # by slot
        self._open: dict[Address, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}

    async def set_or_get(self, key: bytes, is_set: bool) -> bytes:
        slot = key_slot(key)
        words = (b"SET", key, VALUE) if is_set else (b"GET", key)
        frame = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words)
        problem: Exception = RuntimeError("too many redirections")
        for attempt in range(16):
            at = None
            try:
                if not self._table:
                    await self._read_table()
                at = self._table[slot]
                reply = await self._ask(at, frame)
            except (OSError, asyncio.IncompleteReadError) as error:
                problem = error
                if at is not None:
                    self._close(at)
                self._table.clear()
                if attempt:
                    await asyncio.sleep(0.002)
                continue
            if reply.startswith(b"-MOVED"):
                host, _, port = reply.split()[2].decode().rpartition(":")
                self._table[slot] = (host, int(port))
                continue
            if reply.startswith(b"-"):
                raise RuntimeError(reply.decode())
            return reply
        raise problem

    def _close(self, at: Address) -> None:
        held = self._open.pop(at, None)
        if held is not None:
            held[1].close()

    async def _ask(self, at: Address, frame: bytes) -> bytes:
        if at not in self._open:
            self._open[at] = await asyncio.open_connection(*at)
            sock = self._open[at][1].get_extra_info("socket")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader, writer = self._open[at]
        writer.write(frame)
        line = await reader.readuntil(b"\r\n")
        if line.startswith(b"$") and line != b"$-1\r\n":
            return line + await reader.readexactly(int(line[1:]) + 2)
        return line

    async def _read_table(self) -> None:
        for host, port in self._seeds:
            try:
                reader, writer = await asyncio.open_connection(host, port)
            except OSError:
                continue
            writer.write(b"CLUSTER NODES\r\n")
            size = int((await reader.readuntil(b"\r\n"))[1:])
            text = (await reader.readexactly(size + 2)).decode()
            writer.close()
            table = [(host, port)] * 16384
            for line in filter(None, text.splitlines()):
                fields = line.split()
                at_host, _, at_port = fields[1].partition("@")[0].rpartition(":")
                for slots in fields[8:]:
                    first, _, last = slots.partition("-")
                    begin, end = int(first), int(last or first) + 1
                    table[begin:end] = [(at_host, int(at_port))] * (end - begin)
            self._table = table
            return
        raise OSError("no agent answers")


async def run_lean(seeds: list[Address], count: int, every_s: float, tally: Tally) -> None:
    """Tasks, until the input closes."""
    stop = asyncio.Event()
    clients = [
        LeanClient(seeds[at % len(seeds) :] + seeds[: at % len(seeds)]) for at in range(count)
    ]
    for number, client in enumerate(clients):
        for key in range(KEYS):
            await client.set_or_get(b"%d:%d" % (number, key), True)

    async def send(number: int, client: LeanClient) -> None:
        due, at = time.monotonic() + every_s * number / count, 0
        while not stop.is_set():
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            at += 1
            error = None
            try:
                await client.set_or_get(key_of(number, at), at % 2 == 1)
            except Exception as caught:  # a refusal, or nobody who answers
                error = caught
            tally.note(due, error)
            due += every_s

    tasks = [asyncio.create_task(send(*each)) for each in enumerate(clients)]
    print("runs", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    stop.set()
    await asyncio.gather(*tasks)


def main() -> None:
    seeds = [(str(host), int(port)) for host, port in json.loads(sys.argv[1])]
    count, per_s = int(sys.argv[2]), float(sys.argv[3])
    tally = Tally()
    if sys.argv[4] == "stock":
        run_stock(seeds, count, count / per_s, tally)
    else:
        asyncio.run(run_lean(seeds, count, count / per_s, tally))
    print(json.dumps({"took": sorted(tally.took), "failed": tally.failed}))


if __name__ == "__main__":
    main()
