"""The TCP connections that processes of this machine were seen to make, on IPv4.

The kernel's table is read over and over while a test runs; a connection shorter than that may be
missed, those that agents and operators keep are not.
"""

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

_POLL_S = 0.05
_ESTABLISHED = "01"


class Seen(NamedTuple):
    """A connection by who began it; `port` is where the other side listens."""

    pid: int
    address: str
    port: int


class SeenConnections:
    """Watches the processes that `pids` names, whenever it is asked, from `with` to its end."""

    def __init__(self, pids: Callable[[], Collection[int]]) -> None:
        self.seen: set[Seen] = set()
        self.looks = 0
        self._pids = pids
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_POLL_S):
            self.seen |= connections_of(self._pids())
            self.looks += 1


def connections_of(pids: Collection[int]) -> set[Seen]:
    """The established connections that these processes have begun: no end of theirs listens."""
    listening: set[int] = set()
    open_ones: dict[str, tuple[int, str, int]] = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        (_, port), remote = _address(words[1]), _address(words[2])
        if words[3] == "0A":
            listening.add(port)
        elif words[3] == _ESTABLISHED:
            open_ones[words[9]] = (port, *remote)
    return {
        Seen(pid, address, to)
        for pid in pids
        for inode in _sockets(pid)
        for port, address, to in filter(None, [open_ones.get(inode)])
        if port not in listening
    }


def _sockets(pid: int) -> list[str]:
    found = []
    with contextlib.suppress(OSError):  # the process, or one file of it, may be gone by now
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{name}")
                if target.startswith("socket:["):
                    found.append(target[len("socket:[") : -1])
    return found


def _address(text: str) -> tuple[str, int]:
    address, _, port = text.partition(":")
    return socket.inet_ntoa(struct.pack("=I", int(address, 16))), int(port, 16)
