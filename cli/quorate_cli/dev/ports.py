"""Which of this machine's ports a development cluster takes."""

import socket

from quorate_cli.dev.membership import HOST
from quorate_cli.processes.cluster_folder import AgentEntry, ClusterEntry

CLIENT_PORT = 7000
STRIDE = 100
"""From one cluster's first port to the next one's: room for its zones and agents."""
LOOKED_AT = 64
"""So many ports from the first tell whether another cluster serves: one zone of all its agents."""
LAST = 30_000
"""Above, systems choose ports of outgoing connections themselves."""


def is_free(port: int) -> bool:
    """Whether `port` can be listened on; port 0 lets the system choose."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def choose_client_port_base() -> int:
    """7000, or the first of 7100, 7200, … where no other cluster serves a zone just now.

    A port that an agent of another cluster has just lost is not to become ours: its clients would
    come back to it, and read and write here.  Of clusters that do not run, or have no zone yet,
    nothing is known: `--client-port-base` keeps those apart."""
    for base in range(CLIENT_PORT, LAST, STRIDE):
        if taken_port(base) is None:
            return base
    return CLIENT_PORT  # agents look further from there


def taken_port(base: int) -> int | None:
    """Return the first port from `base` on that tells of another cluster; None where none does."""
    return next((port for port in range(base, base + LOOKED_AT) if not is_free(port)), None)


def client_port(entry: ClusterEntry, agent: AgentEntry) -> int:
    """Where an agent begins to look for free ports: one after the other for agents in order, so
    that a person can guess them; from the base again where the numbers end."""
    port = entry.client_port_base + int(agent.name.rpartition("-")[2]) - 1
    return port if port < 65_000 else entry.client_port_base
