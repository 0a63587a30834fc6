"""The copies, roles and fills of one zone on one agent, and what the present turn has changed.

The modules that act on copies (activation, transfers, transactions, upkeep and others) take a
`ZoneCopies` and change it through its methods.  Nothing here calls them: `Replicas`
(agent/replicas.py) passes events and the time to them, and ends the turn.
"""

from collections.abc import Iterable
from typing import NamedTuple, Self

from quorate.facts.errors import InvariantError
from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.facts.topology import Holder
from quorate.facts.zone import NEVER_MS, ConsistencyMode, ZoneRecord
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.fill import Fill
from quorate.protocol.copies.leases import Leases
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.record import KeptRows, recorded_partitions
from quorate.protocol.copies.role_state import Stage
from quorate.protocol.copies.shared_leases import FOREVER, isolated_at
from quorate.protocol.copies.waiters import Waiter
from quorate.protocol.messages.master import Inventory
from quorate.protocol.messages.outbox import Outbox
from quorate.protocol.messages.replication import Batch
from quorate.protocol.settings import ProtocolSettings
from quorate.protocol.storage import Storage

RESET_SLACK_MS = 2_000
"""The time for a reset after it is due: the row, and as a rule the activation of the survivor."""


class Finished(NamedTuple):
    """Waiters whose wait is over: answered; outcome unknown; reads to redo; refused for space."""

    answered: list[Waiter]
    unknown: list[Waiter]
    again: list[Waiter]
    refused: list[Waiter]


class Survey(NamedTuple):
    """The search of a copy's rows.

    - `last`: the copy's LWM at the start
    - `after`: the key after which it goes on
    - `found`: a heap of tombstones by counter, negative; it has those that are not noted yet
    - `whole`: all rows are searched
    """

    last: int
    after: bytes | None
    found: list[tuple[int, bytes]]
    whole: bool = False


class ZoneCopies:
    """The state of one zone on one agent.

    For each partition, `table` has the newest committed row known, `primaries` the role if this
    agent has it, and `lost_primary` the time (boot ms) at which it lost one.
    """

    awake: dict[str, Self]
    """The agent's zones that are not at rest, by uid (agent/all_zones/zones_awake.py)."""

    def __init__(
        self,
        record: ZoneRecord,
        me: Holder,
        storage: Storage,
        leases: Leases,
        settings: ProtocolSettings,
        now: Now,
    ) -> None:
        self.record = record
        self.uid = record.uid
        self.me = me
        self.storage = storage
        self.leases = leases
        self.settings = settings
        self.now = now
        self.look_ms = 0  # a tick has nothing to do before this (next_look.py); 0: at once
        self.in_progress = True  # when the last tick ended
        self.at_rest = False  # the end of a turn does not visit the zone
        self.awake = {}
        self.table: list[PartitionRow | None] = [None] * record.partitions
        self.copies: dict[int, Copy] = {}
        self.primaries: list[Primary | None] = [None] * record.partitions
        self.roles: dict[int, Primary] = {}
        self.own_leases: dict[int, Primary] = {}  # roles that share their lease with no other
        self.lost_primary: dict[int, int] = {}
        self.fills: dict[int, Fill] = {}
        self.surveys: dict[int, Survey] = {}  # of copies whose rows are to be searched
        # Copies whose tombstones may be dropped (upkeep.py), the next first.
        self.purging: dict[int, None] = {}
        self.aside: set[int] = set()  # partitions of which rows may be set aside
        self.stores: dict[str, str] = {}
        self.domains: dict[str, str] = {}
        self.registered: dict[str, int] = {}  # incarnation of each registered node
        self.online: frozenset[str] = frozenset()
        self.refused_rows: dict[int, PartitionRow] = {}  # no room; taken in again later
        self.is_short_of_room = False  # copies take no new updates
        self.why_full = ""  # why the storage has no room, for people; set by the shell
        self.full_copies = 0
        self.delta_copies = 0
        self.full_reasons: dict[str, int] = {}
        # Changed in the present turn, and to be sent in it.
        self.out = Outbox()
        self.inventory_due: Inventory | None = None  # the zone's part of a report of all copies
        self.wrote = False
        self.dirty: dict[int, Primary] = {}
        self.touched: dict[int, Copy] = {}
        self.adopting: list[Primary] = []
        self.ack_due: dict[int, tuple[str, Copy, int]] = {}
        self.announcements: dict[str, list[Batch]] = {}
        self.refilled: dict[int, str] = {}  # the token of each refill that has ended
        self.finished = Finished([], [], [], [])
        for partition in recorded_partitions(storage):
            copy = self.copy_of(partition)
            copy.recover()
            self.note_aside(copy)
            copy.lease_until = leases.granted_until("")

    @property
    def park_bound_ms(self) -> int:
        """How long clients' commands wait for a primary (ProtocolSettings.park_bound_ms).

        In HIGH_AVAILABILITY at least as long as it takes to reset a partition: the loss of a
        majority is a pause and no error, unless the zone's time is Never.
        """
        bound_ms, record = self.settings.park_bound_ms, self.record
        if record.mode is not ConsistencyMode.HIGH_AVAILABILITY or record.reset_ms >= NEVER_MS:
            return bound_ms
        return max(bound_ms, self.settings.failure_detection_ms + record.reset_ms + RESET_SLACK_MS)

    @property
    def isolated_at_ms(self) -> int:
        """When the zone's roles stop serving unless the master is heard again (boot ms)."""
        isolation_ms = self.record.isolation_ms
        if isolation_ms >= NEVER_MS:
            return FOREVER
        return isolated_at(self.leases.contact_ms, isolation_ms)

    @property
    def is_isolated(self) -> bool:
        """Whether the zone's roles do not serve, for lack of contact to the master."""
        return self.now.boot_ms >= self.isolated_at_ms

    def wake(self: Self) -> None:
        """Have the next tick and the end of each turn visit the zone: something happens in it."""
        self.look_ms = 0
        if self.at_rest:
            self.at_rest = False
            self.awake[self.uid] = self

    def set_short_of_room(self, is_short: bool) -> None:
        """Say whether the storage has no room for new updates."""
        if self.is_short_of_room != is_short:
            self.is_short_of_room = is_short
            self.wake()  # once there is room, gaps are repaired

    # --- rows ------------------------------------------------------------------------------------

    def primary_of(self, partition: int) -> str:
        """Return the node of the partition's primary in the newest row known; empty: none."""
        row = self.table[partition]
        return row.primary.node if row is not None and row.primary is not None else ""

    def names_me(self, row: PartitionRow) -> bool:
        """Return whether the row lets us, with our present store, keep a copy.

        It does if we vote, or are the destination, or did so before a reset.
        """
        for voters in (row.voters, row.left_by_reset):
            if any(v.node == self.me.node and v.store == self.me.store for v in voters):
                return True
        newcomer = row.destination
        return newcomer is not None and (
            (newcomer.node, newcomer.store) == (self.me.node, self.me.store)
        )

    def aside_by(self, row: PartitionRow | None, copy: Copy) -> KeptRows | None:
        """Return the name for the copy's rows if a reset has left what they hold; None if not.

        Copies in memory are not kept.
        """
        reset = row.reset if row is not None else None
        if reset is None or copy.last_term >= reset.term or not self.record.persistent:
            return None
        return copy.as_kept_rows(reset.term, self.now.wall_ms) if copy.lwm else None

    def note_aside(self, copy: Copy) -> None:
        """Have rows that are set aside removed when their time is over."""
        if copy.kept_rows:
            self.aside.add(copy.partition)

    def count_aside(self) -> tuple[int, int]:
        """Return of how many copies rows are set aside, and their bytes."""
        kept = [each for partition in self.aside for each in self.copies[partition].kept_rows]
        return len(kept), sum(each.bytes for each in kept)

    # --- copies ----------------------------------------------------------------------------------

    def copy_of(self, partition: int) -> Copy:
        """Return the copy, creating it if there is none."""
        copy = self.copies.get(partition)
        if copy is None:
            copy = self.copies[partition] = Copy(partition, self.storage)
        return copy

    def touch(self, copy: Copy) -> None:
        """Note that the copy wrote into this turn's batch."""
        self.wake()
        self.touched[copy.partition] = copy
        self.wrote = True

    def survey(self, copy: Copy) -> None:
        """Have the copy's rows searched once for expiries and tombstones (upkeep.py).

        The expiry of later writes is noted when they are written.
        """
        copy.expiring.clear()
        self.surveys[copy.partition] = Survey(copy.lwm, None, [])

    def end_search(self, partition: int) -> None:
        """Search the rows no more, and drop no tombstones: the copy has none any more."""
        self.surveys.pop(partition, None)
        self.purging.pop(partition, None)

    def purge(self, copy: Copy) -> None:
        """Have the copy's tombstones dropped that every copy is past (upkeep.py)."""
        if copy.tombstones:
            self.purging[copy.partition] = None

    def drop_fill(self, partition: int) -> None:
        """Give up filling a copy."""
        fill = self.fills.pop(partition, None)
        if fill is not None:
            fill.abandon()
            self.touch(fill.copy)

    def promise_moved(self, copy: Copy, earlier: Holder | None, holder: Holder) -> None:
        """Note that the copy has promised another holder: the lease of the earlier one runs out."""
        if earlier is None or earlier.node == holder.node:
            return
        if earlier.node != self.me.node:
            self.leases.promise_moved(earlier.node, self.uid, copy.partition, copy.promise_term)
            until = self.leases.granted_until(earlier.node)
            copy.lease_until = max(copy.lease_until, until)

    # --- roles -----------------------------------------------------------------------------------

    def commands_wrote(self, role: Primary) -> None:
        """Note that commands wrote in this role: its updates are sent at the end of the turn."""
        if self.look_ms:  # else it is awake already; this is the hot path of each command
            self.wake()
        self.dirty[role.copy.partition] = role
        self.touched[role.copy.partition] = role.copy
        self.wrote = True

    def announce(self, node: str, batch: Batch) -> None:
        """Tell `node` the position of a role, together with all other such news of the turn."""
        self.announcements.setdefault(node, []).append(batch)

    def end_role(self, role: Primary) -> None:
        """End the role for good; the outcome of its unacknowledged writes is unknown."""
        self.wake()
        partition = role.copy.partition
        if self.roles.get(partition) is role:
            del self.roles[partition]
            self.own_leases.pop(partition, None)
            self.primaries[partition] = None
            self.lost_primary[partition] = self.now.boot_ms
        self.dirty.pop(partition, None)
        self.give_up(role.waiters)
        role.waiters.clear()
        role.lasting.clear()
        role.copy.expiring.clear()  # the next role on this copy surveys it
        role.pending.clear()
        role.serving_until = 0

    def end_roles(self) -> None:
        """End all roles for good."""
        for role in list(self.roles.values()):
            self.end_role(role)

    def repeat_reports(self) -> None:
        """Have all roles report everything again, because the master asks for an inventory."""
        self.wake()
        for role in self.roles.values():
            role.repeat_reports()

    def give_up(self, waiters: Iterable[Waiter]) -> None:
        """Report these writes as unknown; reads that saw them are tried again."""
        for waiter in waiters:
            if waiter.has_client:
                (self.finished.unknown if waiter.keys else self.finished.again).append(waiter)

    def renew_lease(self, role: Primary) -> None:
        """Recompute until when the role serves, after a change of what its lease depends on.

        Roles that depend on the same things share a lease (shared_leases.py).
        """
        if role.stage is not Stage.SERVING:
            return
        partition, grants = role.copy.partition, role.grants()
        if grants is None:
            self.own_leases[partition] = role
            role.serving_until = self._serves_until(role)
        else:
            self.own_leases.pop(partition, None)
            if self.record.isolation_ms < NEVER_MS:
                grants = grants._replace(isolation_ms=self.record.isolation_ms)
            role.lease = self.leases.shared.share(grants)

    def renew_own_leases(self) -> None:
        """Recompute the leases that roles share with no other, after an answer to a heartbeat."""
        for role in self.own_leases.values():
            role.serving_until = self._serves_until(role)

    def _serves_until(self, role: Primary) -> int:
        """Return until when the role serves (boot ms), by definition."""
        return min(role.granted_until(self.leases.held), self.isolated_at_ms)

    def advance(self, role: Primary) -> None:
        """Recount acknowledgements and answer clients, unless the master may have reset the role.

        Where it may, the partition may go on elsewhere without these writes.
        """
        if self.record.isolation_ms >= NEVER_MS or not self.is_isolated:
            self.finished.answered.extend(role.advance(self.now.boot_ms))

    def contact_renewed(self, now: Now) -> None:
        """Go on, because the agent was in contact with the master."""
        if self.record.isolation_ms >= NEVER_MS:
            return
        self.now = now
        self.renew_own_leases()
        for role in self.roles.values():
            if role.waiters or role.acked < role.copy.lwm:
                self.wake()
                self.advance(role)

    def set_record(self, record: ZoneRecord) -> None:
        """Take in the zone's settings of now."""
        has_changed = record.isolation_ms != self.record.isolation_ms
        self.record = record
        if has_changed:
            for role in self.roles.values():
                self.renew_lease(role)

    # --- invariants ------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise InvariantError unless copies and roles are consistent (I-2, half of I-4)."""
        for copy in self.copies.values():
            copy.check()
        for partition, role in self.roles.items():
            self._check_role(partition, role)
            serving, granted = role.serving_until, self._serves_until(role)
            if serving != granted:
                raise InvariantError(f"partition {partition}: serves to {serving}, not {granted}")

    def check_touched(self) -> None:
        """Raise InvariantError unless a copy that the turn has changed is consistent, and its role.

        It is the one that changed first, because to check all of them costs too much
        (docs/invariants.md).
        """
        partition, copy = next(iter(self.touched.items()))
        copy.check()
        role = self.roles.get(partition)
        if role is not None:
            self._check_role(partition, role)

    def _check_role(self, partition: int, role: Primary) -> None:
        role.check()
        if self.primaries[partition] is not role or role.holder != self.me:
            raise InvariantError(f"partition {partition}: role of {role.holder} misplaced")
