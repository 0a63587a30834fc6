"""A zone's record outlives its deletion until every registered agent has said its data is gone."""

import msgspec

from quorate.facts.time import Now
from quorate.facts.zone import ZoneRecord
from quorate.protocol.master.master import Master
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello
from quorate.protocol.messages.master import Inventory, RowsStored, ZoneReady
from quorate.protocol.metastore import Key, ShardKey, Value, ZoneKey
from quorate.protocol.settings import ProtocolSettings
from quorate_lone_master.world import LoneMaster, placed_master

ZONE = ZoneRecord("uid-1", "books", 1, 1)
DELETED = ZoneRecord("uid-1", "books", 1, 1, deleting=True)
RECORD = ZoneKey("uid-1")
NOW = Now(1_000_000, 0)


def _settle(master: Master) -> None:
    while writes := master.take_outputs().writes:
        for key, value in writes:
            master.written(key, value, NOW)


def _placed() -> Master:
    master = Master(1, ProtocolSettings(), NOW)
    master.agent_connected(Hello(FORMAT_VERSION, "agent", "main", "a", "store-a", 1), NOW)
    _settle(master)
    master.receive("a", Inventory("", (), last=True), NOW)
    master.set_zone(ZONE, NOW)
    _settle(master)
    assert master.zones["uid-1"].parts
    return master


def _delete_to_the_record(master: Master) -> None:
    """Only the deletion of the zone's record is still under way."""
    master.set_zone(DELETED, NOW)
    _settle(master)
    master.receive("a", RowsStored("uid-1", ()), NOW)
    while (RECORD, None) not in (writes := master.take_outputs().writes):
        for key, value in writes:
            master.written(key, value, NOW)


def test_word_of_rows_stored_before_is_not_word_of_data_removed() -> None:
    master = _placed()

    master.set_zone(DELETED, NOW)
    master.receive("a", RowsStored("uid-1", ((0, 1),)), NOW)
    _settle(master)
    assert "uid-1" in master.zones, "a still has the data and would never be told again"

    master.receive("a", RowsStored("uid-1", ()), NOW)
    _settle(master)
    assert "uid-1" not in master.zones


def _deletion_of_record(master: Master) -> list[tuple[Key, Value | None]]:
    """Delete the zone until only its record is left; return the write that deletes this one."""
    master.agent_connected(Hello(FORMAT_VERSION, "agent", "main", "a", "store-a", 1), NOW)
    _settle(master)
    master.receive("a", Inventory("", (), last=True), NOW)
    master.set_zone(ZONE, NOW)
    _settle(master)
    master.set_zone(DELETED, NOW)
    master.receive("a", RowsStored("uid-1", ()), NOW)
    while True:
        writes = master.take_outputs().writes
        if (ZoneKey("uid-1"), None) in writes:
            return writes
        assert writes, "the record is deleted in the end"
        for key, value in writes:
            master.written(key, value, NOW)


def _change_late(master: Master) -> None:
    master.receive("a", ZoneReady("uid-1", 6379), NOW)
    master.set_zone(msgspec.structs.replace(DELETED, importing="an export"), NOW)


def test_a_late_change_does_not_write_the_record_of_a_deleted_zone_again() -> None:
    master = Master(1, ProtocolSettings(), NOW)
    deletion = _deletion_of_record(master)

    _change_late(master)
    for key, value in deletion:
        master.written(key, value, NOW)

    assert master.take_outputs().writes == []
    assert master.is_zone_gone("uid-1")


def test_a_late_change_does_not_take_the_place_of_a_deletion_that_has_failed() -> None:
    master = Master(1, ProtocolSettings(), NOW)
    deletion = _deletion_of_record(master)
    stored = master.zones["uid-1"].record

    _change_late(master)
    for key, value in deletion:
        if key != ZoneKey("uid-1"):
            master.written(key, value, NOW)
    master.reloaded(ZoneKey("uid-1"), stored, NOW)
    written: list[Value | None] = []
    while writes := master.take_outputs().writes:
        written += [value for key, value in writes if key == ZoneKey("uid-1")]
        for key, value in writes:
            master.written(key, value, NOW)

    assert written == [None]
    assert master.is_zone_gone("uid-1")


def test_the_rows_are_deleted_once_while_the_record_is_still_there() -> None:
    master = _placed()
    _delete_to_the_record(master)

    master.tick(NOW)

    assert master.take_outputs().writes == []
    assert master.is_zone_gone("uid-1")
    master.reloaded(RECORD, master.zones["uid-1"].record, NOW)  # it was refused
    assert master.take_outputs().writes == [(RECORD, None)]
    master.written(RECORD, None, NOW)
    assert "uid-1" not in master.zones


def test_a_record_that_was_changed_meanwhile_is_deleted_all_the_same() -> None:
    master = _placed()
    _delete_to_the_record(master)
    master.receive("a", ZoneReady("uid-1", 7_000), NOW)

    master.reloaded(RECORD, DELETED, NOW)
    _settle(master)

    assert "uid-1" not in master.zones


# --- rows that are still there -------------------------------------------------------------------

BOOKS = ZoneRecord("uid-1", "books", 1, 3)
ROWS = ShardKey("uid-1", 0)


def _begun_without(away: str) -> LoneMaster:
    """The zone is being deleted, `away` is lost for good, and the first deletion of rows fails."""
    world = placed_master(BOOKS)
    world.kill(away)
    world.pass_time(5_000)
    world.refused = lambda key: key == ROWS
    world.master.set_zone(msgspec.structs.replace(BOOKS, deleting=True), world.now)
    world.write()
    world.refused = lambda key: False
    assert ROWS in world.stored
    return world


def test_rows_whose_deletion_failed_do_not_keep_a_lost_agent() -> None:
    world = _begun_without("c")
    assert not world.master.zones[BOOKS.uid].names("c")
    for node in "ab":
        world.master.receive(node, RowsStored(BOOKS.uid, ()), world.now)
    world.pass_time(1_000)
    assert ROWS not in world.stored
    assert BOOKS.uid in world.master.zones, "c could still have its data"

    assert world.master.forget("c", world.now) == ""
    world.write()

    assert BOOKS.uid not in world.master.zones


def test_rows_that_a_former_master_wrote_late_are_deleted_again() -> None:
    world = placed_master(BOOKS)
    late = world.stored[ROWS]
    world.master.set_zone(msgspec.structs.replace(BOOKS, deleting=True), world.now)
    world.write()
    assert ROWS not in world.stored
    world.stored[ROWS] = late

    world.master.reloaded(ROWS, late, world.now)
    world.write()

    assert ROWS not in world.stored
    assert not world.master.zones[BOOKS.uid].parts
