"""How a connection begins: both sides prove that they know the secret, and say who they are.

What Challenge and Proof hold is for the handshake only (core/quorate_link/handshake.py): nothing is
believed before.  Source: docs/protocol.md, section 3.
"""

import enum

import msgspec

NONCE_BYTES = 32
FORMAT_LOWEST = 2
FORMAT_VERSION = 2
"""The lowest and the highest format of frames that this build speaks (formats.py)."""
FRAME_BYTES_MAX = 80 * 1024 * 1024


class Challenge(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The first frame of each side: its role, its cluster, and a fresh random nonce.

    `cluster` is the cluster's name, for sentences; `cluster_id` is its identity.
    `format_version` is the lowest format that the side speaks and `format_highest` the highest.
    A build of before spoke one format: it sends no highest, here 0, and takes the lowest for the
    other side's only one."""

    format_version: int
    role: str
    cluster: str
    cluster_id: str
    nonce: bytes
    format_highest: int = 0


class Proof(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """`mac` proves that the sender knows the key of the dialing side's role, and that it says
    `said` on this very connection: an encoded Hello, or Refused in its place."""

    mac: bytes
    said: bytes


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """What each side says together with its proof.  `role`: agent, master or tool; the folder's
    store.  `format_version`: the format that is spoken over this link; the handshake writes it.

    `process` is an agent process's own random word (facts/topology.py); `master_word` the random
    word of the mastership `master_term`: a master's own, an agent's of the one it last obeyed.
    `client_ports`: the range of an agent that takes its zones' client ports from the master.
    `external_host`: the host at which clients reach its external listener; None: it has none;
    empty: it has one, and the operator knows its addresses."""

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


class RefusalCode(enum.StrEnum):
    """Why a connection is refused, as far as the other side may act on it."""

    FORMAT = "format"
    CLUSTER = "cluster"
    SECRET = "secret"
    """It was not proven that the cluster's secret is known."""
    ROLE = "role"
    NODE = "node"
    """Another node answers where one was expected."""
    NAME = "name"
    """No node may have this name."""
    NAME_IN_USE = "name-in-use"
    CONNECTED = "connected"
    """This very process is connected already."""
    COPIED_FOLDER = "copied-folder"
    OLDER_IMAGE = "older-image"
    """The agent's folder must be set aside: it does so and starts anew."""
    OLDER_PROCESS = "older-process"
    STALE_MASTER = "stale-master"
    NOT_KEPT = "not-kept"
    """The agent cannot make durable which mastership it obeys: later it may."""
    TERM_AHEAD = "term-ahead"
    """The master's term is so far above all that the agent has heard of that it is not believed."""
    GOODBYE = "bye"
    """The process is ending, or has no use for the link: nothing is wrong."""


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The other side will not talk; the connection closes.  `reason` is a sentence for people,
    `code` a RefusalCode, or one of a version that knows more of them.  `master_term`, with
    STALE_MASTER: the highest mastership that the agent knows; 0: it does not say."""

    reason: str
    code: str = ""
    master_term: int = 0
