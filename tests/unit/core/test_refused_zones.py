"""A zone that an agent cannot open: the others go on, the master hears why, it is tried again."""

from collections.abc import Iterable

import msgspec
import pytest

from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.facts.zone import ZoneRecord
from quorate.protocol.agent.agent import AgentCore, FromMaster
from quorate.protocol.agent.all_zones.zone_openings import RETRY_FIRST_MS, RETRY_MAX_MS
from quorate.protocol.agent.masterships import MastershipNotKept
from quorate.protocol.messages.events import Reason
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello
from quorate.protocol.messages.master import (
    Activated,
    AskInventory,
    Inventory,
    MasterPing,
    Members,
    RowsStored,
    ZoneGone,
    ZoneReady,
    ZoneTable,
)
from quorate.protocol.messages.message import Message
from quorate.protocol.settings import DEFAULTS
from quorate.protocol.storage import ZoneRefused
from quorate_lone_master.world import LoneMaster
from quorate_sim.disk import Image, SimStorage

A = Holder("a", "store-a", 1)
NO_ROOM = "no room: make some"


class Store:
    """An agent's folder that has no room for the zones in `refuses`."""

    def __init__(self) -> None:
        self.refuses: set[str] = set()
        self.images: dict[str, Image] = {}
        self.tried: list[str] = []
        self.removed: list[str] = []
        self.kept: list[ZoneRecord] = []
        self.keeping: list[ZoneRecord] = []  # also those for which there was no room
        self.is_full = False
        self.master_term = 0

    def open_zone(self, record: ZoneRecord) -> SimStorage:
        self.tried.append(record.uid)
        if record.uid in self.refuses:
            raise ZoneRefused(NO_ROOM)
        return SimStorage(self.images.setdefault(record.uid, Image()))

    def remove_zone(self, uid: str) -> bool:
        self.removed.append(uid)
        return not self.is_full

    def keep_zone(self, record: ZoneRecord) -> bool:
        self.keeping.append(record)
        if not self.is_full:
            self.kept.append(record)
        return not self.is_full

    def kept_zones(self) -> list[ZoneRecord]:
        return self.kept

    def raise_master_term(self, term: int, word: str) -> None:
        if self.is_full:
            raise MastershipNotKept(NO_ROOM)
        self.master_term = term


class OneAgent:
    """The core of agent "a", registered, with what it said to the master."""

    def __init__(self, *refuses: str) -> None:
        self.store = Store()
        self.store.refuses = set(refuses)
        self.ms = 0
        hello = Hello(FORMAT_VERSION, "agent", "main", "a", "store-a", 1)
        self.core = AgentCore(hello, self.store, DEFAULTS, self.now)
        self.hear(Members(1, (NodeRecord("a", "store-a", 1, "a", 1, "a"),), 1))

    @property
    def now(self) -> Now:
        return Now(1_000_000 + self.ms, self.ms)

    def turn(self) -> list[Message]:
        """End a turn that is durable at once; what was said."""
        flushed = self.core.flush(self.now)
        said = [message for _, message in flushed.sends]
        for uid, turn in flushed.turns:
            said += [message for _, message in self.core.synced(uid, turn, self.now)]
        return said

    def hear(self, *messages: FromMaster) -> list[Message]:
        """All in one turn."""
        for message in messages:
            assert self.core.receive_from_master(message, self.now)
        return self.turn()

    def pass_time(self, ms: int) -> list[Message]:
        self.ms += ms
        self.core.tick(self.now)
        return self.turn()


def zone(uid: str) -> ZoneRecord:
    return ZoneRecord(uid, f"name-{uid}", 1, 1)


def table(uid: str, version: int = 1) -> ZoneTable:
    row = PartitionRow(0, version, version, A, ("a",), (Voter("a", "store-a"),))
    return ZoneTable(1, zone(uid), (row,), 1)


def refused(messages: Iterable[Message]) -> list[str]:
    return [m.zone for m in messages if isinstance(m, ZoneReady) and m.problem == NO_ROOM]


def test_a_zone_that_cannot_be_opened_is_refused_with_its_reason_and_others_serve() -> None:
    agent = OneAgent("full")

    said = agent.hear(table("full"))
    agent.hear(table("other"))

    assert refused(said) == ["full"]
    assert list(agent.core.zones) == ["other"]


def test_one_zone_is_opened_in_a_turn_so_that_others_are_served_between() -> None:
    agent = OneAgent()

    agent.hear(table("x"), table("y"), table("z"))
    opened = [len(agent.core.zones)]
    while agent.core.has_to_open(agent.now):
        agent.turn()
        opened.append(len(agent.core.zones))

    assert opened == [1, 2, 3]


def test_zones_are_opened_in_the_order_in_which_they_were_told() -> None:
    agent = OneAgent()

    agent.hear(table("x"), table("y"))
    agent.hear(table("z"))
    agent.turn()

    assert agent.store.tried == ["x", "y", "z"]


def test_a_refused_zone_is_tried_again_after_ever_longer_pauses() -> None:
    agent = OneAgent("full")
    agent.hear(table("full"))
    pauses, last = [], 0
    while len(pauses) < 9:
        tried = len(agent.store.tried)
        agent.pass_time(100)
        if len(agent.store.tried) > tried:
            pauses.append(agent.ms - last)
            last = agent.ms

    assert pauses[:3] == [RETRY_FIRST_MS, 2 * RETRY_FIRST_MS, 4 * RETRY_FIRST_MS]
    assert pauses[-1] == RETRY_MAX_MS


def test_it_opens_at_once_when_something_was_freed_with_the_newest_rows_that_were_told() -> None:
    agent = OneAgent("full")
    agent.hear(table("full"))
    agent.hear(table("full", version=5))
    agent.hear(table("full", version=2))  # it was held up
    agent.store.refuses.clear()
    assert agent.pass_time(1) == []

    agent.core.try_refused_zones()
    said = agent.turn()

    row = agent.core.zones["full"].table[0]
    assert row is not None
    assert row.version == 5
    assert RowsStored("full", ((0, 5),)) in said
    # What it has of the zone is told: when it was asked for all it could not look.
    assert [m.zone for m in said if isinstance(m, Inventory)] == ["full"]


def test_the_refusal_is_repeated_to_who_tells_of_the_zone_again() -> None:
    agent = OneAgent("full")
    agent.hear(table("full"))

    assert refused(agent.hear(table("full"))) == ["full"]
    assert agent.store.tried == ["full"]


def test_a_zone_whose_record_finds_no_room_opens_and_takes_its_rows_all_the_same() -> None:
    """The record is for the day on which the metastore is lost: it is tried with each table."""
    agent = OneAgent()
    agent.store.is_full = True

    assert RowsStored("x", ((0, 1),)) in agent.hear(table("x"))
    assert RowsStored("x", ((0, 2),)) in agent.hear(table("x", version=2))
    agent.store.is_full = False
    agent.hear(table("x", version=3))
    agent.hear(table("x", version=4))

    assert agent.store.kept == [zone("x")]
    assert agent.store.keeping == [zone("x")] * 3


def test_a_record_that_changes_while_there_is_no_room_is_kept_as_it_was_told_last() -> None:
    agent = OneAgent()
    agent.hear(table("x"))
    agent.store.is_full = True
    changed = msgspec.structs.replace(zone("x"), replicas=2)

    said = agent.hear(msgspec.structs.replace(table("x", version=2), zone=changed))
    agent.store.is_full = False
    agent.hear(msgspec.structs.replace(table("x", version=3), zone=changed))

    assert RowsStored("x", ((0, 2),)) in said
    assert agent.store.kept == [zone("x"), changed]


def test_an_inventory_waits_for_zones_that_are_yet_to_be_opened_and_not_for_refused_ones() -> None:
    agent = OneAgent("full")
    agent.hear(table("full"))

    said = agent.hear(table("x"), table("y"), AskInventory(1))
    assert not [m for m in said if isinstance(m, Inventory) and m.last]
    said += agent.turn()

    told = [m for m in said if isinstance(m, Inventory)]
    assert sorted(m.zone for m in told if not m.last) == ["x", "y"]
    assert told[-1].last


def test_an_inventory_ends_when_the_zone_it_waited_for_is_refused() -> None:
    agent = OneAgent("full")

    said = agent.hear(table("x"), table("full"), AskInventory(1)) + agent.turn()

    assert refused(said) == ["full"]
    assert [m.last for m in said if isinstance(m, Inventory)][-1]


def test_where_the_metastore_is_lost_the_inventory_waits_for_refused_zones_too() -> None:
    agent = OneAgent("full")
    agent.store.kept = [zone("full"), zone("x")]  # no master has told of either

    said = agent.hear(AskInventory(1, rows=True)) + agent.turn() + agent.turn()
    told = [m for m in said if isinstance(m, Inventory)]
    assert [(m.zone, m.last) for m in told] == [("x", False)]
    agent.store.refuses.clear()
    agent.core.try_refused_zones()
    told = [m for m in agent.turn() if isinstance(m, Inventory)]

    assert [(m.zone, m.last) for m in told] == [("full", False), ("", True)]
    assert told[0].record == zone("full")


def test_a_refused_zone_that_is_deleted_is_not_tried_again() -> None:
    agent = OneAgent("full")
    agent.hear(table("full"))

    said = agent.hear(ZoneGone(1, "full"))
    agent.store.refuses.clear()
    agent.core.try_refused_zones()
    agent.pass_time(RETRY_MAX_MS)

    assert RowsStored("full", ()) in said
    assert agent.store.removed == ["full"]
    assert agent.core.zones == {}


def test_a_deleted_zone_whose_data_cannot_be_removed_is_confirmed_when_it_is() -> None:
    agent = OneAgent()
    agent.hear(table("z"))
    agent.store.is_full = True
    assert RowsStored("z", ()) not in agent.hear(ZoneGone(1, "z"))
    assert agent.core.zones == {}

    agent.store.is_full = False

    assert RowsStored("z", ()) in agent.hear(ZoneGone(1, "z"))
    assert agent.store.removed == ["z", "z"]


def test_a_mastership_that_cannot_be_recorded_is_not_obeyed_until_it_is() -> None:
    agent = OneAgent()
    agent.hear(table("z"))
    agent.store.is_full = True
    for message in (MasterPing(2, 1), ZoneGone(2, "z")):
        with pytest.raises(MastershipNotKept, match=NO_ROOM):
            agent.core.receive_from_master(message, agent.now)
    assert "z" in agent.core.zones
    assert [m for m in agent.turn() if not isinstance(m, Activated)] == []
    assert not agent.core.receive_from_master(MasterPing(1, 1), agent.now)  # a lower one neither

    agent.store.is_full = False

    assert RowsStored("z", ()) in agent.hear(ZoneGone(2, "z"))
    assert agent.store.master_term == 2


# --- the master ----------------------------------------------------------------------------------

BOOKS = ZoneRecord("uid", "books", 4, 3)


def refuse(world: LoneMaster, *nodes: str) -> None:
    for node in nodes:
        world.master.receive(node, ZoneReady("uid", 0, NO_ROOM), world.now)
    world.write()


def owners(world: LoneMaster) -> set[str]:
    return {node for row in world.rows(BOOKS).values() for node in row.owners}


def test_an_agent_that_refuses_a_zone_owns_nothing_of_it_and_the_status_says_why() -> None:
    world = LoneMaster(BOOKS)

    refuse(world, "a")
    world.pass_time(1_000)

    status = world.status(BOOKS)
    assert owners(world) == {"b", "c"}
    assert status.unavailable == 0
    assert status.refusals == (("a", NO_ROOM),)
    assert f"a refuses the zone: {NO_ROOM}" in status.sentence
    assert world.said(Reason.ZONE_REFUSED) == [f"a refuses the zone: {NO_ROOM}"]


def test_it_is_told_once_however_often_it_is_refused() -> None:
    world = LoneMaster(BOOKS)

    for _ in range(3):
        refuse(world, "a")

    assert len(world.said(Reason.ZONE_REFUSED)) == 1


def test_when_it_has_opened_the_zone_it_owns_its_copies_again() -> None:
    world = LoneMaster(BOOKS)
    refuse(world, "a")
    world.pass_time(1_000)

    world.report("a", {"uid": 10})
    world.master.receive("a", ZoneReady("uid", 7000), world.now)
    world.pass_time(5_000)

    assert owners(world) == {"a", "b", "c"}
    assert world.status(BOOKS).refusals == ()
    assert world.status(BOOKS).phase == "Available"


def test_a_spare_agent_takes_the_copies_of_one_that_goes_on_refusing() -> None:
    world = LoneMaster(BOOKS)
    world.connect("d")
    world.pass_time(30_000)

    refuse(world, "a")
    world.pass_time(DEFAULTS.refusal_delay_ms + 30_000)

    assert owners(world) == {"b", "c", "d"}
    assert world.status(BOOKS).available == 4


@pytest.mark.parametrize("refusing", [("a", "b"), ("a", "b", "c")])
def test_a_zone_that_most_agents_refuse_waits_and_serves_when_they_can(
    refusing: tuple[str, ...],
) -> None:
    world = LoneMaster(BOOKS)
    refuse(world, *refusing)
    world.pass_time(20_000)
    assert world.status(BOOKS).phase == "Unavailable"

    for node in refusing:
        world.report(node, {"uid": 0})
    world.pass_time(20_000)

    assert world.status(BOOKS).available == 4


def test_a_new_process_has_refused_nothing_yet() -> None:
    world = LoneMaster(BOOKS)
    refuse(world, "a")

    world.kill("a")
    assert world.status(BOOKS).refusals == ()
    world.connect("a", copies={"uid": 10})
    world.pass_time(10_000)

    assert owners(world) == {"a", "b", "c"}


def _rows_told(messages: Iterable[Message]) -> dict[str, list[tuple[int, int]]]:
    told = [each for each in messages if isinstance(each, Inventory) and each.rows]
    rows = {each.zone: [copy.row for copy in each.copies] for each in told}
    return {
        uid: [(r.partition, r.version) for r in of if r is not None] for uid, of in rows.items()
    }


def test_rows_of_one_zone_are_told_without_those_of_others() -> None:
    agent = OneAgent()
    agent.hear(table("one", 3))
    agent.hear(table("other"))

    assert _rows_told(agent.hear(AskInventory(1, True, "one"))) == {"one": [(0, 3)]}
    assert _rows_told(agent.hear(AskInventory(1, True, "unknown"))) == {"unknown": []}


def test_a_zone_that_no_master_told_of_is_opened_to_tell_its_rows_also_when_it_was_refused() -> (
    None
):
    before = OneAgent()
    before.hear(table("one", 3))
    storage = before.core.zones["one"].storage
    assert isinstance(storage, SimStorage)
    storage.sync()
    agent = OneAgent("one")
    agent.store.images, agent.store.kept = before.store.images, before.store.kept
    agent.core = AgentCore(
        Hello(FORMAT_VERSION, "agent", "main", "a", "store-a", 1), agent.store, DEFAULTS, agent.now
    )
    agent.hear(Members(1, (NodeRecord("a", "store-a", 1, "a", 1, "a"),), 1))
    (last,) = [m for m in agent.hear(AskInventory(1)) if isinstance(m, Inventory)]
    assert (last.last, last.kept) == (True, ("one",))

    assert _rows_told(agent.hear(AskInventory(1, True, "one"))) == {}
    agent.store.refuses = set()
    said = agent.pass_time(RETRY_FIRST_MS)

    assert _rows_told(said) == {"one": [(0, 3)]}


def test_a_deleted_zone_is_told_until_its_data_is_gone() -> None:
    """A master that does not know it would else take its data for gone."""
    agent = OneAgent()
    agent.hear(table("x"))
    agent.store.is_full = True  # so nothing can be removed
    agent.hear(ZoneGone(1, "x"))

    told = [m.kept for m in agent.hear(AskInventory(1)) if isinstance(m, Inventory) and m.last]
    assert told == [("x",)]

    agent.store.is_full = False
    agent.hear(ZoneGone(1, "x"))
    told = [m.kept for m in agent.hear(AskInventory(1)) if isinstance(m, Inventory) and m.last]
    assert told == [()]
