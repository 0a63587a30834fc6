"""Whether metastore and agents agree: rows, who has which copy, what stands in the copies."""

import itertools
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec

from quorate.facts.partition_row import PartitionRow, check_row
from quorate.protocol.messages.master import Activated, ZoneTable
from quorate.protocol.messages.tools import AskCopies, AskRows, Copies, CopyRows, CopyState
from quorate_cluster.cluster import Cluster
from quorate_cluster.proxy import OPERATOR, Frame, Verdict
from quorate_spark.reading.agent_link import AgentLink, Unreadable

_BYTES_MAX = 4 * 1024 * 1024
_rows = msgspec.json.Decoder(tuple[PartitionRow, ...])

Row = tuple[bytes, int, int, int, bytes | None]
"""Key, counter, term, expires_at, value."""


def stored_rows(folder: Path, uid: str) -> dict[int, PartitionRow]:
    """The zone's rows in the embedded operator's metastore, by partition."""
    file = folder / "operator" / "metastore.sqlite"
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=10)) as at:
        found = at.execute(
            "SELECT value FROM records WHERE kind = 'shard' AND name = ? ORDER BY shard", (uid,)
        ).fetchall()
    return {row.partition: row for (value,) in found for row in _rows.decode(value)}


def unsettled(cluster: Cluster, zone: str, copies: int) -> list[str]:
    """What is not yet as it must be when all is quiet, each as a sentence.

    Every partition has `copies` copies, on agents that its row names, and nobody else has any data
    of it; every copy has adopted the row's term.  The zone serves and nothing moves.
    """
    found = cluster.zone(zone)
    conditions = {each["type"]: each["status"] for each in found["status"]["conditions"]}
    problems = [
        f"{name} is {conditions.get(name)}"
        for name, wanted in (("Available", "True"), ("Rebalancing", "False"))
        if conditions.get(name) != wanted
    ]
    rows = stored_rows(cluster.folder, found["metadata"]["uid"])
    if len(rows) != found["spec"]["partitions"]:
        return [*problems, f"rows of {len(rows)} partitions"]
    there = _copies(cluster, zone)
    for partition, row in rows.items():
        check_row(row)
        if row.active is not None:
            problems.append(f"partition {partition}: {row.active.migration_id} is active")
        if not len(row.owners) == len(row.voters) == copies:
            problems.append(f"partition {partition}: not {copies} copies: {row}")
        for name, states in there.items():
            problems += _copy_problems(row, name, states.get(partition))
    return problems


def _copy_problems(row: PartitionRow, agent: str, copy: CopyState | None) -> list[str]:
    where = f"partition {row.partition}: {agent}"
    if agent not in row.voter_nodes:
        return [] if copy is None else [f"{where} has data (leak): {row}"]
    if copy is None:
        return [f"{where} has no data (miss): {row}"]
    if copy.version != row.version or copy.term != row.term or not copy.adopted or copy.above:
        return [f"{where} is not up to date: {copy}, {row}"]
    return []


def _copies(cluster: Cluster, zone: str) -> dict[str, dict[int, CopyState]]:
    found: dict[str, dict[int, CopyState]] = {}
    for name, agent in cluster.agents.items():
        with AgentLink(agent.peer_address, cluster.access, 5, 10) as link:
            answer = link.ask(AskCopies(zone), Copies)
        if answer.problem:
            raise Unreadable(answer.problem)
        found[name] = {copy.partition: copy for copy in answer.copies}
    return found


def differences(cluster: Cluster, zone: str) -> list[str]:
    """Where copies of a partition differ in position or live rows; nobody may write meanwhile.

    Tombstones do not count: copies drop them at different times.
    """
    rows = stored_rows(cluster.folder, cluster.zone(zone)["metadata"]["uid"])
    links = {
        name: AgentLink(agent.peer_address, cluster.access, 5, 10)
        for name, agent in cluster.agents.items()
    }
    try:
        problems: list[str] = []
        for partition, row in rows.items():
            read = {name: _live(read_copy(links[name], zone, partition)) for name in row.owners}
            first, *others = read
            problems += [
                f"partition {partition}: {name} and {first} differ:"
                f" {_difference(read[name], read[first])}"
                for name in others
                if read[name] != read[first]
            ]
        return problems
    finally:
        for link in links.values():
            link.close()


def copies_rows(cluster: Cluster, zone: str) -> list[tuple[str, list[Row]]]:
    """Every owner's copy of every partition: the agent, and all rows it has there."""
    rows = stored_rows(cluster.folder, cluster.zone(zone)["metadata"]["uid"])
    found: list[tuple[str, list[Row]]] = []
    for name, agent in cluster.agents.items():
        with AgentLink(agent.peer_address, cluster.access, 5, 10) as link:
            mine = [partition for partition, row in rows.items() if name in row.owners]
            found += [(name, read_copy(link, zone, partition)[1]) for partition in mine]
    return found


def read_copy(link: AgentLink, zone: str, partition: int) -> tuple[int, list[Row]]:
    """LWM and all rows of a copy, tombstones too.  Unreadable: the agent says why."""
    rows: list[Row] = []
    after: bytes | None = None
    while True:
        answer = link.ask(AskRows(zone, partition, after, _BYTES_MAX), CopyRows)
        if answer.problem:
            raise Unreadable(answer.problem)
        rows += answer.rows
        after = answer.next
        if after is None:
            return answer.lwm, rows


def _live(read: tuple[int, list[Row]]) -> tuple[int, list[Row]]:
    lwm, rows = read
    return lwm, [row for row in rows if row[4] is not None]


def _difference(read: tuple[int, list[Row]], other: tuple[int, list[Row]]) -> str:
    mine, theirs = ({row[:4] for row in rows} for _, rows in (read, other))
    return f"LWM {read[0]} and {other[0]}, rows {sorted(mine ^ theirs)[:6]}"


class RowsSeen:
    """A judge for the proxy that lets everything pass and remembers what masters published."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], dict[int, PartitionRow]] = {}
        self._served: dict[tuple[str, int, int], str] = {}
        self._problems: list[str] = []

    def judge(self, source: str, target: str, frame: Frame) -> Verdict:
        """Asked by the proxy."""
        message = frame.message if frame.kind in (ZoneTable, Activated) else None
        if isinstance(message, ZoneTable) and source == OPERATOR:
            for row in message.rows:
                known = self._rows.setdefault((message.zone.uid, row.partition), {})
                if known.setdefault(row.version, row) != row:
                    self._problems.append(f"two rows of one version: {row}, {known[row.version]}")
        elif isinstance(message, Activated):
            key = (message.zone, message.partition, message.term)
            if self._served.setdefault(key, source) != source:
                self._problems.append(f"{source} and {self._served[key]} serve {key}")
        return Verdict.PASS

    def problems(self, folder: Path, uid: str) -> list[str]:
        """Versions and terms that went back or stand for two things; empty when all is well."""
        found = list(self._problems)
        now = stored_rows(folder, uid)
        for (zone, partition), known in sorted(self._rows.items()):
            if zone != uid:
                continue
            ordered = [known[version] for version in sorted(known)]
            for before, row in itertools.pairwise(ordered):
                if row.term < before.term:
                    found.append(f"the term went back: {row} follows {before}")
            last = now[partition]
            if last.version < ordered[-1].version or known.get(last.version, last) != last:
                found.append(f"published was {ordered[-1]}, the metastore holds {last}")
        return found
