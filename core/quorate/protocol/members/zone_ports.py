"""Client ports that the master gives zones: one port per zone, the same on all agents.

An agent that cannot choose its ports freely registers with a range. Each zone gets the lowest port
that is free in the ranges of all registered agents. The port is written with the zone's record
before agents are told. So it outlives restarts and masterships, and is free again when the zone is
gone. A zone keeps its port when ranges change. Agents without a range choose ports of their own.
Source: docs/protocol.md, section 7.
"""

from collections.abc import Mapping
from typing import Protocol

from quorate.facts.zone import ZoneRecord
from quorate.protocol.members.membership import KnownAgent


class ZoneWithPort(Protocol):
    """A zone that is given a client port."""

    record: ZoneRecord

    def take_port(self, port: int) -> None:
        """Set the zone's client port."""


class ZonePorts:
    """The client ports that one master gives. `zones`: the master's, by uid."""

    def __init__(self, agents: Mapping[str, KnownAgent], zones: Mapping[str, ZoneWithPort]) -> None:
        self._agents = agents
        self._zones = zones

    def give(self) -> None:
        """Give each zone without a port the lowest free one, in the order of their uids."""
        first, last = self._bounds()
        zones = self._zones.values()
        waiting = [zone for zone in zones if not zone.record.port and not zone.record.deleting]
        if first and waiting:
            taken = {zone.record.port for zone in zones}
            free = (port for port in range(first, last + 1) if port not in taken)
            waiting.sort(key=lambda zone: zone.record.uid)
            for zone, port in zip(waiting, free, strict=False):
                zone.take_port(port)

    def unless_taken(self, uid: str, port: int) -> int:
        """Return `port`, which the zone is said to have had, or 0 if another zone has it."""
        others = (zone.record.port for each, zone in self._zones.items() if each != uid)
        return 0 if port in others else port

    def why_none(self, record: ZoneRecord, told: ZoneRecord) -> str:
        """Return a sentence on why agents cannot be told a client port of the zone yet, or "".

        `told`: the record as agents are told it. The sentence is "" if they can be told a port, or
        if no agent takes its ports from the master.
        """
        first, last = self._bounds()
        if not first or told.port:
            return ""
        if record.port:
            return "waiting for the zone's client port to be written"
        if last < first:
            return (
                "no client port: the ranges of the agents (--client-ports-from-master) have no port"
                " in common; start them with the same range"
            )
        return (
            f"no client port: all from {first} to {last} are in use; delete a zone, or start the"
            " agents with a larger --client-ports-from-master"
        )

    def _bounds(self) -> tuple[int, int]:
        """Return the first and last port that all agents with a range may use; (0, 0): no ranges.

        If the ranges have no port in common, the last is below the first.
        """
        records = [agent.record for agent in self._agents.values()]
        ranges = [record.client_ports for record in records if record and record.client_ports]
        if not ranges:
            return 0, 0
        return max(first for first, _ in ranges), min(last for _, last in ranges)
