"""What an agent process is told at its start."""

from dataclasses import dataclass
from pathlib import Path

CLIENT_MEMORY_SHARE = 0.2
"""Leaves most to data, the engine, and what large values take besides on their way to disk."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Read from the command line in `__main__` and handed down; there is no global.

    `client_port_base`: zones take the first free port from here up, unless they had one before.
    `client_memory_share`: of the memory limit, for what clients sent and were not answered and for
    replies that they have not read; more lets more clients send large values at once.
    `believe_term`: a mastership's number that a person vouches for, 0 for none.
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
    client_memory_share: float = CLIENT_MEMORY_SHARE
    debug_commands: bool = False
    believe_term: int = 0
    stop_bound_s: float = 10.0
