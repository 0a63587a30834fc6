"""Client addresses of a zone's agents, by listener.

Clients of the internal listener are given internal addresses, clients of the external one external
addresses.  An agent without an address for a listener is left out: a client that is sent to an
address it cannot reach fails.
"""

from collections.abc import Callable, Mapping

from quorate.facts.topology import NodeRecord
from quorate.facts.zone import ZoneRecord

Addresses = dict[str, tuple[str, int]]
"""Host and port by node name."""

ClientAddresses = Callable[[bool], Addresses]
"""Returns the current addresses; the argument is True for those of the external listener."""


def client_addresses(
    zone: ZoneRecord, members: Mapping[str, NodeRecord], external: bool
) -> Addresses:
    """Return the client address of each agent of the zone that has not left, for one listener."""
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
