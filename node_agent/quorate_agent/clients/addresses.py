"""Where clients reach the agents of a zone: by the listener that they came in by.

Clients of the internal listener are given internal addresses, those of the external one external
addresses, and no agent that has none: an address that a client cannot reach would end it.
"""

from collections.abc import Callable, Mapping

from quorate.facts.topology import NodeRecord
from quorate.facts.zone import ZoneRecord

Addresses = dict[str, tuple[str, int]]
"""Host and port by node name."""

ClientAddresses = Callable[[bool], Addresses]
"""Addresses as of now; the argument: those of the external listener."""


def client_addresses(
    zone: ZoneRecord, members: Mapping[str, NodeRecord], external: bool
) -> Addresses:
    """Return where clients of one listener reach each agent of the zone that has not left."""
    here = {name: each for name, each in members.items() if each.left_since_ms is None}
    if external:
        return {
            name: (here[name].external_host, port)
            for name, port in zone.external_ports.items()
            if name in here and here[name].external_host
        }
    return {
        name: (here[name].client_host, port) for name, port in zone.ports.items() if name in here
    }
