"""Acquires and keeps the mastership: a coordination.k8s.io Lease, timed by the boot clock.

It is the Mandate of everything that writes; election_thread.py gives it a thread.  The master's
term does not come from the Lease, because anybody may delete the Lease.  Then the next writer has
it, the holder or another one; terms and compare-and-set keep the two apart until the other one's
renewal is refused.  The Lease's transitions are for display only.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from quorate_operator import names
from quorate_operator.kube.api import ApiRefused, ApiThrottled, ApiUnclear, Json, KubeApi
from quorate_operator.mastership.election import (
    Election,
    ElectionSettings,
    Look,
    Lost,
    SeenLease,
    Wait,
    Write,
    holds,
    next_step,
    saw,
    wrote,
)
from quorate_operator.process.clock import boot_ms

_log = logging.getLogger("quorate.elector")


class Elector:
    """One candidate for the Lease of a namespace."""

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        identity: str,
        settings: ElectionSettings,
        may_renew: Callable[[], bool] = lambda: True,
    ) -> None:
        """`may_renew`: whether the code that leads under the lease still runs."""
        self.acquired = asyncio.Event()
        self.lost_reason = ""
        """Why the lease is lost; empty before."""
        self._api = api
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._collection}/{names.LEASE}"
        self._lease: Json = {}
        self._election = Election(identity, settings)
        self._has_lapsed = False
        self._unanswered: dict[str, int] = {}
        """Our writes with unknown outcome: renewTime -> when the write began."""
        self._may_renew = may_renew

    def holds(self) -> bool:
        """See Mandate.  Asks the boot clock, so that a thawed process knows before it acts.

        Once it has answered False to a holder it never answers True again: a renewal answered just
        then would restore a mandate whose leading code has ended.  Any thread may ask.
        """
        election = self._election
        if self._has_lapsed or election.renewed_ms is None:
            return False
        if not holds(election, boot_ms()):
            self._lapse(election.lost_reason or "the lease was not renewed in time")
        return not self._has_lapsed

    def lease_age_s(self) -> float:
        """Return the seconds since the last answered renewal began; 0 if there was none."""
        renewed_ms = self._election.renewed_ms
        return (boot_ms() - renewed_ms) / 1000 if renewed_ms is not None else 0.0

    def _lapse(self, reason: str) -> None:
        self._has_lapsed = True
        if not self.lost_reason:
            self.lost_reason = reason
            _log.warning("lease %s lost: %s", self._path, reason)

    async def run(self) -> None:
        """Stand, hold, and return when the lease is lost.  A cancellation does not release it."""
        while not self._has_lapsed:
            now_ms = boot_ms()
            step = next_step(self._election, now_ms)
            match step:
                case Lost(reason=reason):
                    self._lapse(reason)
                case Wait(at_ms=at_ms):
                    await asyncio.sleep((at_ms - now_ms) / 1000)
                case Look(at_ms=at_ms):
                    await asyncio.sleep(max(at_ms - now_ms, 0) / 1000)
                    await self._look()
                case Write(revision=revision):
                    if self._election.renewed_ms is not None and not self._may_renew():
                        self._lapse("the master's event loop stands still: not renewed")
                    else:
                        await self._write(revision)

    async def release(self) -> None:
        """Let the next candidate begin at once.  Call it after everything that writes has
        stopped."""
        if not self.holds() or self._election.seen is None:
            return
        election, revision = self._election, self._election.seen.revision
        self._election = Election(election.identity, election.settings, lost_reason="released")
        try:
            try:
                await self._give_up(revision)
            except ApiRefused as refused:
                if refused.status != 409:
                    raise
                # Perhaps the conflict is with a renewal of ours that was abandoned, yet written.
                self._lease = await self._api.get(self._path, self._timeout_s())
                if self._lease.get("spec", {}).get("holderIdentity") == election.identity:
                    await self._give_up(self._lease["metadata"]["resourceVersion"])
        except (ApiRefused, ApiUnclear) as error:
            _log.info("lease %s not released, it will run out: %s", self._path, error)

    async def _give_up(self, revision: str) -> None:
        spec = {**self._lease.get("spec", {}), "holderIdentity": "", "leaseDurationSeconds": 1}
        await self._api.replace(self._path, self._body(revision, spec), self._timeout_s())

    async def _look(self) -> None:
        try:
            lease = await self._api.get(self._path, self._renewal_timeout_s(boot_ms()))
        except ApiRefused as refused:
            if refused.status != 404:
                await self._pause(refused)
                return
            lease = {}
        except ApiUnclear as unclear:
            await self._pause(unclear)
            return
        self._lease = lease
        spec = lease.get("spec") or {}
        seen = SeenLease(
            lease.get("metadata", {}).get("resourceVersion", ""),
            spec.get("holderIdentity") or "",
            int(spec.get("leaseDurationSeconds") or 1) * 1000,
        )
        before = self._election.seen
        if before is None or before.holder != seen.holder:
            _log.info("lease %s is held by %s", self._path, seen.holder or "nobody")
        began_ms = self._unanswered.get(str(spec.get("renewTime")))
        if began_ms is not None and seen.holder == self._election.identity:
            self._wrote(seen.revision, began_ms)  # only the answer was lost
        else:
            self._election = saw(self._election, seen, boot_ms())

    async def _write(self, revision: str) -> None:
        began_ms = boot_ms()
        was_holder = self._election.renewed_ms is not None
        body = self._body(revision, self._spec(was_holder))
        timeout_s = self._renewal_timeout_s(began_ms)
        try:
            if revision:
                written = await self._api.replace(self._path, body, timeout_s)
            else:
                written = await self._api.create(self._collection, body, timeout_s)
        except ApiRefused as refused:
            if refused.status in (404, 409):
                await self._look()
            else:
                await self._pause(refused)
            return
        except ApiUnclear as unclear:
            self._unanswered[body["spec"]["renewTime"]] = began_ms
            await self._pause(unclear)
            await self._look()  # perhaps it was written
            return
        self._lease = written
        self._wrote(written["metadata"]["resourceVersion"], began_ms)

    def _wrote(self, revision: str, began_ms: int) -> None:
        was_holder = self._election.renewed_ms is not None
        self._unanswered.clear()
        self._election = wrote(self._election, revision, began_ms, boot_ms())
        if not was_holder:
            _log.info("lease %s acquired by %s", self._path, self._election.identity)
            self.acquired.set()

    async def _pause(self, error: Exception) -> None:
        """Wait before the next attempt, as long as the API server asks.

        A holder waits less, so that an attempt is left before its deadline.
        """
        _log.warning("lease %s: %s", self._path, error)
        settings = self._election.settings
        wait_s = settings.retry_ms / 5 / 1000
        if isinstance(error, ApiThrottled):
            wait_s = max(wait_s, error.retry_after_s)
        if self._election.renewed_ms is not None:
            deadline_ms = self._election.renewed_ms + settings.renew_deadline_ms
            last_ms = deadline_ms - settings.request_timeout_ms - boot_ms()
            wait_s = min(wait_s, max(last_ms / 1000, settings.retry_ms / 5 / 1000))
        await asyncio.sleep(wait_s)

    def _renewal_timeout_s(self, now_ms: int) -> float:
        """Return how long to wait for an answer: for a holder half the time left before its
        deadline, so that another attempt follows; at least the request timeout."""
        election = self._election
        if election.renewed_ms is None:
            return self._timeout_s()
        left_ms = election.renewed_ms + election.settings.renew_deadline_ms - now_ms
        return max(left_ms / 2 / 1000, self._timeout_s())

    def _timeout_s(self) -> float:
        return self._election.settings.request_timeout_ms / 1000

    def _spec(self, was_holder: bool) -> Json:
        before = self._lease.get("spec") or {}
        wall = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        transitions = int(before.get("leaseTransitions") or 0)
        return {
            "holderIdentity": self._election.identity,
            "leaseDurationSeconds": max(self._election.settings.lease_ms // 1000, 1),
            "acquireTime": before.get("acquireTime", wall) if was_holder else wall,
            "renewTime": wall,
            "leaseTransitions": transitions if was_holder else transitions + 1,
        }

    def _body(self, revision: str, spec: Json) -> Json:
        metadata = {"name": names.LEASE}
        if revision:
            metadata["resourceVersion"] = revision
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": spec,
        }
