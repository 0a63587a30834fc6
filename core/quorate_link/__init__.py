"""Links between master, agents and tools: TCP connections that carry the core's messages.

A library for shells (asyncio or uvloop, one thread). It handles frames and handshakes, and does not
interpret messages.
"""

from quorate_link.endpoint import DialedPeer, Endpoint
from quorate_link.handler import BaseHandler, Handler
from quorate_link.link import Dialer, Link
from quorate_link.secret import ClusterSecret, RoleKeys, SecretRefused
from quorate_link.settings import LinkCounters, LinkSettings

__all__ = [
    "BaseHandler",
    "ClusterSecret",
    "DialedPeer",
    "Dialer",
    "Endpoint",
    "Handler",
    "Link",
    "LinkCounters",
    "LinkSettings",
    "RoleKeys",
    "SecretRefused",
]
