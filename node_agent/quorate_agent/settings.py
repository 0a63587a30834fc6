"""What an agent process is told at its start."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Read from the command line in `__main__` and handed down; there is no global.

    `client_port_base`: zones take the first free port from here up, unless they had one before.
    `stop_bound_s`: how long a SIGTERM waits for primaries to be taken over.
    """

    name: str
    data: Path
    cluster: str
    peer_host: str
    peer_port: int
    client_host: str
    admin_host: str
    admin_port: int
    client_port_base: int = 7000
    failure_domain: str = ""
    weight: int = 1
    debug_commands: bool = False
    stop_bound_s: float = 10.0
