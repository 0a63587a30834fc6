"""Which ports a test's processes may listen on."""

import itertools
import os
import socket
import time
from collections.abc import Iterator

# Below the range from which the kernel takes ports for outgoing connections, so that none of those
# can take a port between our look and the process's bind.
_ports = range(18000, 32000)
_looks = itertools.count()


def listen_within(ports: range) -> None:
    """From now on only these: processes of tests that run beside ours have others."""
    global _ports
    _ports = ports


def free_ports(host: str = "127.0.0.1") -> Iterator[int]:
    """Loopback ports nobody listens on; runs that start together look from different places."""
    offset = (time.monotonic_ns() // 1000 + os.getpid() * 101 + next(_looks) * 331) % len(_ports)
    for step in range(len(_ports)):
        port = _ports[(offset + step) % len(_ports)]
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
        yield port
