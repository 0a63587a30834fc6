"""A primary is lost: another voter takes over as soon as everybody that is there has told all."""

from collections.abc import Iterable

import pytest

from quorate.facts.time import Now
from quorate.facts.zone import ZoneRecord
from quorate.protocol.master.master import Master
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello
from quorate.protocol.messages.master import Activated, AgentReport, Inventory
from quorate.protocol.settings import ProtocolSettings

ZONE = ZoneRecord("uid-1", "books", 4, 3)
NODES = ("a", "b", "c")


def _now(seconds: float) -> Now:
    return Now(1_000_000 + int(seconds * 1000), int(seconds * 1000))


def _hello(node: str) -> Hello:
    return Hello(FORMAT_VERSION, "agent", "main", node, f"store-{node}", 1, 0, node, 7100, node)


def _settle(master: Master, now: Now) -> None:
    """Every write succeeds at once; every activation does, too."""
    for _ in range(100):
        outputs = master.take_outputs()
        if not outputs.writes:
            break
        for key, value in outputs.writes:
            master.written(key, value, now)
    for uid, zone in master.zones.items():
        for partition, part in list(zone.parts.items()):
            row = part.row
            if row.primary is not None and not part.is_activation_over:
                message = Activated(uid, partition, row.term, 0)
                master.receive(row.primary.node, message, now)


def _hear(master: Master, nodes: Iterable[str], now: Now) -> None:
    """A second of the cluster's life."""
    for node in nodes:
        master.receive(node, AgentReport(1), now)
    master.tick(now)
    _settle(master, now)


@pytest.mark.parametrize("zone_first", [True, False], ids=["zone first", "agents first"])
def test_primaries_of_a_lost_agent_are_taken_over(zone_first: bool) -> None:
    master = Master(1, ProtocolSettings(), _now(0))
    if zone_first:
        master.set_zone(ZONE, _now(0))
    for node in NODES:
        master.agent_connected(_hello(node), _now(0))
    _settle(master, _now(0))
    for node in NODES:
        master.receive(node, Inventory("", (), last=True), _now(0))
    if not zone_first:
        master.set_zone(ZONE, _now(0))
    for step in range(5):
        _hear(master, NODES, _now(1 + step))
    parts = master.zones[ZONE.uid].parts
    assert sorted(parts) == [0, 1, 2, 3]
    lost = parts[0].row.replicas[0]
    assert lost is not None

    master.agent_disconnected(lost, True, _now(6))
    for step in range(3):
        _hear(master, [node for node in NODES if node != lost], _now(6 + step))

    for part in parts.values():
        assert part.row.primary is not None
        assert part.row.primary.node != lost
        assert lost not in part.row.owners
        assert lost in part.row.voter_nodes
