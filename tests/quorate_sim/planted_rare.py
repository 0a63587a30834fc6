"""Refills, lost metastores and refused zones: rules about them switched off."""

from contextlib import AbstractContextManager

from quorate.facts.time import Now
from quorate.protocol.agent.agent import AgentCore
from quorate.protocol.agent.all_zones.zone_openings import Opening, ZoneOpenings
from quorate.protocol.copies import zone_copies
from quorate.protocol.copies.fill import Fill
from quorate.protocol.messages.master import FromMaster, Greet
from quorate.protocol.storage import Storage
from quorate.protocol.zone_master.recovery import recover_rows
from quorate_sim.changed import changed


def refilled_without_its_log() -> AbstractContextManager[None]:
    """What the copy's log holds above the new rows is not applied to them."""

    def finish(self: Fill) -> None:
        if self.is_refill:
            self._chunk_floor = self.copy.lwm
        _finish(self)

    _finish = Fill.finish
    return changed(Fill, "finish", finish)


def known_by_promise_alone() -> AbstractContextManager[None]:
    """An agent that starts forgets rows that it had stored, of copies that had promised nothing."""

    def partitions(storage: Storage) -> list[int]:
        return [int(name[1:]) for name, _ in storage.records(b"p")]

    return changed(zone_copies, "recorded_partitions", partitions)


def rebuilt_beside_what_was() -> AbstractContextManager[None]:
    """Rebuilt rows go on right above what was told: who was away may know rows of these numbers."""
    return changed(recover_rows, "RECOVERY_GAP", -1)


def refused_for_ever() -> AbstractContextManager[None]:
    """An agent that had no room for a zone does not try again."""

    def refused(self: ZoneOpenings, opening: Opening, reason: str, now_ms: int) -> None:
        opening.reason, opening.again_ms = reason, 1 << 60

    return changed(ZoneOpenings, "refused", refused)


def refused_and_told_all() -> AbstractContextManager[None]:
    """An agent that refuses a zone says that it has nothing of it when the metastore is lost."""

    def open_zone(self: AgentCore, opening: Opening, now: Now) -> None:
        _open_zone(self, opening, now)
        if opening.record.uid not in self.zones:
            self._inventory_sent(opening.record.uid)

    _open_zone = AgentCore._open_zone
    return changed(AgentCore, "_open_zone", open_zone)


def greets_nobody_anew() -> AbstractContextManager[None]:
    """An agent passes over that it is to greet another, which does not believe the mastership."""

    def receive(self: AgentCore, message: FromMaster, now: Now) -> bool:
        obeyed = _receive(self, message, now)
        self._events = [event for event in self._events if not isinstance(event, Greet)]
        return obeyed

    _receive = AgentCore.receive_from_master
    return changed(AgentCore, "receive_from_master", receive)
