"""Chooses the ports that a development cluster takes on this machine."""

import socket

from quorate_cli.dev.membership import HOST
from quorate_cli.processes.cluster_folder import AgentEntry, ClusterEntry

CLIENT_PORT = 7000
STRIDE = 100
"""Distance of one cluster's first port from the next one's: room for its zones and agents."""
LOOKED_AT = 64
"""Ports looked at to detect another cluster: one zone of all its agents."""
LAST = 30_000
"""Above this, systems choose the ports of outgoing connections themselves."""


def is_free(port: int) -> bool:
    """Return whether `port` can be listened on; port 0 lets the system choose."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def choose_client_port_base() -> int:
    """Return 7000, or the first of 7100, 7200, … at which no other cluster serves a zone now.

    We must not take a port that an agent of another cluster has just lost: its clients would come
    back to it, and read and write here.  Clusters that do not run or have no zone yet cannot be
    detected: `--client-port-base` keeps those apart.
    """
    for base in range(CLIENT_PORT, LAST, STRIDE):
        if taken_port(base) is None:
            return base
    return CLIENT_PORT  # agents look on from there


def taken_port(base: int) -> int | None:
    """Return the first port from `base` on that another cluster seems to use, or None."""
    return next((port for port in range(base, base + LOOKED_AT) if not is_free(port)), None)


def client_port(entry: ClusterEntry, agent: AgentEntry) -> int:
    """Return the port from which an agent looks for free ports.

    Agents in order get consecutive ports, so that a person can guess them; past 65,000 they start
    at the base again.
    """
    port = entry.client_port_base + int(agent.name.rpartition("-")[2]) - 1
    return port if port < 65_000 else entry.client_port_base
