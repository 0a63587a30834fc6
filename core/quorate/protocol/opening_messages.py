"""The first frames of a connection, by which both sides prove that they know the cluster's secret.

They are sent before anything is believed: what they hold is for the handshake only
(core/quorate_link/handshake.py).  Source: docs/protocol.md, section 3.
"""

import msgspec

NONCE_BYTES = 32


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
