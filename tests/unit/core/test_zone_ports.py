"""Client ports that the master gives: one a zone, kept, written before anybody is told, freed."""

import msgspec
import pytest

from quorate.facts.time import Now
from quorate.facts.zone import ZoneRecord
from quorate.protocol.agent.all_zones.zone_openings import ZoneOpenings
from quorate.protocol.master.master import Master, Outputs
from quorate.protocol.messages.master import RowsStored, ZoneGone, ZoneTable
from quorate.protocol.messages.message import Message
from quorate.protocol.metastore import Key, Value
from quorate.protocol.settings import DEFAULTS
from quorate_lone_master.world import LoneMaster

Ranges = dict[str, tuple[int, int]]
ALL = dict.fromkeys("abc", (7000, 7002))
ZONES = [ZoneRecord(f"uid-{number}", f"zone-{number}", 2, 3) for number in range(5)]


class Careful(Master):
    """Tells agents no port that is not written."""

    def load(self, snapshot: dict[Key, Value], now: Now) -> None:
        super().load(snapshot, now)
        self.port_of = {z.uid: z.port for z in snapshot.values() if isinstance(z, ZoneRecord)}

    def written(self, key: Key, value: Value | None, now: Now) -> None:
        if isinstance(value, ZoneRecord):
            self.port_of = {**getattr(self, "port_of", {}), value.uid: value.port}
        super().written(key, value, now)

    def take_outputs(self) -> Outputs:
        outputs = super().take_outputs()
        told = [message.zone for _, message in outputs.sends if isinstance(message, ZoneTable)]
        assert all(zone.port in (0, self.port_of[zone.uid]) for zone in told)
        return outputs


class World(LoneMaster):
    """What the master says is looked at, and deletions are confirmed."""

    def __init__(self, *zones: ZoneRecord, client_ports: Ranges | None = None) -> None:
        super().__init__(*zones, kind=Careful, client_ports=client_ports)

    def _answer(self, node: str, message: Message) -> None:
        if isinstance(message, ZoneGone):
            self.master.receive(node, RowsStored(message.zone, ()), self.now)
        super()._answer(node, message)

    def declare(self, *zones: ZoneRecord) -> None:
        for zone in zones:
            self.master.set_zone(zone, self.now)
        self.pass_time(1_000)

    def delete(self, zone: ZoneRecord) -> None:
        self.declare(msgspec.structs.replace(zone, deleting=True))
        self.wait(lambda: zone.uid not in self.master.zones)

    def ports(self) -> dict[str, int]:
        """As they are written."""
        zones = [each for each in self.stored.values() if isinstance(each, ZoneRecord)]
        return {zone.name: zone.port for zone in zones}


def test_each_zone_has_the_lowest_free_port_and_keeps_it() -> None:
    world = World(*ZONES[:2], client_ports=ALL)
    assert world.ports() == {"zone-0": 7000, "zone-1": 7001}
    assert world.status(ZONES[0]).port == 7000

    world.delete(ZONES[0])
    world.declare(ZONES[2])

    assert world.ports() == {"zone-1": 7001, "zone-2": 7000}
    world.declare(*ZONES[1:3])  # declared again, as at every look
    assert world.ports() == {"zone-1": 7001, "zone-2": 7000}


def test_ports_outlive_masterships_restarts_and_other_ranges() -> None:
    world = World(*ZONES[:2], client_ports=ALL)
    world.delete(ZONES[0])
    world.client_ports = dict.fromkeys("abc", (8000, 8009))

    world.follow()
    world.connect("a", "b", "c")
    world.declare(ZONES[1], ZONES[2])

    assert world.ports() == {"zone-1": 7001, "zone-2": 8000}


def test_a_zone_for_which_no_port_is_free_waits_until_another_is_deleted() -> None:
    world = World(*ZONES[:4], client_ports=ALL)
    assert world.ports() == {"zone-0": 7000, "zone-1": 7001, "zone-2": 7002, "zone-3": 0}
    assert not world.master.zones[ZONES[3].uid].parts
    assert world.status(ZONES[3]).sentence == (
        "no client port: all from 7000 to 7002 are in use; delete a"
        " zone, or start the agents with a larger --client-ports-from-master"
    )

    world.delete(ZONES[1])
    world.pass_time(1_000)

    assert world.ports() == {"zone-0": 7000, "zone-2": 7002, "zone-3": 7001}
    assert len(world.rows(ZONES[3])) == 2


def test_a_port_is_one_that_all_agents_may_use() -> None:
    world = World(client_ports={"a": (7000, 7005), "b": (7003, 7009), "c": (7000, 7009)})
    world.declare(ZONES[0])
    assert world.ports() == {"zone-0": 7003}

    apart = World(client_ports={"a": (7000, 7005), "b": (7006, 7009)})
    apart.declare(ZONES[0])
    assert apart.ports() == {"zone-0": 0}
    assert "have no port in common" in apart.status(ZONES[0]).sentence


def test_agents_that_choose_themselves_are_given_none() -> None:
    world = World(*ZONES[:1])

    assert world.ports() == {"zone-0": 0}
    assert len(world.rows(ZONES[0])) == 2


def test_a_cluster_whose_agents_chose_themselves_gets_ports_when_they_take_them() -> None:
    world = World(*ZONES[:2])
    world.client_ports = ALL

    world.kill("a")
    world.connect("a")
    world.pass_time(1_000)

    assert world.ports() == {"zone-0": 7000, "zone-1": 7001}


@pytest.mark.parametrize(("told", "port"), [(7002, 7002), (7000, 7001)])
def test_a_zone_whose_record_was_lost_has_the_port_of_its_status_unless_another_has_it(
    told: int, port: int
) -> None:
    world = World(ZONES[0], client_ports=ALL)

    world.declare(msgspec.structs.replace(ZONES[1], port=told))

    assert world.ports() == {"zone-0": 7000, "zone-1": port}


def test_a_lost_metastore_gives_zones_the_ports_that_agents_know() -> None:
    master = Master(1, DEFAULTS, World().now, recovering=True)
    known = msgspec.structs.replace(ZONES[0], port=7002)
    for record in (known, known, msgspec.structs.replace(ZONES[1], port=7002)):
        master._recover_zone(record)

    assert {uid: zone.record.port for uid, zone in master.zones.items()} == {
        ZONES[0].uid: 7002,
        ZONES[1].uid: 0,
    }


def test_a_refused_zone_is_tried_at_once_when_it_has_another_port() -> None:
    openings = ZoneOpenings()
    opening = openings.told(ZONES[0], ())
    openings.refused(opening, "no port", 0)
    assert openings.due(1) is None

    openings.told(ZONES[0], ())
    assert openings.due(1) is None
    openings.told(msgspec.structs.replace(ZONES[0], port=7000), ())

    assert openings.due(1) is opening
