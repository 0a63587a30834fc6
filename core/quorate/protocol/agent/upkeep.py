"""Background work on a zone's copies: repair gaps, bound the log, expire keys, supply transfers.

It is done in small pieces, so that no turn of the event loop is long.
"""

from collections import deque
from heapq import heappop, heappush

from quorate.facts.time import Now
from quorate.protocol.agent import transfer
from quorate.protocol.agent.supply_rate import SupplyRate
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.record import ASIDE_KEPT_MS, KeptRows
from quorate.protocol.copies.zone_copies import Survey, ZoneCopies
from quorate.protocol.messages.transfer import FetchKeys, FetchSnapshot, FetchUpdates
from quorate.protocol.storage import GONE

EXPIRE_PER_TICK = 500
"""Limit on keys deleted per tick, or twice as many as were written with an expiry since the last
tick if it is more.

Each one is an update of its own.  A key that has expired is shown to no client until then.
"""
EXPIRIES_LOOKED_AT = 2_000
"""Limit on times of keys looked at per tick, superseded ones too, or more likewise."""
SURVEY_ROWS = 2000
SURVEY_BYTES = 1 << 20
SURVEY_ROWS_LEAST = 50
"""A partition counts as so many rows, also if it has fewer."""
PURGE_PER_TICK = 1000
"""So many tombstones are looked at, or twice as many as came since the last tick if it is more."""
LOG_CHECK_MS = 1000
RETRY_ASIDE_MS = 1000
"""The pause after rows that were set aside could not be removed, for lack of room."""
AGE_MARK_MS = 60_000
NEVER_MS = 1 << 62
DIGEST_KEPT_MS = 60_000
"""How long a digest is maintained after a request: many times as long as validators pause."""


class Upkeep:
    """The background work of one zone's copies."""

    def __init__(self, zone: ZoneCopies, rate: SupplyRate) -> None:
        self._zone = zone
        self._rate = rate
        self._snapshots: dict[tuple[str, int], FetchSnapshot] = {}  # by node and partition
        self._checked_ms = 0
        self._check_ms = 0
        self._marks: deque[tuple[int, dict[int, int]]] = deque()
        self._stalled: dict[int, tuple[int, int]] = {}
        self._digests_asked: dict[int, int] = {}
        self._tombstones = 0  # of all copies, at the end of the last tick
        self._expiries = 0  # noted times of all roles, at the end of the last tick
        self._expired_in = -1  # the partition in which keys were last deleted
        # By partition and generation, when what is set aside is to be removed (boot ms).
        self._aside_due: dict[tuple[int, int], int] = {}

    def tick(self, now: Now) -> None:
        """Do one round; cheap when nothing is due."""
        self._repair(now)
        self._expire(now)
        self._survey()
        self._expiries = self._count_expiries()
        self._purge()
        self._drop_aside(now)
        if self._snapshots:
            self._rate.supply(now)
        if now.boot_ms >= self._check_ms:
            self._checked_ms = now.boot_ms
            self._bound_log(now)
            self._forget_digests(now)
            self._check_ms = self._next_check_ms()

    def wrote(self) -> None:
        """Note that a turn writes: the log may have become too long."""
        due_ms = self._checked_ms + LOG_CHECK_MS
        if due_ms < self._check_ms:
            self._check_ms = due_ms

    def log_reach_ms(self) -> int | None:
        """Return for how long a copy may have been away and still catch up from the logs here.

        It holds for every partition served here, and is short by up to AGE_MARK_MS.  At most what
        this process has seen, and the greatest age of updates in the log.  None: nothing is served
        here.
        """
        zone = self._zone
        if not zone.roles:
            return None
        copies = [role.copy for role in zone.roles.values()]
        for at_ms, reached in self._marks:
            if all(reached.get(copy.partition, -1) >= copy.log_from for copy in copies):
                return zone.now.boot_ms - at_ms
        return 0

    @property
    def check_ms(self) -> int:
        """When logs and digests are checked next (boot ms)."""
        return self._check_ms

    def _next_check_ms(self) -> int:
        """Return when the next check is due if nothing is written.

        By then a mark is to be made or has become old, or a digest is no longer requested.
        """
        due_ms = [asked_ms + DIGEST_KEPT_MS for asked_ms in self._digests_asked.values()]
        if self._marks:
            due_ms.append(self._marks[-1][0] + AGE_MARK_MS)
            due_ms.append(self._marks[0][0] + self._zone.settings.log_age_max_ms)
        return min(due_ms, default=NEVER_MS)

    @property
    def is_idle(self) -> bool:
        """Whether nothing that was begun is unfinished."""
        zone = self._zone
        return not (self._stalled or zone.surveys or zone.purging or self._snapshots)

    def _repair(self, now: Now) -> None:
        """Repair copies that have missed updates for longer than a message is in flight."""
        zone = self._zone
        if zone.is_short_of_room:
            return
        for partition in [each for each in self._stalled if each not in zone.copies]:
            del self._stalled[partition]
        for partition, copy in list(zone.copies.items()):
            if copy.lwm >= copy.hwm or partition in zone.roles:
                self._stalled.pop(partition, None)
                continue
            if not copy.adopted or partition in zone.fills or copy.promise_holder is None:
                continue
            lwm, since = self._stalled.get(partition, (-1, 0))
            if lwm != copy.lwm:
                self._stalled[partition] = (copy.lwm, now.boot_ms)
            elif now.boot_ms - since >= zone.settings.repair_ms:
                # Kept: the copy may miss more meanwhile, and the zone must not rest over that.
                self._stalled[partition] = (lwm, now.boot_ms)
                transfer.repair(zone, copy, copy.promise_holder.node)

    def _expire(self, now: Now) -> None:
        """Delete keys whose time is over, in one partition served here after the other.

        The next tick begins behind the partition that came last.
        """
        zone = self._zone
        came = self._count_expiries() - self._expiries
        most, looks = max(EXPIRE_PER_TICK, 2 * came), max(EXPIRIES_LOOKED_AT, 2 * came)
        due = [
            partition
            for partition, role in zone.roles.items()
            if role.copy.expiring.is_due(now.wall_ms) and role.serves(now.boot_ms)
        ]
        for partition in sorted(due, key=lambda each: (each <= self._expired_in, each)):
            role = zone.roles[partition]
            noted = len(role.copy.expiring.heap)
            most -= _expire_keys(zone, role, now, most, looks)
            looks -= noted - len(role.copy.expiring.heap)
            self._expired_in = partition
            if not most or not looks:
                return

    def count_anew(self) -> None:
        """Take nothing for new that is there again, because the batch found no room."""
        self._expiries, self._tombstones = self._count_expiries(), self._count_tombstones()

    def _count_expiries(self) -> int:
        return sum([len(role.copy.expiring.heap) for role in self._zone.roles.values()])

    def _survey(self) -> None:
        """Search the next rows of copies for expiries and tombstones (`ZoneCopies.survey`).

        Only a primary expires keys: its backups note no expiries.
        """
        zone, surveys = self._zone, self._zone.surveys
        rows, size = SURVEY_ROWS, SURVEY_BYTES
        for partition in list(surveys):
            if rows <= 0 or size <= 0:
                return
            copy = zone.copies[partition]
            last, after, gone, whole = surveys[partition]
            if not whole:
                copy.surveyed = True
                found = copy.space.scan_keys(after, rows, size)
                after, whole = found.keys[-1] if found.keys else after, found.whole
                rows -= max(len(found.keys), SURVEY_ROWS_LEAST)
                size -= found.read_bytes
                expires = partition in zone.roles
                columns = zip(found.keys, found.expiries, found.counters, strict=True)
                for key, expires_at, counter in columns:
                    if expires_at == GONE:
                        heappush(gone, (-counter, key))
                    elif expires and expires_at and counter <= last:
                        copy.expiring.note(key, expires_at)
            if whole:
                rows -= _note_tombstones(copy, gone, max(rows, 0))
            if whole and not gone:
                del surveys[partition]
                zone.purge(copy)
            else:
                surveys[partition] = Survey(last, after, gone, whole)

    def _purge(self) -> None:
        """Drop tombstones that every copy is past, of one partition after the other.

        One that is not finished comes last with the next tick.
        """
        zone = self._zone
        came = self._count_tombstones() - self._tombstones
        most = max(PURGE_PER_TICK, 2 * came)
        for partition in list(zone.purging):
            copy = zone.copies[partition]
            looked_at = copy.purge_tombstones(most)
            if looked_at:
                zone.touch(copy)
            most -= looked_at
            del zone.purging[partition]
            if not most:
                zone.purge(copy)
                break
        self._tombstones = self._count_tombstones()

    def _count_tombstones(self) -> int:
        return sum([len(copy.tombstones) for copy in self._zone.copies.values()])

    def _drop_aside(self, now: Now) -> None:
        """Remove what was set aside long enough ago."""
        zone = self._zone
        if len(self._aside_due) > zone.count_aside()[0]:
            kept = {(p, each.generation) for p in zone.aside for each in zone.copies[p].kept_rows}
            self._aside_due = {n: due for n, due in self._aside_due.items() if n in kept}
        for partition in list(zone.aside):
            copy = zone.copies[partition]
            kept_rows = copy.kept_rows
            if old := [e for e in kept_rows if self._due_ms(partition, e, now) <= now.boot_ms]:
                for each in old:  # again then, if the batch finds no room
                    self._aside_due[partition, each.generation] = now.boot_ms + RETRY_ASIDE_MS
                copy.drop_aside(old)
                zone.touch(copy)
            if not copy.kept_rows:
                zone.aside.discard(partition)

    def aside_due_ms(self, now: Now) -> int:
        """Return when something that is set aside is to be removed (boot ms); NEVER_MS: nothing."""
        zone = self._zone
        dues = [self._due_ms(p, e, now) for p in zone.aside for e in zone.copies[p].kept_rows]
        return min(dues, default=NEVER_MS)

    def _due_ms(self, partition: int, kept: KeptRows, now: Now) -> int:
        """Return when these rows are to be removed (boot ms).

        That is when they have been kept long enough by the wall clock, and by the boot clock since
        they were first seen here: a wall clock that is set removes none too early.
        """
        left_ms = kept.since_ms + ASIDE_KEPT_MS - now.wall_ms
        by_boot_ms = now.boot_ms + min(max(left_ms, 0), ASIDE_KEPT_MS)
        name = (partition, kept.generation)
        return max(self._aside_due.setdefault(name, by_boot_ms), now.boot_ms + left_ms)

    def supply(self, node: str, ask: FetchUpdates | FetchKeys) -> None:
        """Answer at once, and charge the answer to the agent's limit."""
        self._rate.charge(transfer.supply(self._zone, node, ask), self._zone.now)

    def supply_later(self, node: str, ask: FetchSnapshot) -> None:
        """Queue one piece of a snapshot; the agent's limit decides when it is sent.

        A copy wants one piece at a time: a later request takes the place of an earlier one.
        """
        if ask.partition not in self._zone.copies:  # there is nothing to limit
            transfer.send_snapshot(self._zone, node, ask)
            return
        self._snapshots[node, ask.partition] = ask
        self._rate.wait(self, self._zone.now)

    @property
    def has_pieces(self) -> bool:
        """Whether pieces of snapshots wait for the agent's limit."""
        return bool(self._snapshots)

    def send_piece(self) -> int:
        """Send the piece that has waited longest; return its bytes."""
        node, partition = next(iter(self._snapshots))
        ask = self._snapshots.pop((node, partition))
        self._zone.wake()  # it may be another zone's tick that allows it
        return transfer.send_snapshot(self._zone, node, ask)

    def close(self) -> None:
        """Send nothing more, because the zone is closed."""
        self._snapshots.clear()
        self._rate.forget(self)

    def count_digest(self, copy: Copy, rows_max: int) -> int:
        """Count rows that a copy's digest lacks, before it is requested (Space.count_digest)."""
        now_ms = self._zone.now.boot_ms
        self._digests_asked[copy.partition] = now_ms
        self._check_ms = min(self._check_ms, now_ms + DIGEST_KEPT_MS)
        self._zone.wake()
        return copy.space.count_digest(rows_max)

    def _forget_digests(self, now: Now) -> None:
        for partition, asked_ms in list(self._digests_asked.items()):
            if now.boot_ms - asked_ms >= DIGEST_KEPT_MS:
                del self._digests_asked[partition]
                copy = self._zone.copies[partition]
                copy.mark_at = 0
                copy.space.forget_digest()

    def _bound_log(self, now: Now) -> None:
        zone = self._zone
        present = [copy for copy in zone.copies.values() if copy.present]
        if not present:
            self._marks.clear()
            return
        share = max(zone.settings.log_bytes_max // len(present), 16 * 1024)
        old: dict[int, int] = {}
        if not self._marks or now.boot_ms - self._marks[-1][0] >= AGE_MARK_MS:
            self._marks.append((now.boot_ms, {copy.partition: copy.lwm for copy in present}))
        while now.boot_ms - self._marks[0][0] >= zone.settings.log_age_max_ms:
            old = self._marks.popleft()[1]
        for copy in present:
            if not copy.adopted or copy.partition in zone.fills:
                continue
            upto = old.get(copy.partition, 0)
            if zone.storage.log_bytes(copy.partition) > share:
                # Cut by bytes, oldest first: by number of updates, a few large ones would take all
                # others along.
                upto = max(upto, zone.storage.log_floor(copy.partition, share * 3 // 4))
            if upto > copy.log_from:
                copy.cut_log(upto)
                zone.touch(copy)


def _expire_keys(zone: ZoneCopies, role: Primary, now: Now, most: int, looks: int) -> int:
    """Delete at most `most` keys of the partition whose time is over; return how many."""
    copy, count = role.copy, 0
    for due, key in copy.expiring.take(now.wall_ms, looks):
        row = copy.get(key)
        if row is not None and row.value is not None and row.expires_at == due:
            copy.expired.append((due, key))
            role.write(((key, None, 0),))
            zone.commands_wrote(role)
            count += 1
            if count == most:
                break
    return count


def _note_tombstones(copy: Copy, found: list[tuple[int, bytes]], most: int) -> int:
    """Note tombstones that a survey found before all others of the copy; return how many.

    The highest counter is noted first, so that the lowest is the first to be dropped.
    """
    for noted in range(most):
        if not found:
            return noted
        negative, key = heappop(found)
        if copy.tombstones.get(key, 0) < -negative:
            copy.tombstones[key] = -negative
            copy.tombstones.move_to_end(key, last=False)
    return most
