"""Writes that the metastore refuses: why, how many attempts, and when the next one is due.

A revoked right, a quota, a policy: none of these ends by asking more often, and each may end at any
moment.  So attempts become rarer, and the first one that succeeds triggers all others.
"""

import asyncio
from typing import NamedTuple

from quorate.protocol.messages.events import Event, Reason
from quorate.protocol.metastore import Key, ReadRefused, WriteRefused

MASTER_FAILED = "MasterFailed"
"""The reason why nothing is written for a cluster whose master was ended by a defect."""
RETRY_S = 0.2
UNCLEAR_MAX_S = 2.0
"""Longest pause after attempts with unknown outcome or that met another's write, seconds."""
REFUSED_MAX_S = 15.0
"""Longest pause after refused attempts, seconds; a right given back goes unnoticed for so long."""
GIVEN_UP_S = 2.0
"""A write is given up if the master has not wanted it again within this time after being told what
is stored, seconds.  The master looks at everything twice a second."""
PATIENCE = 3
"""Attempts that fail for a reason that usually passes, before users are told."""


class Refusal(NamedTuple):
    """Why a write fails: one word, and what the metastore said."""

    reason: str
    sentence: str


def event_of(refusal: Refusal | None) -> Event:
    """Return the Event that writes are refused for this reason, or (None) taken again."""
    if refusal is None:
        return Event("", None, Reason.WRITES_TAKEN, "the metastore accepts all writes again")
    message = f"the metastore refuses writes: {refusal.sentence}"
    return Event("", None, Reason.WRITES_REFUSED, message, "Warning")


class RefusedWrites:
    """The refused writes of one cluster, by key."""

    def __init__(self) -> None:
        self._attempts: dict[Key, int] = {}
        self._why: dict[Key, Refusal] = {}
        self._taken = asyncio.Event()

    def failed(self, key: Key, error: Exception) -> float:
        """Count a failed attempt; return the seconds until the next one is due."""
        attempts = self._attempts[key] = self._attempts.get(key, 0) + 1
        if _is_lasting(error) or attempts >= PATIENCE:
            reason = error.reason if isinstance(error, WriteRefused) else type(error).__name__
            self._why[key] = Refusal(reason, str(error))
        longest_s = REFUSED_MAX_S if _is_lasting(error) else UNCLEAR_MAX_S
        # The first conflict or lost answer is normal: retry at once.
        doublings = attempts - (1 if isinstance(error, WriteRefused | ReadRefused) else 2)
        wait_s = min(RETRY_S * 2.0 ** min(doublings, 16), longest_s) if doublings >= 0 else 0.0
        asked_s = error.retry_after_s if isinstance(error, WriteRefused) else None
        return max(wait_s, asked_s or 0.0)

    async def wait(self, seconds: float, error: Exception) -> None:
        """Wait `seconds`, after a lasting error at most until another such write is taken."""
        if _is_lasting(error):
            try:
                async with asyncio.timeout(seconds):
                    await self._taken.wait()
            except TimeoutError:
                pass
        elif seconds > 0:
            await asyncio.sleep(seconds)

    def taken(self, key: Key) -> None:
        """Note that the metastore holds what was wanted under this key."""
        if self._attempts.pop(key, 0) and self._why.pop(key, None) is not None:
            taken, self._taken = self._taken, asyncio.Event()
            taken.set()

    def attempts(self, key: Key) -> int:
        """Return how many attempts in a row failed."""
        return self._attempts.get(key, 0)

    def given_up(self, key: Key) -> None:
        """Note that nothing is to be written under this key any more."""
        self._attempts.pop(key, None)
        self._why.pop(key, None)

    def blocked(self, uid: str = "") -> Refusal | None:
        """Return why writes fail, if they do; of a zone: its own and agents' registrations."""
        for key, refusal in self._why.items():
            if not uid or getattr(key, "uid", uid) == uid:
                return refusal
        return None


def _is_lasting(error: Exception) -> bool:
    """Return whether retrying is useless until a person has changed something."""
    if isinstance(error, WriteRefused):
        return error.retry_after_s is None
    return isinstance(error, ReadRefused)
