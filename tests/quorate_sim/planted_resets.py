"""Rules of HIGH_AVAILABILITY zones, and of resets, switched off."""

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager

from quorate.facts import chain
from quorate.facts.partition_row import PartitionRow, majority
from quorate.facts.time import Now
from quorate.facts.topology import Holder
from quorate.facts.zone import ZoneRecord
from quorate.protocol.agent.agent_reports import AgentReports
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.record import KeptRows
from quorate.protocol.copies.waiters import Waiter
from quorate.protocol.copies.zone_copies import ZoneCopies
from quorate.protocol.messages.master import MasterPing
from quorate.protocol.storage import Row
from quorate.protocol.zone_master.partition_state import PartitionState
from quorate.protocol.zone_master.recovery import reset
from quorate.protocol.zone_master.recovery.reset import Resets
from quorate.protocol.zone_master.view.events import ZoneEvents
from quorate_sim.changed import changed


def full_sync_forgotten() -> AbstractContextManager[None]:
    """A write is acknowledged as soon as a majority of the voters has it."""
    return changed(ZoneRecord, "acknowledges_by_all", property(lambda self: False))


def minority_is_enough() -> AbstractContextManager[None]:
    """A partition is reset as soon as one of its voters is lost."""

    def is_quorum(row: PartitionRow, here: Collection[str], dead: Collection[str]) -> bool:
        return len(here) == len(row.voters)

    return changed(reset, "is_quorum", is_quorum)


def chain_ignored() -> AbstractContextManager[None]:
    """A survivor that restarted serves although others may have later updates."""
    return changed(Primary, "is_unproven", property(lambda self: False))


def chain_not_waited_for() -> AbstractContextManager[None]:
    """A survivor that restarted asks those that the resets left, and waits for none of them."""
    return changed(chain, "awaited", lambda reset, now, used: ())


def one_loss_counts_twice() -> AbstractContextManager[None]:
    """Copies that a reset left still count for the majority of the voters."""

    def survivor(
        self: Resets, part: PartitionState, waiting: dict[str, int], now: Now
    ) -> Holder | None:
        row = part.row
        before = [*row.voters, *row.left_by_reset]
        there = [voter for voter in before if self._zone.nodes.voter_holder(voter) is not None]
        if row.left_by_reset and len(there) < majority(len(before)):
            return self._zone.nodes.voter_holder(row.voters[0])
        return _survivor(self, part, waiting, now)

    _survivor = Resets._survivor_if_due
    return changed(Resets, "_survivor_if_due", survivor)


def hand_over_forgets() -> AbstractContextManager[None]:
    """With PRIMARY_SYNC, a primary that hands over waits only for its own copy."""
    acknowledged = Primary.acknowledged

    def alone(self: Primary) -> int:
        if self.answers_alone and self.frozen is not None:
            return self.copy.durable_lwm
        return acknowledged(self)

    return changed(Primary, "acknowledged", alone)


def alone_without_lease() -> AbstractContextManager[None]:
    """With PRIMARY_SYNC, a primary acknowledges writes although its lease is over."""
    advance = Primary.advance

    def at_any_time(self: Primary, now_ms: int) -> list[Waiter]:
        return advance(self, -1)

    return changed(Primary, "advance", at_any_time)


def change_of_primary_untold() -> AbstractContextManager[None]:
    """A change of primary that may lose acknowledged writes is not announced."""

    def look(self: ZoneEvents, changed: object) -> None:
        pass

    return changed(ZoneEvents, "look_at_primaries", look)


def despite_isolation() -> AbstractContextManager[None]:
    """A partition is reset although those that are cut off may still serve."""
    return changed(Resets, "may_serve_ms", lambda self, lost, now: 0)


def contact_by_ping() -> AbstractContextManager[None]:
    """An agent that hears the master is in contact, whether the master hears it or not."""

    def had(self: AgentReports, ping: MasterPing, now: Now) -> None:
        self._leases.set_contact(now.boot_ms)

    return changed(AgentReports, "had", had)


def answered_while_isolated() -> AbstractContextManager[None]:
    """A write is answered once it is acknowledged, although the partition may go on elsewhere."""

    def advance(self: ZoneCopies, role: Primary) -> None:
        self.finished.answered.extend(role.advance(self.now.boot_ms))

    return changed(ZoneCopies, "advance", advance)


@contextmanager
def rows_set_aside_serve() -> Iterator[None]:
    """Rows that a reset set aside come back with those that the copy fetches instead."""
    replace, use = Copy._replace_space, Copy._use_space
    aside_of: dict[int, list[tuple[bytes, Row]]] = {}

    def replace_space(self: Copy, aside: KeptRows | None) -> None:
        if aside is not None:
            aside_of[id(self)] = self.space.scan(None, 1 << 20, 1 << 30)
        replace(self, aside)

    def use_space(self: Copy) -> None:
        use(self)
        for key, row in aside_of.pop(id(self), ()):
            if self.present and self.space.get(key) is None:
                self.space.put(key, row)

    with changed(Copy, "_replace_space", replace_space), changed(Copy, "_use_space", use_space):
        yield
