"""Decides from one Lease which candidate may be the master: the pure part of the elector.

    STANDBY --nobody holds it, or it ran out--> (write) --written--> HOLDER
    HOLDER --every retry_ms--> (write) --written--> HOLDER
    HOLDER --renew_deadline_ms without an answered renewal, or another holds it--> LOST

LOST is final: a renewal answered after the deadline changes nothing, because the leading code has
been told by then that it may not act, and has ended.

All times are boot milliseconds of this machine: the wall clock, used in the Lease itself, may be
set at any moment.  A standby counts from when it last *saw* the Lease change.  A holder that keeps
its deadline has stopped before another begins, whatever the clocks of both say.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class ElectionSettings:
    """Timing of the election: lease > renew_deadline > retry + request_timeout (checked)."""

    lease_ms: int = 10_000
    """How long others wait after the last renewal they saw: the price of a crash."""
    renew_deadline_ms: int = 7_000
    """The holder stops after this long without a renewal; the rest is for drift and last writes."""
    retry_ms: int = 1_500
    """How often the holder renews and the others look."""
    request_timeout_ms: int = 1_500
    """Bound of one request; several attempts fit into the deadline."""

    @property
    def late_ms(self) -> int:
        """Age of the lease at which its renewal is overdue: one whole attempt got no answer."""
        return self.retry_ms + self.request_timeout_ms

    def __post_init__(self) -> None:
        if not self.lease_ms > self.renew_deadline_ms > self.retry_ms + self.request_timeout_ms:
            raise ValueError(f"{self}: lease > renew_deadline > retry + request_timeout must hold")


def scaled(lease_ms: int) -> ElectionSettings:
    """Return settings for another length of the lease, in the same proportions."""
    return ElectionSettings(
        lease_ms, lease_ms * 7 // 10, lease_ms * 15 // 100, lease_ms * 15 // 100
    )


@dataclass(frozen=True, slots=True)
class SeenLease:
    """The Lease as read: revision "" if there is no Lease, holder "" if it is not held."""

    revision: str
    holder: str
    lease_ms: int


@dataclass(frozen=True, slots=True)
class Election:
    """One candidate.  `renewed_ms`: when the last written renewal began, None on standby.

    `lost_reason`: why the candidacy is over, empty before.
    """

    identity: str
    settings: ElectionSettings
    seen: SeenLease | None = None
    seen_ms: int = 0
    renewed_ms: int | None = None
    lost_reason: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """Read the Lease at `at_ms`."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class Write:
    """Write the Lease with our identity, at `revision` ("": create it)."""

    revision: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Call `next_step` again at `at_ms`."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The lease is lost: stop writing, then end."""

    reason: str


Step = Look | Write | Wait | Lost


def next_step(election: Election, now_ms: int) -> Step:
    """Return what to do now."""
    settings = election.settings
    if election.lost_reason:
        return Lost(election.lost_reason)
    if election.renewed_ms is not None:
        age_ms = now_ms - election.renewed_ms
        if age_ms >= settings.renew_deadline_ms:
            return Lost(_not_renewed(age_ms))
        if age_ms < settings.retry_ms:
            return Wait(election.renewed_ms + settings.retry_ms)
        assert election.seen is not None
        return Write(election.seen.revision)
    seen = election.seen
    if seen is None:
        return Look(now_ms)
    # Our own identity is shown by an earlier write of ours whose outcome was unknown.
    if seen.holder in ("", election.identity) or now_ms - election.seen_ms >= max(seen.lease_ms, 1):
        return Write(seen.revision)
    runs_out_ms = election.seen_ms + max(seen.lease_ms, 1)
    return Look(min(now_ms + settings.retry_ms, runs_out_ms))


def saw(election: Election, lease: SeenLease, now_ms: int) -> Election:
    """Take the Lease as read.  Only a change of its revision restarts the count."""
    if election.lost_reason:
        return replace(election, seen=lease)
    if election.renewed_ms is not None and lease.holder != election.identity:
        return replace(election, seen=lease, lost_reason="another holds the lease")
    if election.seen is not None and election.seen.revision == lease.revision:
        return election
    return replace(election, seen=lease, seen_ms=now_ms)


def wrote(election: Election, revision: str, began_ms: int, now_ms: int) -> Election:
    """Take the confirmation, at `now_ms`, that our write begun at `began_ms` made `revision`."""
    lease = SeenLease(revision, election.identity, election.settings.lease_ms)
    held_ms = election.renewed_ms if election.renewed_ms is not None else began_ms
    if now_ms - held_ms >= election.settings.renew_deadline_ms:
        return replace(election, seen=lease, lost_reason=_not_renewed(now_ms - held_ms))
    return replace(election, seen=lease, seen_ms=began_ms, renewed_ms=began_ms)


def holds(election: Election, now_ms: int) -> bool:
    """Return whether this candidate may act as the master at `now_ms`."""
    if election.renewed_ms is None or election.lost_reason:
        return False
    return now_ms - election.renewed_ms < election.settings.renew_deadline_ms


def _not_renewed(age_ms: int) -> str:
    return f"the lease was not renewed for {age_ms} ms"
