"""The TCP connections of pods on nodes of this machine, each pod with a network of its own.

The kernel's tables of all networks of pods are read over and over while a test runs.  A pod has an
ended connection that it closed itself for a minute, so little is missed of what it began.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

from quorate_cluster.background import Background
from quorate_network_policies.seen import Address, parse_table

_POLL_S = 0.25
_LISTENS = "0A"
_GOES_ON = {"01", "02", "03"}
"""States of TCP in which neither side has closed."""


class Connection(NamedTuple):
    """A connection that the pod of this name began, or that was made to it."""

    pod: str
    began: bool
    other: str
    port: int
    """Where the side that did not begin it listens."""


class PodConnections(Background):
    """Watches from `with` to its end the pods whose processes are in control groups of this name.

    `seen`: what was seen until now.  What had ended before is left out."""

    def __init__(self, group: str, proc: Path = Path("/proc")) -> None:
        super().__init__()
        self._proc = proc
        self.seen: set[Connection] = set()
        self._group = f"/{group}-"
        self._pods: dict[int, str] = {}
        self._listening: dict[str, set[int]] = {}
        self._ended_before: set[tuple[str, Address, Address]] = set()
        self.add_road(self._watch)

    def __enter__(self) -> Self:
        for pod, table in self._tables():
            self._ended_before |= {
                (pod, local, remote)
                for local, remote, state in parse_table(table)
                if state != _LISTENS and state not in _GOES_ON
            }
        return super().__enter__()

    def look(self) -> None:
        """Look once at the present connections of each pod."""
        for pod, table in self._tables():
            self._take(pod, table)

    def _tables(self) -> Iterator[tuple[str, str]]:
        """The kernel's table of each pod."""
        read: set[str] = set()
        for process, pod in self._processes():
            if pod not in read:
                with contextlib.suppress(OSError):  # it has ended
                    table = (self._proc / f"{process}/net/tcp").read_text()
                    read.add(pod)
                    yield pod, table

    def _watch(self) -> None:
        while not self.stop.is_set():
            self.look()
            self.stop.wait(_POLL_S)

    def _take(self, pod: str, table: str) -> None:
        rows = list(parse_table(table))
        ports = self._listening.setdefault(pod, set())
        ports |= {local[1] for local, _, state in rows if state == _LISTENS}
        for local, remote, state in rows:
            ended_before = (pod, local, remote) in self._ended_before
            if state != _LISTENS and not ended_before and not _is_loopback(remote):
                was_made_to_it = local[1] in ports
                port = local[1] if was_made_to_it else remote[1]
                self.seen.add(Connection(pod, not was_made_to_it, remote[0], port))

    def _processes(self) -> Iterator[tuple[int, str]]:
        present = {int(name) for name in os.listdir(self._proc) if name.isdigit()}
        self._pods = {each: pod for each, pod in self._pods.items() if each in present}
        for process in present - self._pods.keys():
            self._pods[process] = self._pod_of(process)
        return ((process, pod) for process, pod in self._pods.items() if pod)

    def _pod_of(self, process: int) -> str:
        """The name of its pod; empty for a process of no pod of ours."""
        with contextlib.suppress(OSError):
            groups = (self._proc / f"{process}/cgroup").read_text()
            if self._group in groups and "/kubepods/" in groups:
                names = (self._proc / f"{process}/environ").read_bytes().split(b"\0")
                found = [each for each in names if each.startswith(b"HOSTNAME=")]
                return found[0].partition(b"=")[2].decode() if found else ""
        return ""


def _is_loopback(address: Address) -> bool:
    return address[0].startswith("127.")
