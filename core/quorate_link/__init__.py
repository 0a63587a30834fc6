"""How master, agents and tools are connected: links that carry the core's messages over TCP.

A library for shells (asyncio or uvloop, one thread): it knows frames and handshakes, not meanings.
"""

from quorate_link.endpoint import Endpoint, Peer
from quorate_link.handler import BaseHandler, Handler, LinkCounters, LinkSettings
from quorate_link.link import Link
from quorate_link.secret import ClusterSecret, RoleKeys, SecretRefused

__all__ = [
    "BaseHandler",
    "ClusterSecret",
    "Endpoint",
    "Handler",
    "Link",
    "LinkCounters",
    "LinkSettings",
    "Peer",
    "RoleKeys",
    "SecretRefused",
]
