"""Agents have data of a zone without a record: the metastore is older, or the zone was deleted."""

import msgspec
import pytest

from quorate.facts.topology import NodeRecord
from quorate.facts.zone import ZoneRecord
from quorate.protocol.master.master import Master
from quorate.protocol.master.older_metastore import NOTED_MAX
from quorate.protocol.messages.master import Inventory, RowsStored
from quorate.protocol.metastore import Key, NodeKey, Value, ZoneKey
from quorate.protocol.settings import DEFAULTS
from quorate.protocol.status import NodeStatus, unrecorded_zones
from quorate_lone_master.world import LoneMaster

BOOKS = ZoneRecord("uid-books", "books", 1, 1)
LATER = ZoneRecord("uid-later", "later", 1, 1)
OUTDATED = (
    "agent a has data of zone uid-later, and the metastore holds no record of it (if the zone was "
    "deleted and no other agent has data of it, this agent's folder is an older copy: set it aside)"
)


class World(LoneMaster):
    """A lone master whose agents tell of which zones they have data: `data`, by agent."""

    def __init__(self, *nodes: str) -> None:
        self.data: dict[str, set[str]] = {node: {BOOKS.uid} for node in nodes}
        super().__init__(nodes=nodes)
        self.keeps = lambda node: tuple(sorted(self.data[node]))
        self.master.set_zone(BOOKS, self.now)
        self.pass_time(1_000)
        self.tell_all()

    def tell_all(self) -> None:
        """All agents that are here tell again what they have."""
        for node in sorted(self.data):
            self.report(node, {})
        self.write()

    def restart(self) -> Master:
        """The next master begins, and agents greet it; the master."""
        self.follow()
        self.connect(*sorted(self.data))
        self.pass_time(3_000)
        return self.master

    def declare_later(self) -> None:
        """Another zone is declared and placed at all agents."""
        self.master.set_zone(LATER, self.now)
        self.pass_time(1_000)
        for zones in self.data.values():
            zones.add(LATER.uid)
        self.tell_all()

    def delete_later(self, *confirmed: str) -> None:
        """It is deleted; these agents have removed its data."""
        self.master.set_zone(msgspec.structs.replace(LATER, deleting=True), self.now)
        self.write()
        self.removed(*confirmed)

    def removed(self, *nodes: str) -> None:
        """They say that its data is gone."""
        for node in nodes:
            self.data[node].discard(LATER.uid)
            self.master.receive(node, RowsStored(LATER.uid, ()), self.now)
        self.pass_time(100)

    def idle(self) -> str:
        """An agent that no row names."""
        zones = self.master.zones.values()
        return next(node for node in sorted(self.data) if not any(z.names(node) for z in zones))

    def forget(self, node: str) -> None:
        """It has gone, and its registration is removed."""
        self.kill(node)
        assert self.master.forget(node, self.now) == ""
        self.write()
        assert NodeKey(node) not in self.stored

    def start_over(self, node: str, store: str, *zones: str) -> None:
        """It ends, and a process over that store greets, with data of these zones."""
        self.kill(node)
        self.data[node] = set(zones)
        self.connect(node, store=store)

    @property
    def noted(self) -> dict[str, tuple[str, ...] | None]:
        """The zones that are noted, by agent: they may have data of them without a record."""
        records = [value for value in self.stored.values() if isinstance(value, NodeRecord)]
        return {record.name: record.unrecorded for record in records}


def _older(world: World) -> dict[Key, Value]:
    """Return what is stored, and then declare another zone."""
    older = dict(world.stored)
    world.declare_later()
    return older


def shown(world: World) -> dict[str, tuple[str, ...]]:
    """The zones without a record that the status shows, by agent."""
    nodes = world.master.status().nodes
    return {node.name: node.unrecorded for node in nodes if node.unrecorded}


# --- the status names such data ------------------------------------------------------------------


def test_data_without_a_record_is_shown_with_its_agent() -> None:
    world = World("a", "b")
    world.data["c"] = {BOOKS.uid, "uid-before", "uid-first"}
    world.connect("c")

    assert shown(world) == {"c": ("uid-before", "uid-first")}
    assert unrecorded_zones(world.master.status().nodes) == "uid-before (c), uid-first (c)"

    world.restart()

    assert shown(world) == {"c": ("uid-before", "uid-first")}


def test_a_zone_that_every_agent_has_removed_is_not_shown() -> None:
    world = World("a", "b", "c")
    world.declare_later()
    world.delete_later("a", "b")
    assert shown(world) == {}, "its record waits for the last agent"

    world.removed("c")

    assert LATER.uid not in world.master.zones
    assert shown(world) == {}


def test_only_a_few_zones_without_a_record_are_named() -> None:
    node = NodeStatus("a", "s", 1, True, "Online", "h:1", "", 0, 0)
    many = msgspec.structs.replace(node, unrecorded=tuple(f"uid-{n}" for n in range(7)))
    other = msgspec.structs.replace(node, name="b", unrecorded=("uid-0",))

    assert unrecorded_zones([node]) == ""
    assert unrecorded_zones([many, other]) == (
        "uid-0 (a, b), uid-1 (a), uid-2 (a), uid-3 (a), uid-4 (a), and 2 more"
    )


# --- the metastore is older ----------------------------------------------------------------------


def test_a_master_over_a_metastore_of_before_a_zone_was_declared_ends() -> None:
    world = World("a", "b", "c")
    assert world.noted == {"a": (), "b": (), "c": ()}
    world.stored = _older(world)

    master = world.restart()

    assert master.outdated == OUTDATED
    assert master.take_outputs() == ([], [], [])


def test_one_agent_that_has_data_of_the_zone_suffices() -> None:
    world = World("a", "b", "c")
    world.stored = _older(world)
    for node in "bc":
        world.data[node] = {BOOKS.uid}

    assert world.restart().outdated == OUTDATED


def test_it_ends_each_time_it_is_started_over_that_metastore() -> None:
    world = World("a", "b", "c")
    world.stored = _older(world)

    assert [world.restart().outdated for _ in range(3)] == [OUTDATED] * 3


def test_a_master_of_the_newest_metastore_leads() -> None:
    world = World("a", "b", "c")
    older = _older(world)
    newest, world.stored = world.stored, older
    world.restart()
    world.stored = newest

    assert world.restart().outdated == ""


def test_nothing_is_judged_before_the_metastore_was_read_again() -> None:
    world = World("a", "b")
    world.stored = _older(world)
    world.follow()
    master = world.master
    for node in "ab":
        master.agent_connected(world.hello(node, 2), world.now)
    for key, value in master.take_outputs().writes:
        master.written(key, value, world.now)
    master.receive("a", Inventory("", (), kept=(BOOKS.uid, LATER.uid)), world.now)

    told = master.told_newer()
    assert told
    assert told.zones == {LATER.uid: "a"}
    assert master.outdated == ""
    master.looked_again(told, dict(world.stored))
    assert master.outdated == OUTDATED


@pytest.mark.parametrize("shown", [ZoneKey(LATER.uid), None])
def test_a_zone_that_another_process_has_just_declared_is_no_reason_to_end(
    shown: Key | None,
) -> None:
    world = World("a", "b")
    older = _older(world)
    newest, world.stored = world.stored, older
    world.follow()
    master = world.master
    master.agent_connected(world.hello("a", 2), world.now)
    for key, value in master.take_outputs().writes:
        master.written(key, value, world.now)
    master.receive("a", Inventory("", (), kept=(LATER.uid,)), world.now)
    told = master.told_newer()
    assert told
    if shown is None:  # declared here meanwhile
        master.set_zone(LATER, world.now)
        newest = {}

    master.looked_again(told, {key: newest[key] for key in newest if key == shown})

    assert master.outdated == ""
    assert not master.has_doubts, "it is not read for ever"


def test_rows_without_a_record_show_that_the_zone_was_known() -> None:
    world = World("a", "b", "c")
    world.declare_later()
    del world.stored[ZoneKey(LATER.uid)]

    assert world.restart().outdated == ""


def test_what_was_told_while_it_was_read_waits_for_the_next_reading() -> None:
    world = World("a", "b")
    world.stored = _older(world)
    world.follow()
    master = world.master
    before = master.told_newer()
    master.agent_connected(world.hello("a", 2), world.now)
    for key, value in master.take_outputs().writes:
        master.written(key, value, world.now)
    master.receive("a", Inventory("", (), kept=(LATER.uid,)), world.now)

    master.looked_again(before, dict(world.stored))

    assert master.outdated == ""
    assert master.told_newer().zones == {LATER.uid: "a"}


# --- the metastore is the newest one -------------------------------------------------------------


def test_an_agent_that_was_away_while_a_zone_was_deleted_is_told_when_it_is_back() -> None:
    world = World("a", "b", "c")
    world.declare_later()
    world.kill("c")
    world.delete_later("a", "b")

    master = world.restart()

    assert master.outdated == ""
    assert LATER.uid in master.zones
    world.removed("a", "b", "c")
    assert LATER.uid not in master.zones
    assert world.restart().outdated == ""


def test_the_word_of_an_agent_from_before_the_end_of_the_zone_is_no_reason_to_end() -> None:
    world = World("a", "b", "c")
    world.declare_later()
    world.delete_later("a", "b", "c")
    assert LATER.uid not in world.master.zones

    world.master.receive("a", Inventory("", (), kept=(BOOKS.uid, LATER.uid)), world.now)
    world.write()

    assert world.master.outdated == ""
    assert not world.master.has_doubts


def test_an_agent_that_was_forgotten_may_come_back_with_a_zone_that_was_deleted() -> None:
    world = World("a", "b", "c")
    world.declare_later()
    idle = world.idle()
    world.forget(idle)
    world.delete_later(*sorted({"a", "b", "c"} - {idle}))
    assert LATER.uid not in world.master.zones

    world.connect(idle)

    assert world.noted[idle] == (LATER.uid,)
    assert [world.restart().outdated for _ in range(2)] == ["", ""]
    assert world.noted[idle] == (LATER.uid,)


def test_an_agent_that_came_with_a_deleted_zone_tells_of_an_older_metastore_all_the_same() -> None:
    world = World("a")
    world.data["b"] = {BOOKS.uid, "uid-before"}
    world.connect("b")
    assert world.noted["b"] == ("uid-before",)
    world.stored = _older(world)
    world.data["a"] = {BOOKS.uid}

    assert world.restart().outdated == OUTDATED.replace("agent a", "agent b")


def test_a_store_that_is_put_back_may_have_a_zone_that_was_deleted() -> None:
    world = World("a", "b", "c")
    world.declare_later()
    node = world.idle()
    world.start_over(node, "another")
    world.delete_later("a", "b", "c")
    assert LATER.uid not in world.master.zones

    world.start_over(node, f"store-{node}", BOOKS.uid, LATER.uid)

    assert world.noted[node] == (LATER.uid,)
    assert world.restart().outdated == ""


def test_the_word_of_another_store_does_not_stand_for_one_that_is_put_back() -> None:
    """Its node has said that the zone is gone; the record stays because of another agent."""
    world = World("a", "b", "c")
    world.declare_later()
    node = world.idle()
    others = sorted({"a", "b", "c"} - {node})
    world.start_over(node, "another")
    world.delete_later(node, others[0])
    world.start_over(node, f"store-{node}", BOOKS.uid, LATER.uid)
    assert LATER.uid in world.master.zones

    world.removed(others[1])

    assert LATER.uid not in world.master.zones
    assert world.restart().outdated == ""


def test_a_store_that_is_registered_at_the_second_attempt_is_compared_anew() -> None:
    world = World("a", "b", "c")
    node = world.idle()
    refusals = [NodeKey(node)]
    world.refused = lambda key: key in refusals
    world.start_over(node, "of-before", BOOKS.uid, LATER.uid)  # this was deleted long ago
    refusals.clear()
    world.pass_time(300)

    record = world.stored[NodeKey(node)]
    assert isinstance(record, NodeRecord)
    assert (record.store, record.unrecorded) == ("of-before", (LATER.uid,))
    assert world.restart().outdated == ""


@pytest.mark.parametrize("kept", [(BOOKS.uid,), (BOOKS.uid, LATER.uid)])
def test_a_note_that_could_not_be_written_is_written_again(kept: tuple[str, ...]) -> None:
    """The agent reports only once."""
    world = World("a", "b", "c")
    world.follow()
    master = world.master
    master.agent_connected(world.hello("d", 1), world.now)
    for key, value in master.take_outputs().writes:
        assert value is not None
        world.stored[key] = value
        master.written(key, value, world.now)
    asked = [node for node, message in master.take_outputs().sends if node == "d"]
    assert asked
    assert world.noted["d"] is None
    world.refused = lambda key: key == NodeKey("d")

    master.receive("d", Inventory("", (), kept=kept), world.now)
    world.write()
    assert world.noted["d"] is None
    world.refused = lambda key: False
    world.write()

    assert world.noted["d"] == tuple(sorted({*kept} - {BOOKS.uid}))


def test_a_folder_that_is_put_back_to_an_image_of_before_a_zone_was_deleted_ends_no_master() -> (
    None
):
    """The image is of the running start, so that its next start is taken for a restart."""
    world = World("a", "b", "c")
    world.declare_later()
    node = world.idle()
    world.delete_later("a", "b", "c")
    assert world.noted == dict.fromkeys("abc", (LATER.uid,))
    assert world.restart().outdated == ""

    world.kill(node)
    world.data[node] = {BOOKS.uid, LATER.uid}
    world.connect(node)

    assert [world.restart().outdated for _ in range(2)] == ["", ""]


def test_a_deleted_zone_of_which_the_note_could_not_be_written_is_noted_later() -> None:
    world = World("b", "c")
    world.data["a"] = {BOOKS.uid, "uid-before"}
    world.connect("a")
    world.declare_later()
    world.refused = lambda key: key == NodeKey("a")
    world.delete_later("a", "b", "c")
    assert world.noted["a"] == ("uid-before",)
    world.refused = lambda key: False

    world.write()

    assert world.noted["a"] == ("uid-before", LATER.uid)


def test_the_record_of_a_deleted_zone_goes_after_the_notes_of_it() -> None:
    """So a master that ends between the two writes leaves no zone without record and note."""
    world = World("a", "b", "c")
    world.declare_later()
    world.refused = lambda key: key == NodeKey("a")
    world.delete_later("a", "b", "c")

    assert world.noted == {"a": (), "b": (LATER.uid,), "c": (LATER.uid,)}
    assert ZoneKey(LATER.uid) in world.stored
    world.refused = lambda key: False
    world.write()

    assert world.noted == dict.fromkeys("abc", (LATER.uid,))
    assert ZoneKey(LATER.uid) not in world.stored


def test_a_later_process_that_another_master_registered_does_not_undo_a_note() -> None:
    world = World("a", "b", "c")
    world.declare_later()
    record = world.stored[NodeKey("a")]
    assert isinstance(record, NodeRecord)
    later = msgspec.structs.replace(record, incarnation=record.incarnation + 1)
    world.stored[NodeKey("a")] = later
    world.refused = lambda key: key == NodeKey("a")
    world.delete_later("a", "b", "c")
    assert world.noted["a"] == ()
    world.refused = lambda key: False

    world.write()

    assert world.stored[NodeKey("a")] == msgspec.structs.replace(later, unrecorded=(LATER.uid,))


def test_a_second_report_does_not_undo_a_note_that_is_being_written() -> None:
    world = World("a")
    world.data["b"] = {BOOKS.uid, "uid-before"}
    world.refused = lambda key: world.noted.get("b", ()) is None and key == NodeKey("b")
    world.connect("b")
    assert world.noted["b"] is None
    world.master.agents["b"].note_unrecorded("uid-after", NOTED_MAX)

    world.report("b", {})
    world.refused = lambda key: False
    world.write()

    assert world.noted["b"] == ("uid-before", "uid-after")


def test_the_last_deleted_zones_are_noted_and_all_of_which_an_agent_has_data() -> None:
    world = World("a")
    world.data["b"] = {BOOKS.uid, "uid-before"}
    world.connect("b")
    uids = [f"uid-{number}" for number in range(NOTED_MAX + 2)]
    for uid in uids:
        zone = msgspec.structs.replace(LATER, uid=uid)
        world.master.set_zone(zone, world.now)
        world.write()
        world.master.set_zone(msgspec.structs.replace(zone, deleting=True), world.now)
        world.write()
        for node in "ab":
            world.master.receive(node, RowsStored(uid, ()), world.now)
        world.master.tick(world.now)
        world.write()
        assert uid not in world.master.zones

    assert world.noted["a"] == tuple(uids[2:])
    assert world.noted["b"] == ("uid-before", *uids[3:])


def test_an_agent_whose_registration_an_earlier_version_wrote_is_no_witness_yet() -> None:
    world = World("a", "b", "c")
    for key, value in list(world.stored.items()):
        if isinstance(value, NodeRecord):
            world.stored[key] = msgspec.structs.replace(value, unrecorded=None)
    world.data["c"].add(LATER.uid)

    assert world.restart().outdated == ""
    assert world.noted == {"a": (), "b": (), "c": (LATER.uid,)}
    world.stored = {k: v for k, v in world.stored.items() if k != ZoneKey(BOOKS.uid)}
    assert world.restart().outdated == ""


def test_an_agent_of_an_earlier_version_does_not_tell_all_that_it_has() -> None:
    world = World("a", "b")
    world.formats["c"] = 3
    world.data["c"] = set()
    world.connect("c")
    assert world.noted["c"] is None

    world.formats["c"] = 4
    world.data["c"] = {LATER.uid}
    world.connect("c")

    assert world.noted["c"] == (LATER.uid,)
    assert world.restart().outdated == ""


@pytest.mark.parametrize("way", ["recovering", "rebuilds"])
def test_agents_tell_zones_where_these_are_taken_from_them_or_declared_apart(way: str) -> None:
    world = World("a", "b", "c")
    stored = _older(world)
    options = {way: True}
    world.master = master = Master(9, DEFAULTS, world.now, **options)
    master.load(dict(stored), world.now)
    for node in "abc":
        master.agent_connected(world.hello(node, 9), world.now)
    world.write()
    for node in "abc":
        master.receive(node, Inventory("", (), kept=(BOOKS.uid, LATER.uid)), world.now)

    assert not master.has_doubts
    assert master.outdated == ""


def test_where_zones_are_declared_apart_nothing_is_noted() -> None:
    world = LoneMaster(BOOKS, rebuilds=True)
    world.pass_time(1_000)

    records = [value for value in world.stored.values() if isinstance(value, NodeRecord)]
    assert len(records) == 3
    assert {record.unrecorded for record in records} == {None}


def test_agents_are_not_told_what_is_noted() -> None:
    record = NodeRecord("a", "s", 1, "h", 1, "h", unrecorded=("uid",))

    assert record.as_told().unrecorded is None
