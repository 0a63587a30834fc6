"""The TCP connections that were made on this machine, on IPv4.

The kernel's table is read over and over while a test runs.  It has a connection also for a minute
after its end, so one is missed only if it was reset, or refused, between two looks.  Who made it
is known if a watched process was seen to hold it, or by the address that it came from.
"""

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

_POLL_S = 0.05
_LISTENS = "0A"
_ESTABLISHED = "01"

Address = tuple[str, int]


class Seen(NamedTuple):
    """A connection from `source` to where the other side listens.

    `pid`: the watched process that was seen to have begun it, or 0."""

    pid: int
    source: str
    address: str
    port: int


class SeenConnections:
    """Watches from `with` to its end.

    It sees what the processes that `pids` names have begun, and all that `is_wanted` (source,
    address, port) names, whoever began it.  Both are asked whenever it looks.
    """

    def __init__(
        self,
        pids: Callable[[], Collection[int]],
        is_wanted: Callable[[str, str, int], bool] = lambda source, address, port: False,
    ) -> None:
        self.looks = 0
        self._pids = pids
        self._is_wanted = is_wanted
        self._found: dict[tuple[Address, Address], int] = {}
        self._listening: set[Address] = set()
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

    @property
    def seen(self) -> set[Seen]:
        """The connections seen until now."""
        return {
            Seen(pid, source[0], *target) for (source, target), pid in self._found.copy().items()
        }

    def look(self) -> None:
        """Look once at the present connections."""
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        self._listening |= {_address(words[1]) for words in lines if words[3] == _LISTENS}
        by_inode: dict[str, tuple[Address, Address]] = {}
        for words in lines:
            local, remote = _address(words[1]), _address(words[2])
            if words[3] == _LISTENS:
                continue
            ends = (remote, local) if self._listens(local) else (local, remote)
            if ends[0] == local and words[3] == _ESTABLISHED:
                by_inode[words[9]] = ends
            if self._listens(ends[1]) and self._is_wanted(ends[0][0], *ends[1]):
                self._found.setdefault(ends, 0)
        for pid in self._pids():
            for inode in _sockets(pid):
                if inode in by_inode:
                    self._found[by_inode[inode]] = pid
        self.looks += 1

    def _watch(self) -> None:
        while not self._over.wait(_POLL_S):
            self.look()

    def _listens(self, at: Address) -> bool:
        return at in self._listening or ("0.0.0.0", at[1]) in self._listening


def parse_table(table: str) -> Iterator[tuple[Address, Address, str]]:
    """The rows of a table of the kernel's: local and remote address, and the state."""
    for line in table.splitlines()[1:]:
        words = line.split()
        yield _address(words[1]), _address(words[2]), words[3]


def _sockets(pid: int) -> list[str]:
    found = []
    with contextlib.suppress(OSError):  # the process, or one file of it, may be gone by now
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{name}")
                if target.startswith("socket:["):
                    found.append(target[len("socket:[") : -1])
    return found


def _address(text: str) -> Address:
    address, _, port = text.partition(":")
    return socket.inet_ntoa(struct.pack("=I", int(address, 16))), int(port, 16)
