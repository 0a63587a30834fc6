"""The first messages of a link: both sides prove that they know the secret, and identify
themselves.

Only the handshake uses the content of Challenge and Proof (core/quorate_link/handshake.py): before
it is complete, nothing is believed.  Source: docs/protocol.md, section 3.
"""

import enum

import msgspec

from quorate.facts.topology import STORAGE_PROFILES

NONCE_BYTES = 32
FORMAT_LOWEST = 2
FORMAT_VERSION = 8
"""The lowest and the highest frame format that this build speaks (formats.py)."""
FRAME_BYTES_MAX = 80 * 1024 * 1024


class Challenge(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The first frame of each side: its role, its cluster and a fresh random nonce.

    `cluster` is the cluster's name, for messages to people; `cluster_id` is its identity.
    `format_version` is the lowest format that the side speaks, `format_highest` the highest.  A
    build from before `format_highest` speaks one format.  It sends no highest, which reads as 0
    here, and takes the lowest for the only format of the other side.
    """

    format_version: int
    role: str
    cluster: str
    cluster_id: str
    nonce: bytes
    format_highest: int = 0


class Proof(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """`mac` proves that the sender knows the key of the dialing side's role, and that it sent
    `said` on this very connection.  `said` is an encoded Hello, or Refused instead."""

    mac: bytes
    said: bytes


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The identity that each side sends with its proof.

    - `format_version`: the format spoken over this link; the handshake sets it.
    - `role`: agent, master or tool.  `store`: that of the data folder.
    - `process`: the random word of an agent process (facts/topology.py).
    - `master_term`, `master_word`: a master's own mastership; of an agent, the one it last obeyed.
    - `client_ports`: the port range of an agent whose zones get their client ports from the master.
    - `external_host`: the host at which clients reach the agent's external listener.  None: it has
      no such listener.  Empty: it has one, and the operator knows its addresses.
    - `attributes`, `storage_profiles`: an agent's, by which zones choose their data nodes.
    """

    format_version: int
    role: str
    cluster: str
    node: str = ""
    store: str = ""
    incarnation: int = 0
    master_term: int = 0
    host: str = ""
    peer_port: int = 0
    client_host: str = ""
    failure_domain: str = ""
    weight: int = 1
    process: str = ""
    master_word: str = ""
    client_ports: tuple[int, int] | None = None
    external_host: str | None = None
    attributes: dict[str, str] = {}
    storage_profiles: tuple[str, ...] = STORAGE_PROFILES


class RefusalCode(enum.StrEnum):
    """Why a connection is refused, for reasons on which the other side may act."""

    FORMAT = "format"
    CLUSTER = "cluster"
    SECRET = "secret"
    """The side did not prove that it knows the cluster's secret."""
    ROLE = "role"
    NODE = "node"
    """Another node answered than the expected one."""
    NAME = "name"
    """No node may have this name."""
    NAME_IN_USE = "name-in-use"
    CONNECTED = "connected"
    """This very process is already connected."""
    COPIED_FOLDER = "copied-folder"
    OLDER_IMAGE = "older-image"
    """The agent's folder must be set aside; the agent does so and starts over a new store."""
    OLDER_PROCESS = "older-process"
    STALE_MASTER = "stale-master"
    NOT_KEPT = "not-kept"
    """The agent cannot make the mastership durable now; later it may."""
    TERM_AHEAD = "term-ahead"
    """The master's term is too far above all terms that the agent has heard of to be believed."""
    GOODBYE = "bye"
    """The process is ending or does not need the link; this is no error."""


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Says why the sender refuses the connection, which it then closes.

    `reason` is a sentence for people.  `code` is a RefusalCode, or an unknown one from a newer
    version.  `master_term`, with STALE_MASTER: the highest mastership that the agent knows; 0: not
    given.
    """

    reason: str
    code: str = ""
    master_term: int = 0
