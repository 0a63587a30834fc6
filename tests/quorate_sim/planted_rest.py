"""Planted defects: zones at rest that are not looked at when they have something to do."""

from contextlib import AbstractContextManager
from typing import Any

from quorate.facts.time import Now
from quorate.protocol.agent import next_look as next_look_module
from quorate.protocol.agent import replicas as replicas_module
from quorate.protocol.agent.agent_reports import AgentReports
from quorate.protocol.agent.next_look import next_look_ms
from quorate.protocol.copies.expiries import Expiries
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.shared_leases import SharedLeases
from quorate.protocol.copies.zone_copies import ZoneCopies
from quorate.protocol.messages.master import Trouble
from quorate_sim.changed import changed


def wake_up_forgotten() -> AbstractContextManager[None]:
    """What happens in a zone does not have it looked at by the next tick."""

    def wake(self: ZoneCopies) -> None:
        look_ms = self.look_ms
        before(self)
        self.look_ms = look_ms

    before = ZoneCopies.wake
    return changed(ZoneCopies, "wake", wake)


def keys_that_expire_forgotten() -> AbstractContextManager[None]:
    """A zone claims to be at rest although a key expires meanwhile."""

    def without_expiry(zone: ZoneCopies, *rest: Any) -> int:
        kept = {role: role.copy.expiring for role in zone.roles.values()}
        for role in kept:
            role.copy.expiring = Expiries()
        found = next_look_ms(zone, *rest)
        for role, expiring in kept.items():
            role.copy.expiring = expiring
        return found

    return changed(replicas_module, "next_look_ms", without_expiry)


def retries_forgotten() -> AbstractContextManager[None]:
    """A zone with a role that repeats what was not answered claims to have nothing due."""

    def never(zone: ZoneCopies, role: Primary, now_ms: int) -> int:
        return now_ms + next_look_module.IDLE_LOOK_MS

    return changed(next_look_module, "_role_due_ms", never)


def lease_end_forgotten() -> AbstractContextManager[None]:
    """The end of a lease that roles share is not noted for zones at rest."""

    def note(self: SharedLeases, now_ms: int) -> None:
        pass

    return changed(SharedLeases, "note", note)


def no_quorum_at_rest_untold() -> AbstractContextManager[None]:
    """An agent does not report the roles without a quorum in zones at rest."""

    def troubles(self: AgentReports, now: Now) -> tuple[Trouble, ...]:
        return tuple([trouble for zone in self._awake.values() for trouble in zone.troubles(now)])

    return changed(AgentReports, "_troubles", troubles)
