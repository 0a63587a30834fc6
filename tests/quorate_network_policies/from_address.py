"""Runs a module as in a pod of an address of its own, from which its connections come."""

import runpy
import socket
import sys
from typing import Any


def from_address(source: str, module: str, *arguments: str) -> list[str]:
    """The command line of a module whose IPv4 connections begin at `source`."""
    return [sys.executable, "-P", __file__, source, module, *arguments]


def _bind_all(source: str) -> None:
    class Bound(socket.socket):
        def connect(self, address: Any) -> None:
            if self.family == socket.AF_INET:
                self.bind((source, 0))
            super().connect(address)

    socket.socket = Bound  # type: ignore[misc]  # every connection of the module begins there


if __name__ == "__main__":
    _bind_all(sys.argv[1])
    del sys.argv[:2]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
