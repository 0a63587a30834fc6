"""Exact moments of a migration, seen from the network: a judge for the proxy that strikes there.

What is sent tells how far a migration is.  At its moment a `Strike` holds the message that says so,
and the test does what it wants to somebody who takes part; or it is a message that is struck.
"""

import enum
import threading

from migration_words import Kind, Moment, Role, kind_of
from quorate.facts.partition_row import PartitionRow, committed_row
from quorate.protocol.messages.handshake import Challenge, Proof, Refused
from quorate.protocol.messages.master import (
    AgentReport,
    CaughtUp,
    Frozen,
    MasterPing,
    Members,
    Prepared,
    PreparedRow,
    RowsStored,
    ZoneTable,
)
from quorate.protocol.messages.replication import Heartbeat, HeartbeatAck
from quorate.protocol.messages.transfer import SnapshotChunk, Updates
from quorate_cluster.proxy import OPERATOR, Frame, Verdict

_ROUTINE = (
    Challenge,
    Proof,
    Refused,
    Members,
    MasterPing,
    AgentReport,
    Heartbeat,
    HeartbeatAck,
)
"""Said with or without migrations."""


class Blow(enum.Enum):
    """What the strike itself does to a message at its moment."""

    HOLD = "hold"
    LOSE = "lose"
    TWICE = "twice"


def node_of(row: PartitionRow, role: Role) -> str | None:
    """Who has the role in the row's migration; None when nobody has.

    Where nobody gives up its place, the source is the primary: from there the data come."""
    migration, primary = row.active, row.primary
    assert migration is not None
    assert primary is not None
    source = migration.source or primary.node
    destination = migration.destination.node if migration.destination is not None else None
    match role:
        case Role.MASTER:
            return OPERATOR
        case Role.SOURCE:
            return source
        case Role.DESTINATION:
            return destination
        case Role.PRIMARY:
            return primary.node if primary.node != source else None
        case Role.BYSTANDER:
            others = (source, destination, primary.node)
            return next((node for node in row.owners if node not in others), None)


class Strike:
    """Waits for `moment` of the first migration of that kind that has somebody in `role`.

    With `Blow.HOLD` all messages of that moment are held from then on, `reached` is set, and the
    test releases the proxy when it is done.  Else one message is lost or sent twice: the one that
    tells the moment if who has the role sends or receives it, otherwise the next that it does.
    """

    def __init__(self, kind: Kind, moment: Moment, role: Role, blow: Blow) -> None:
        self.reached = threading.Event()
        self.struck = threading.Event()
        """A message was lost or sent twice."""
        self.row: PartitionRow | None = None
        """The row in which the migration that was struck is active."""
        self.message = ""
        """What was struck: its type, sender and receiver."""
        self._kind = kind
        self._moment = moment
        self._role = role
        self._blow = blow
        self._started: dict[tuple[str, int], PartitionRow] = {}
        self._told: set[tuple[str, int]] = set()
        self._over = False
        self._seen: set[str] = set()

    @property
    def victim(self) -> str:
        """Who has the role."""
        assert self.row is not None
        return node_of(self.row, self._role) or ""

    def end(self) -> None:
        """Hold nothing more."""
        self._over = True

    def judge(self, source: str, target: str, frame: Frame) -> Verdict:
        """Asked by the proxy."""
        if self._over or frame.kind in _ROUTINE:
            return Verdict.PASS
        self._learn(source, frame)
        row = self._row_at_moment(source, target, frame)
        if row is not None and (self.row is None or self.row == row):
            if self.row is None and not self._is_waited_for(row, source, target):
                return Verdict.HOLD if self._blow is Blow.HOLD else Verdict.PASS
            self.row = row
            self.reached.set()
            if self._blow is Blow.HOLD:
                return Verdict.HOLD
        if self.row is None or self._blow is Blow.HOLD or self.victim not in (source, target):
            return Verdict.PASS
        if row is None and self._has_message_of_its_own:
            return Verdict.PASS
        return self._strike(source, target, frame)

    # -- what is seen ------------------------------------------------------------------------------

    def _learn(self, source: str, frame: Frame) -> None:
        """Which migrations there are, and whom the row after them has reached."""
        message = frame.message
        if isinstance(message, ZoneTable) and source == OPERATOR:
            for row in message.rows:
                at = (message.zone.uid, row.partition)
                if kind_of(row) is self._kind and node_of(row, self._role) is not None:
                    self._started[at] = row
        elif isinstance(message, RowsStored):
            for partition, version in message.versions:
                at = (message.zone, partition)
                started = self._started.get(at)
                if started is not None and version > started.version and source == _first(started):
                    self._told.add(at)

    def _row_at_moment(self, source: str, target: str, frame: Frame) -> PartitionRow | None:
        """The row in whose migration this message tells the moment."""
        message = frame.message
        moment = self._moment
        if isinstance(message, ZoneTable):
            if source != OPERATOR:
                return None
            for row in message.rows:
                started = self._started.get((message.zone.uid, row.partition))
                if started is not None and self._is_told_by(started, row, target):
                    return started
            return None
        if isinstance(message, RowsStored):
            return self._row_stored(source, message)
        wanted = {
            Moment.FILLING: SnapshotChunk | Updates,
            Moment.CAUGHT_UP: CaughtUp,
            Moment.FROZEN: Frozen,
            Moment.PREPARED_ROW_SENT: PreparedRow,
            Moment.PREPARED_ROW_STORED: Prepared,
        }.get(moment)
        if wanted is None or not isinstance(message, wanted):
            return None
        partition = message.row.partition if isinstance(message, PreparedRow) else message.partition
        started = self._started.get((message.zone, partition))
        if started is None or started.active is None:
            return None
        if isinstance(message, SnapshotChunk | Updates):
            destination = started.active.destination
            return started if destination is not None and destination.node == target else None
        return started if message.migration_id == started.active.migration_id else None

    def _is_told_by(self, started: PartitionRow, row: PartitionRow, target: str) -> bool:
        """Whether this row, told to `target`, is the moment of the migration of `started`."""
        if self._moment is Moment.START:
            return row == started
        if row != committed_row(started):
            return False
        if self._moment is Moment.MIGRATION_COMMIT:
            return True
        if self._moment is Moment.PUBLISHED:
            return target != _first(started)
        return self._moment is Moment.SOURCE_DELETES and target == node_of(started, Role.SOURCE)

    def _row_stored(self, source: str, message: RowsStored) -> PartitionRow | None:
        """The moment is there when somebody has the row after the migration and others have not."""
        if self._moment not in (Moment.PUBLISHED, Moment.SOURCE_DELETES):
            return None
        for partition, version in message.versions:
            at = (message.zone, partition)
            started = self._started.get(at)
            if started is not None and at in self._told and version > started.version:
                return started if source == _first(started) else None
        return None

    def _is_waited_for(self, row: PartitionRow, source: str, target: str) -> bool:
        """Whether this message, of the moment's, begins it: at the last two it is the answer of who
        was told first, and rows to the others are held until then."""
        if self._moment not in (Moment.PUBLISHED, Moment.SOURCE_DELETES):
            return True
        return source == _first(row) or self._blow is not Blow.HOLD

    # -- messages that are struck ------------------------------------------------------------------

    @property
    def _has_message_of_its_own(self) -> bool:
        """Whether who is struck sends or is sent what tells the moment, sooner or later."""
        if self._moment is Moment.SOURCE_DELETES:
            return self._role in (Role.SOURCE, Role.MASTER)
        return self._moment in (Moment.START, Moment.MIGRATION_COMMIT, Moment.PUBLISHED)

    def _strike(self, source: str, target: str, frame: Frame) -> Verdict:
        """The first message that fits; of rows that a master tells, the first to each agent."""
        if self._role is Role.MASTER and frame.kind is ZoneTable:
            if target in self._seen:
                return Verdict.PASS
            self._seen.add(target)
        elif self.struck.is_set():
            return Verdict.PASS
        self.message += f"{' ' * bool(self.message)}{frame.kind.__name__} {source}->{target}"
        self.struck.set()
        return Verdict.LOSE if self._blow is Blow.LOSE else Verdict.TWICE


def _first(row: PartitionRow) -> str:
    """Who is told of the row after the migration first: its destination, else the primary."""
    assert row.active is not None
    assert row.primary is not None
    destination = row.active.destination
    return destination.node if destination is not None else row.primary.node
