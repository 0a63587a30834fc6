"""A real redis-server in cluster mode that owns every slot, for as long as a test needs it."""

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from quorate_differential.raw_replies import RawConnection

_START_S = 20.0
_STOP_S = 10.0


@contextlib.contextmanager
def redis_process(folder: Path) -> Iterator[int]:
    """The port of a server that keeps its one file in `folder` and listens on loopback only."""
    port = _free_port()
    process = subprocess.Popen(
        [
            "redis-server",
            *("--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)),
            *("--cluster-enabled", "yes", "--save", "", "--appendonly", "no"),
            # The agent's limit for one value.
            *("--proto-max-bulk-len", "64mb"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    try:
        _give_all_slots(process, port)
        yield port
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    """A free port whose cluster bus port, 10000 higher, exists and is free as well."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            if port + 10_000 > 65_535:
                port -= 20_000
            with contextlib.suppress(OSError):
                second.bind(("127.0.0.1", port + 10_000))
                return port


def _give_all_slots(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        with contextlib.suppress(OSError), RawConnection("127.0.0.1", port) as connection:
            connection.ask([b"CLUSTER", b"ADDSLOTSRANGE", b"0", b"16383"])
            if b"cluster_state:ok" in connection.ask([b"CLUSTER", b"INFO"]):
                return
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"redis-server on port {port} is not ready: {process.poll()=}")
        time.sleep(0.02)  # between two looks at a condition with a deadline
