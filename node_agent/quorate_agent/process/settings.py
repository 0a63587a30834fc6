"""What an agent process is told at its start."""

from dataclasses import dataclass
from pathlib import Path

CLIENT_MEMORY_SHARE = 0.2
"""Leaves most to data, the engine, and what large values take besides on their way to disk."""

GRACE_S = 17.0
"""Ten for others to take primaries over, as long as that takes under load; the rest of it ends."""

LINGER_IN_POD_S = 4.0
"""Nodes learn that a Service has a pod less within a second or two, later under load."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Read from the command line (arguments.py) and handed down; there is no global.

    `client_port_base`: zones take the first free port from here up, unless they had one before.
    `client_ports`: the first and the last of those of which the master gives each zone one instead.
    `client_memory_share`: of the memory limit, for what clients sent and were not answered and for
    replies that they have not read; more lets more clients send large values at once.
    `believe_term`: a mastership's number that a person vouches for, 0 for none.
    `peer_host`, `client_host`: where the agent listens; `told_…`: what others are told instead, a
    name that they look up each time or an address; a port of 0 is the one that is listened on.
    `disk_reserve`: bytes of the data folder's disk that are kept free; None: by its size.
    `external_port_offset`: each zone also listens on its client port plus this, for clients that
    are told external addresses (0: it does not); `told_external_host`: the host of these, empty
    where the operator tells them.
    `grace_s`: how long the process takes at most to end after a SIGTERM.
    `linger_s`: how long at least it takes in clients after that.
    """

    name: str
    data: Path
    cluster: str
    peer_host: str
    peer_port: int
    told_peer_host: str
    told_peer_port: int
    client_host: str
    told_client_host: str
    admin_host: str
    admin_port: int
    client_port_base: int = 7000
    client_ports: tuple[int, int] | None = None
    failure_domain: str = ""
    weight: int = 1
    client_memory_share: float = CLIENT_MEMORY_SHARE
    debug_commands: bool = False
    believe_term: int = 0
    grace_s: float = GRACE_S
    linger_s: float = 0.0
    disk_reserve: int | None = None
    external_port_offset: int = 0
    told_external_host: str = ""
