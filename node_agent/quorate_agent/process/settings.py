"""The settings of an agent process."""

from dataclasses import dataclass, field
from pathlib import Path

from quorate.facts.topology import STORAGE_PROFILES

CLIENT_MEMORY_SHARE = 0.2
"""Leaves most to data, the engine, and what large values need besides on their way to disk."""

ASIDE_SHARE = 0.1
"""Of the data folder's disk: they are of use for a day, and most disks are used for much more."""

GRACE_S = 17.0
"""Ten seconds for others to take over primaries, as long as that takes under load; the rest for
ending."""

LINGER_IN_POD_S = 4.0
"""Nodes learn that a Service has lost a pod within a second or two, later under load."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Read from the command line (arguments.py) and handed down; there is no global.

    - `client_port_base`: zones take the first free port from here up, unless they had one before.
    - `client_ports`: first and last of the ports from which the master gives each zone one instead.
    - `client_memory_share`: share of the memory limit for unanswered commands and unread replies;
      more lets more clients send large values at once.
    - `believe_term`: the number of a mastership that a person vouches for, 0 for none.
    - `peer_host`, `client_host`: where the agent listens; `told_…`: what others are told instead,
      an address, or a name that they look up each time; port 0: the port that it listens on.
    - `disk_reserve`: bytes kept free on the data folder's disk; None: by its size.
    - `aside_share`: share of that disk for rows that resets have left.
    - `external_port_offset`: each zone also listens on its client port plus this, for clients that
      are told external addresses (0: it does not); `told_external_host`: the host of these, empty
      if the operator tells them.
    - `grace_s`: seconds the process may take to end after a SIGTERM.
    - `linger_s`: seconds it accepts clients after that, at least.
    - `attributes`, `storage_profiles`: by these zones choose their data nodes.
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
    aside_share: float = ASIDE_SHARE
    external_port_offset: int = 0
    told_external_host: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    storage_profiles: tuple[str, ...] = STORAGE_PROFILES
