"""Writes the master's rows and records to the metastore; reads back what others have stored.

A write that was not confirmed is read again before anything is published.  What another process has
stored meanwhile is handed to the master: it takes rows as they are, and judges registrations.  A
refused write waits (refused_writes.py), is read again, and is decided anew: what was wanted then
may be outdated.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Protocol

from quorate.facts.errors import InvariantError
from quorate.facts.partition_row import check_row
from quorate.facts.topology import NodeRecord
from quorate.facts.zone import ZoneRecord
from quorate.protocol.metastore import (
    Conflict,
    DamagedRow,
    Key,
    Metastore,
    MetastoreUnavailable,
    NodeKey,
    OutcomeUnknown,
    Revision,
    Seen,
    ShardKey,
    Stored,
    Value,
    WriteRefused,
    ZoneKey,
)
from quorate_operator.mastership.refused_writes import (
    GIVEN_UP_S,
    REFUSED_MAX_S,
    Refusal,
    RefusedWrites,
)
from quorate_operator.mastership.second_look import SecondLook
from quorate_operator.process.metrics import Metrics

_log = logging.getLogger("quorate.writer")

WRITES_MAX = 16
"""Concurrent writes: a lost node touches many shards, and the API server has other clients."""
RETRY_S = 0.2
RETRY_MAX_S = 2.0


class Leader(Protocol):
    """The master whose rows are written."""

    cluster: str

    def may_act(self) -> bool:
        """Return whether this process may write at this moment."""

    def written(self, key: Key, value: Value | None) -> None:
        """Take the news that the metastore holds what was wanted."""

    def reloaded(self, key: Key, value: Value | None, damaged: Sequence[DamagedRow] = ()) -> None:
        """Take what the metastore holds instead of what was wanted; `damaged`: its invalid rows."""

    def blocked(self, refusal: Refusal | None) -> None:
        """Take the news that writes fail, or fail for another reason; None: all succeed again."""

    def stop_for(self, error: InvariantError) -> None:
        """Stop: the metastore holds what must not be written or sent."""


class Writer:
    """Writes and reads one cluster's metastore for its master."""

    def __init__(self, leader: Leader, metastore: Metastore, metrics: Metrics) -> None:
        self._leader = leader
        self._metastore = metastore
        self._metrics = metrics
        self._revisions: dict[Key, Revision] = {}
        self._slots = asyncio.Semaphore(WRITES_MAX)
        self._second_look = SecondLook()
        self._unread: dict[Key, Revision | None] = {}
        """Objects of which a change was seen that could not be judged, and what was seen."""
        self._seen_during_write: dict[Key, Revision | None] = {}
        """Objects of which a change was seen during an own write, with the last that was seen."""
        self._has_unread = asyncio.Event()
        self._read_lock = asyncio.Lock()
        """Held from a read until it is taken, so that no older one is taken after it."""
        self._term: int | None = None
        self._refused = RefusedWrites()
        self._told: Refusal | None = None

    async def load(self) -> tuple[int, dict[Key, Stored]]:
        """Return a new master term and all that is stored.  Raises InvariantError, Unavailable."""
        if self._term is None:  # counted once, even if reading fails often
            self._term = await self._metastore.acquire_master_term()
        stored = await self._metastore.load()
        check(stored)
        # The master must not overwrite rows whose zone's record is gone: without a revision, its
        # first write of them is refused, and it reads them.
        self._revisions = {
            key: each.revision
            for key, each in stored.items()
            if not isinstance(key, ShardKey) or ZoneKey(key.uid) in stored
        }
        return self._term, stored

    async def count_above(self, master_term: int) -> None:
        """Make the next mastership's number higher than `master_term`."""
        try:
            await self._metastore.acquire_master_term(master_term)
        except MetastoreUnavailable as error:
            _log.warning("cluster %s: masterships not counted: %s", self._leader.cluster, error)

    async def write(self, key: Key, value: Value | None) -> None:
        """Write until it is known what the metastore holds, and tell the leader.

        Raises InvariantError if the leader's own rows must not exist.
        """
        self._second_look.write_begins(key)
        try:
            await self._write_and_tell(key, value)
        finally:
            self._second_look.write_ended(key)
            self._judge_seen_meanwhile(key)

    def blocked(self, uid: str = "") -> Refusal | None:
        """Return why writes fail, of a zone or any; None if they do not."""
        return self._refused.blocked(uid)

    async def _write_and_tell(self, key: Key, value: Value | None) -> None:
        leader, writes = self._leader, self._metrics.writes
        try:
            async with self._slots:
                if not leader.may_act():
                    return
                for row in value if isinstance(value, tuple) else ():
                    check_row(row)
                with self._metrics.write_seconds.time():
                    revision = await self._metastore.write(key, value, self._revisions.get(key))
        except (Conflict, WriteRefused, OutcomeUnknown) as error:
            outcome = _outcome(error)
            writes.labels(outcome).inc()
            wait_s = self._refused.failed(key, error)
            _log.warning(
                "cluster %s: %s: %s; retrying in %g s", leader.cluster, outcome, error, wait_s
            )
            self._tell_blocked()
            await self._reload(key, value, error, wait_s)
            return
        writes.labels("written").inc()
        self._note(key, revision or None)
        self._taken(key)
        leader.written(key, value)

    async def _reload(
        self, key: Key, wanted: Value | None, error: Exception, wait_s: float
    ) -> None:
        """Read what the metastore holds and tell the leader, which then decides anew.

        A write that was not done is read after the wait, one of unknown outcome at once.
        """
        is_open = isinstance(error, OutcomeUnknown)
        if not is_open:
            await self._refused.wait(wait_s, error)
        while True:
            try:
                async with self._slots:
                    stored = await self._metastore.read(key)
                check({key: stored} if stored is not None else {})
                break
            except InvariantError as broken:
                self._leader.stop_for(broken)
                return
            except MetastoreUnavailable as away:
                _log.warning("cluster %s: %s cannot be read: %s", self._leader.cluster, key, away)
                delay = max(self._refused.failed(key, away), RETRY_S)
                self._tell_blocked()
                await self._refused.wait(delay, away)
        self._note(key, stored.revision if stored is not None else None)
        value = stored.value if stored is not None else None
        if value == wanted:
            self._taken(key)
            self._leader.written(key, value)
            return
        if is_open:
            await self._refused.wait(wait_s, error)
        self._leader.reloaded(key, value, stored.damaged if stored is not None else ())
        attempts = self._refused.attempts(key)
        asyncio.get_running_loop().call_later(GIVEN_UP_S, self._look_given_up, key, attempts)

    def _look_given_up(self, key: Key, attempts: int) -> None:
        """Forget the failure if the leader, which has decided anew, no longer wants the write."""
        is_written = self._second_look.is_writing(key)
        is_wanted = is_written or self._refused.attempts(key) != attempts
        if not is_wanted and self._leader.may_act():
            self._refused.given_up(key)
            self._tell_blocked()

    def _taken(self, key: Key) -> None:
        self._refused.taken(key)
        self._tell_blocked()

    def _tell_blocked(self) -> None:
        """Tell the leader once, not at each attempt."""
        now, told = self._refused.blocked(), self._told
        self._told = now
        if (now and now.reason) != (told and told.reason):
            self._leader.blocked(now)

    async def look_at(self, key: Key, revision: Revision | None) -> bool:
        """Read an object seen at `revision` (None: gone), if another process has changed it.

        If it cannot be read, which returns False, `look_at_unread` does it later; also if an own
        write of it is under way, and what was seen is neither that write nor known already.
        """
        look, known = self._second_look, self._revisions
        is_left = revision is not None and look.is_of_ended_zone(key, known)
        if isinstance(key, ShardKey) and ZoneKey(key.uid) not in known and not is_left:
            return True  # see load
        async with self._read_lock:
            is_writing = look.is_writing(key)
            if revision == known.get(key) and not (revision is None and is_writing):
                return True
            if is_writing:
                self._seen_during_write[key] = revision
                return True
            try:
                with look.looking() as touched:
                    stored = await self._metastore.read(key)
                check({key: stored} if stored is not None else {})
            except MetastoreUnavailable as error:
                _log.warning("cluster %s: %s cannot be read: %s", self._leader.cluster, key, error)
                self._look_later(key, revision)
                return False
            except InvariantError as error:
                self._leader.stop_for(error)
                return True
            found = stored.revision if stored is not None else None
            if found == known.get(key) or key in touched:
                return True  # what another stored after an own write is seen after this
            if not self._leader.may_act():
                return True
            what = "written" if stored is not None else "deleted"
            _log.warning("cluster %s: another has %s %s", self._leader.cluster, what, key)
            self._note(key, found)
            if stored is None:
                self._leader.reloaded(key, None)
            else:
                self._leader.reloaded(key, stored.value, stored.damaged)
        return True

    def _judge_seen_meanwhile(self, key: Key) -> None:
        """Have read later what was seen during an own write that has ended, unless it is the write.

        The watch may show the write before it is answered, and another's change right after it.
        """
        if key in self._seen_during_write:
            seen = self._seen_during_write.pop(key)
            if seen != self._revisions.get(key):
                self._look_later(key, seen)

    def _look_later(self, key: Key, revision: Revision | None) -> None:
        self._unread[key] = revision
        self._has_unread.set()

    async def follow(self, changes: AsyncIterator[Seen]) -> None:
        """Look at others' changes as soon as they are seen."""
        async for seen in changes:
            if not self._leader.may_act():
                return
            known = {key for key in self._revisions if key.kind in seen.all_of}
            for key in sorted({*seen.revisions, *known}, key=str):
                await self.look_at(key, seen.revisions.get(key))

    async def look_at_unread(self) -> None:
        """Look at what could not be judged when it was seen: the watch shows it only once."""
        wait_s = RETRY_S
        while True:
            await self._has_unread.wait()
            await asyncio.sleep(wait_s)
            if not self._leader.may_act():
                return
            unread, self._unread = self._unread, {}
            self._has_unread.clear()
            are_read = [await self.look_at(key, revision) for key, revision in unread.items()]
            wait_s = RETRY_S if all(are_read) else min(wait_s * 2, REFUSED_MAX_S)

    async def look_again(self) -> dict[Key, Value] | None:
        """Take what another process has stored since the last read; return everything found.

        None if it could not be read or this process may no longer act.
        """
        async with self._read_lock:
            try:
                with self._second_look.looking() as touched:
                    stored = await self._metastore.load()
                check(stored)
            except MetastoreUnavailable:
                return None  # the next look, or the next write, will tell
            except InvariantError as error:
                self._leader.stop_for(error)
                return None
            if not self._leader.may_act():
                return None
            self._take(stored, touched)
        return {key: each.value for key, each in stored.items()}

    def _take(self, stored: Mapping[Key, Stored], touched: Collection[Key]) -> None:
        """Tell the leader what is new in everything; `touched`: what it wrote meanwhile."""
        cluster = self._leader.cluster
        for key, each in self._second_look.unread(stored, self._revisions, touched):
            if each is None:
                _log.warning("cluster %s: another has deleted %s", cluster, key)
                self._note(key, None)
                self._leader.reloaded(key, None)
                continue
            _log.warning("cluster %s: another has written %s", cluster, key)
            self._note(key, each.revision)
            self._leader.reloaded(key, each.value, each.damaged)

    def _note(self, key: Key, revision: Revision | None) -> None:
        if revision is None:
            self._revisions.pop(key, None)
            self._second_look.note_gone(key)
        else:
            self._revisions[key] = revision


def _outcome(error: Exception) -> str:
    if isinstance(error, WriteRefused):
        return "refused" if error.retry_after_s is None else "throttled"
    return "conflict" if isinstance(error, Conflict) else "unknown"


def check(stored: Mapping[Key, Stored]) -> None:
    """Raise InvariantError unless what the metastore holds is well-formed, key by key."""
    for key, each in stored.items():
        value = each.value
        if isinstance(value, tuple):
            for row in value:
                check_row(row)
        elif not isinstance(value, ZoneRecord if isinstance(key, ZoneKey) else NodeRecord):
            raise InvariantError(f"{key} holds a {type(value).__name__}")
        elif isinstance(key, NodeKey) and isinstance(value, NodeRecord) and key.name != value.name:
            raise InvariantError(f"{key} holds the registration of {value.name}")
