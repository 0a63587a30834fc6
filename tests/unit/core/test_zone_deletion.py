"""A zone's record outlives its deletion until every registered agent has said its data is gone."""

from quorate.facts.time import Now
from quorate.facts.zone import ZoneRecord
from quorate.protocol.master.master import Master
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello
from quorate.protocol.messages.master import Inventory, RowsStored
from quorate.protocol.settings import ProtocolSettings

ZONE = ZoneRecord("uid-1", "books", 1, 1)
DELETED = ZoneRecord("uid-1", "books", 1, 1, deleting=True)
NOW = Now(1_000_000, 0)


def _settle(master: Master) -> None:
    while writes := master.take_outputs().writes:
        for key, value in writes:
            master.written(key, value, NOW)


def test_word_of_rows_stored_before_is_not_word_of_data_removed() -> None:
    master = Master(1, ProtocolSettings(), NOW)
    master.agent_connected(Hello(FORMAT_VERSION, "agent", "main", "a", "store-a", 1), NOW)
    _settle(master)
    master.receive("a", Inventory("", (), last=True), NOW)
    master.set_zone(ZONE, NOW)
    _settle(master)
    assert master.zones["uid-1"].parts

    master.set_zone(DELETED, NOW)
    master.receive("a", RowsStored("uid-1", ((0, 1),)), NOW)
    _settle(master)
    assert "uid-1" in master.zones, "a still has the data and would never be told again"

    master.receive("a", RowsStored("uid-1", ()), NOW)
    _settle(master)
    assert "uid-1" not in master.zones
