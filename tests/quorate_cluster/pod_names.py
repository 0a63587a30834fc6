"""An operator that finds agents of this machine by the DNS names of their pods: no name server of a
Kubernetes cluster is here, and every agent has a port of its own instead of an address."""

import json
import sys
from collections.abc import Callable, Mapping

PLANTED = """
import json
import socket
import sys

from quorate_link.dialed_hosts import DialedHosts
from quorate_operator.__main__ import main

PORTS = json.loads(sys.argv.pop(1))


def system(host, port):
    pod = host.partition(".")[0]
    if pod in PORTS:
        host, port = "127.0.0.1", PORTS[pod]
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


DialedHosts._system = staticmethod(system)
sys.exit(main())
"""


def operator_that_knows(ports: Mapping[str, int]) -> Callable[..., list[str]]:
    """Return what makes its command line. `ports`: pod -> peer port of its agent here."""

    def command(*arguments: str) -> list[str]:
        return [sys.executable, "-P", "-c", PLANTED, json.dumps(ports), *arguments]

    return command
