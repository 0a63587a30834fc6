"""State of the zones of a cluster: do they serve, and at which addresses."""

import socket
from collections.abc import Iterable

from quorate.protocol.status import ZoneStatus
from quorate_cli.objects.cluster_state import ClusterState

CONNECT_S = 1.0


def not_serving(state: ClusterState) -> list[str]:
    """Return one sentence for each zone with a partition that no primary serves.

    A partition whose stores are all gone for good does not count: waiting does not bring it back.
    """
    return [
        f"zone {zone.name} does not serve yet: {zone.sentence}"
        for zone in state.zones
        if zone.phase != "Deleting" and not serves(zone)
    ]


def serves(zone: ZoneStatus) -> bool:
    """Return whether every partition that is not lost has a serving primary, and clients a port."""
    served = zone.available + zone.degraded
    return bool(zone.ports) and served + zone.lost == zone.partitions


def client_addresses(state: ClusterState, zone: ZoneStatus) -> list[tuple[str, int]]:
    """Return host and client port of each online agent of the zone, by the agents' names.

    The port of an agent that is offline may belong to another program by now.
    """
    return [
        (node.client_host, zone.ports[node.name])
        for node in sorted(state.nodes, key=lambda node: node.name)
        if node.online and node.name in zone.ports
    ]


def reachable(addresses: Iterable[tuple[str, int]]) -> tuple[str, int] | None:
    """Return the first address that takes a connection: an agent may have died a moment ago."""
    for address in addresses:
        try:
            socket.create_connection(address, CONNECT_S).close()
        except OSError:
            continue
        return address
    return None


def how_to_connect(state: ClusterState) -> dict[str, str]:
    """Return zone -> one line on how to give it commands, for zones with a client port."""
    lines = {}
    for zone in state.zones:
        addresses = client_addresses(state, zone)
        if addresses:
            command = redis_cli(*addresses[0])
            lines[zone.name] = f"zone {zone.name}: quorate cli {zone.name}, or {command}"
    return lines


def redis_cli(host: str, port: int) -> str:
    """Return the redis-cli command that talks to a zone through one of its agents."""
    return f"redis-cli -c -h {host} -p {port}"
