"""What masters write, and whom agents obey: these rules switched off."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import msgspec

from quorate.facts.partition_row import MigrationKind, PartitionRow, committed_row
from quorate.facts.time import Now
from quorate.facts.topology import Holder, Voter
from quorate.protocol.agent import agent
from quorate.protocol.agent.agent import AgentCore
from quorate.protocol.master.older_metastore import OlderMetastore
from quorate.protocol.members.newer_rows import NewerRows
from quorate.protocol.messages.handshake import Hello
from quorate.protocol.messages.master import Trouble
from quorate.protocol.metastore import Key, Revision, Value
from quorate.protocol.zone_master import decide_partition, ownership, zone_master
from quorate.protocol.zone_master.causes import Cause, Why
from quorate.protocol.zone_master.decide_partition import RowDecision
from quorate.protocol.zone_master.partition_reports import PartitionReports
from quorate.protocol.zone_master.partition_state import Nodes, PartitionState
from quorate.protocol.zone_master.recovery import rebuild_zone, recover_rows
from quorate.protocol.zone_master.recovery.recover_rows import Told, Waiting, recovered_row
from quorate_operator.mastership.second_look import SecondLook
from quorate_operator.metastores.memory import MemoryMetastore
from quorate_sim.changed import changed


def nobody_left_but_stuck() -> AbstractContextManager[None]:
    """The master does not listen to what is stuck."""

    def trouble(self: PartitionReports, node: str, trouble: Trouble, now: Now) -> None:
        return None

    return changed(PartitionReports, "trouble", trouble)


@contextmanager
def plus_one_for_plus_two() -> Iterator[None]:
    """What follows a migration that was given up takes the number of its prepared row."""

    def failed(row: PartitionRow, new_term: bool) -> PartitionRow:
        version = row.version + 1
        term = version if new_term else row.term
        return msgspec.structs.replace(row, version=version, active=None, term=term)

    def step(row: PartitionRow) -> int:
        return 1

    with changed(ownership, "failed", failed), changed(ownership, "_step", step):
        yield


def stale_master_obeyed() -> AbstractContextManager[None]:
    """An agent does what a master says that was followed by another."""

    def obey(self: AgentCore, master_term: int) -> bool:
        if master_term > self.master_term:
            self._store.raise_master_term(master_term, "")
            self.master_term = master_term
        return True

    return changed(AgentCore, "_obey", obey)


def master_term_forgotten() -> AbstractContextManager[None]:
    """An agent remembers which master it obeyed only while it runs."""

    def obey(self: AgentCore, master_term: int) -> bool:
        if master_term < self.master_term:
            return False
        self.master_term = master_term
        return True

    return changed(AgentCore, "_obey", obey)


def words_passed_over() -> AbstractContextManager[None]:
    """Agents know a mastership by its number alone."""

    def why_not_obeyed(term: int, word: str, hello: Hello) -> str:
        return "it is over" if hello.master_term < term else ""

    return changed(agent, "why_not_obeyed", why_not_obeyed)


def newer_rows_passed_over() -> AbstractContextManager[None]:
    """A master does not look whether agents have newer rows than the metastore."""

    def note(self: NewerRows, uid: str, row: object, node: str, copy: object) -> None:
        return

    return changed(NewerRows, "note", note)


def unrecorded_zones_passed_over() -> AbstractContextManager[None]:
    """A master does not look whether agents have data of zones without a record."""

    def is_known(self: OlderMetastore, uid: str) -> bool:
        return True

    return changed(OlderMetastore, "_is_known", is_known)


def changes_of_voters_unheard_of() -> AbstractContextManager[None]:
    """A change of the voters is committed before a quorum of them has its row."""

    def is_known(part: object, nodes: object) -> bool:
        return True

    return changed(decide_partition, "is_known", is_known)


def silent_dropped_alone() -> AbstractContextManager[None]:
    """A DROP of voters that are only silent is committed as soon as it has begun."""

    def decide(part: PartitionState, nodes: Nodes, *others: Any) -> RowDecision:
        active, dead = part.row.active, nodes.dead_voters(part.row)
        if active is not None and active.kind is MigrationKind.DROP and active.source not in dead:
            after = committed_row(part.row)
            return RowDecision(after, Why(Cause.COMMITTED, (active.migration_id,)))
        return _decide(part, nodes, *others)

    _decide = decide_partition.decide
    return changed(zone_master, "decide", decide)


def rebuilt_without_a_quorum() -> AbstractContextManager[None]:
    """A row is rebuilt from what anybody tells."""

    def quorum(voters: int, dead: int) -> int:
        return 1

    return changed(recover_rows, "quorum", quorum)


def newcomers_vote_when_rebuilt() -> AbstractContextManager[None]:
    """A row that is rebuilt under a migration has its newcomer among the voters in any case."""

    def is_uncommitted(row: object, told: object) -> bool:
        return False

    return changed(recover_rows, "_is_uncommitted", is_uncommitted)


def both_sides_vote_as_one() -> AbstractContextManager[None]:
    """A row that is rebuilt under a migration has all voters of both sides, and does not say so."""

    def above(
        version: int,
        newest: PartitionRow,
        voters: tuple[Voter, ...],
        both: tuple[tuple[Voter, ...], ...],
        told: Mapping[str, Told],
    ) -> PartitionRow:
        return _above(version, newest, voters, (), told)

    _above = recover_rows._above
    return changed(recover_rows, "_above", above)


def believed_though_frozen() -> AbstractContextManager[None]:
    """A primary that has told is taken for one that has not frozen."""

    def has_not_frozen(primary: Holder, term: int, told: Mapping[str, Told]) -> bool:
        return primary.node in told

    return changed(recover_rows, "_has_not_frozen", has_not_frozen)


def rebuilt_whatever_the_mastership() -> AbstractContextManager[None]:
    """Rows are rebuilt as if no earlier mastership had rebuilt any that are lost again."""

    def rebuilt(
        partition: int,
        told: Mapping[str, Told],
        dead: Sequence[Voter],
        master_term: int,
        below: int,
        silent: Sequence[str],
    ) -> PartitionRow | Waiting:
        return recovered_row(partition, told, dead, 1, below, silent)

    return changed(rebuild_zone, "recovered_row", rebuilt)


def stale_master_writes() -> AbstractContextManager[None]:
    """The metastore takes every write, whatever it was based on."""

    async def write(
        self: MemoryMetastore, key: Key, value: Value | None, expected: Revision | None
    ) -> Revision:
        present = self._stored.get(key)
        return await _write(self, key, value, present.revision if present is not None else None)

    _write = MemoryMetastore.write
    return changed(MemoryMetastore, "write", write)


def never_looks_again() -> AbstractContextManager[None]:
    """A master hears of rows that another has written only when it writes them itself."""

    def unread(
        self: SecondLook, stored: object, revisions: object, touched: object
    ) -> list[object]:
        return []

    return changed(SecondLook, "unread", unread)
