"""An agent's reports to its master, and when the master last had one.

The master's next ping says which report it had.  What is counted from then on (a zone's isolation
timeout) counts from when that report was sent: the master, which counts from when it heard the
agent last, counts from later.  Source: docs/protocol.md, section 7.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping

from quorate.facts.time import Now
from quorate.protocol.agent.activation import TROUBLE_AFTER_MS
from quorate.protocol.agent.all_zones.aside_limit import AsideLimit
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.leases import Leases
from quorate.protocol.messages.master import (
    TROUBLES_MAX,
    AgentReport,
    AsideReport,
    MasterPing,
    Trouble,
)
from quorate.protocol.settings import ProtocolSettings

SENT_MAX = 32
"""Number of reports that are remembered: those of 16 s."""


class AgentReports:
    """Makes the reports of one agent."""

    def __init__(
        self,
        zones: Mapping[str, Replicas],
        awake: Mapping[str, Replicas],
        leases: Leases,
        settings: ProtocolSettings,
        aside: AsideLimit,
        now: Now,
    ) -> None:
        """`zones`, `awake`: all open zones and those that are not at rest, by uid."""
        self._aside = aside
        self._zones = zones
        self._awake = awake
        self._leases = leases
        self._settings = settings
        self._started_ms = now.boot_ms
        self._troubles_told = ""  # the zone at which the last report of troubles was full
        self._sent: deque[tuple[int, int]] = deque(maxlen=SENT_MAX)

    def make(self, sequence: int, leaving: bool, others: Iterable[str], now: Now) -> AgentReport:
        """Return the report that answers the ping `sequence`; 0: it answers none.

        `others`: the members that are there, besides this agent.
        """
        if sequence:
            self._sent.append((sequence, now.boot_ms))
        named = [(uid, zone.to_hand_over) for uid, zone in self._zones.items()]
        return AgentReport(
            sequence,
            self._troubles(now),
            leaving,
            self._unreached(others, now),
            {uid: zone.why_full for uid, zone in self._zones.items() if zone.why_full},
            {uid: partitions for uid, partitions in named if partitions},
            {
                uid: AsideReport(*zone.count_aside(), self._aside.dropped.get(uid, 0))
                for uid, zone in self._zones.items()
                if zone.aside or uid in self._aside.dropped
            },
        )

    def forget_sent(self) -> None:
        """Forget what was sent, because another mastership begins: it counts pings anew."""
        self._sent.clear()

    def had(self, ping: MasterPing, now: Now) -> None:
        """Take in which report the master had when it sent this ping."""
        heard = [sent_ms for sequence, sent_ms in self._sent if sequence <= ping.heard]
        if not heard:
            return
        while self._sent[0][0] < ping.heard and len(self._sent) > 1:
            self._sent.popleft()
        self._leases.set_contact(heard[-1])
        for zone in self._awake.values():
            zone.contact_renewed(now)

    def _troubles(self, now: Now) -> tuple[Trouble, ...]:
        # Zones at rest lack at most a lease: every role is active, and no row lacks its role.
        lapsed_ms = self._leases.shared.lapsed_ms
        is_stuck = lapsed_ms and now.boot_ms - lapsed_ms >= TROUBLE_AFTER_MS
        uids = sorted(self._zones if is_stuck else self._awake)
        first = bisect_right(uids, self._troubles_told)
        found: list[Trouble] = []
        for uid in uids[first:] + uids[:first]:
            found += self._zones[uid].troubles(now)
            if len(found) >= TROUBLES_MAX:
                self._troubles_told = uid
                break
        return tuple(found)

    def _unreached(self, others: Iterable[str], now: Now) -> tuple[str, ...]:
        """Return the members whose lease to us has ended.

        It is empty until this process has run for one lease, the time that it takes to be granted
        any.
        """
        if now.boot_ms - self._started_ms < self._settings.lease_ms:
            return ()
        held_until = self._leases.held_until
        return tuple(sorted(name for name in others if held_until(name) <= now.boot_ms))
