"""A zone of scripted agents whose copies take updates the way real ones do, when told to."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from quorate_link.secret import make_secret
from quorate_spark.comparing.compare_rows import Baseline, PartitionTally, RowSeen
from quorate_spark.copies import CopySeen
from quorate_spark.passes.scan_rows import ScannedPartition
from quorate_spark.reading.agent_link import Cluster, Unreadable
from quorate_spark.reading.read_copies import read_copies, read_rows
from quorate_spark.reading.recheck import row_seen
from quorate_spark.reading.settle import ZoneCopies
from quorate_spark.settings import Settings
from quorate_spark_fixtures.scripted_agent import ScriptedAgent, ScriptedCopy

QUICK = Settings(
    connect_timeout_s=2.0,
    answer_timeout_s=2.0,
    settle_timeout_s=0.3,
    settle_poll_s=0.01,
    chunk_bytes=64,
)


class ScriptedZone:
    """`replicas` agents with all copies of `partitions`; updates reach the agents named."""

    def __init__(self, replicas: int = 3, partitions: int = 1) -> None:
        self.agents = [ScriptedAgent(f"agent-{index}") for index in range(replicas)]
        self.secret_file = ""
        """Where a tool finds the secret, while the agents listen."""
        self._next = dict.fromkeys(range(partitions), 1)
        for index, agent in enumerate(self.agents):
            agent.copies = {p: ScriptedCopy(replica_index=index) for p in range(partitions)}

    @property
    def copies(self) -> ZoneCopies:
        """Where a validation reads."""
        return ZoneCopies("z", tuple(agent.address for agent in self.agents), self.cluster)

    @property
    def cluster(self) -> Cluster:
        """The secret that its agents share."""
        return Cluster("c", self.agents[0].secret.keys("tool"), self.secret_file)

    def copy(self, agent: int, partition: int = 0) -> ScriptedCopy:
        """One copy, to change by hand."""
        return self.agents[agent].copies[partition]

    def write(
        self, key: bytes, value: bytes | None, partition: int = 0, on: Sequence[int] | None = None
    ) -> int:
        """One update: a value, or None to delete.  Its counter."""
        counter = self._next[partition]
        self._next[partition] += 1
        for index in range(len(self.agents)) if on is None else on:
            self.apply(index, counter, key, value, partition)
        return counter

    def apply(
        self, agent: int, counter: int, key: bytes, value: bytes | None, partition: int = 0
    ) -> None:
        """One copy takes an update in."""
        copy = self.copy(agent, partition)
        copy.rows[key] = (counter, copy.term, 0, value)
        copy.advance(counter)

    def flush(self, partition: int = 0, on: Sequence[int] | None = None) -> int:
        """Delete all keys in one update that leaves nothing behind.  Its counter."""
        counter = self._next[partition]
        self._next[partition] += 1
        for index in range(len(self.agents)) if on is None else on:
            self.apply_flush(index, counter, partition)
        return counter

    def apply_flush(self, agent: int, counter: int, partition: int = 0) -> None:
        """One copy takes a flush in."""
        copy = self.copy(agent, partition)
        copy.rows.clear()
        copy.advance(counter)

    def purge(self, agent: int, partition: int = 0) -> None:
        """One copy forgets its tombstones."""
        rows = self.copy(agent, partition).rows
        for key in [key for key, row in rows.items() if row[3] is None]:
            del rows[key]


@contextlib.contextmanager
def listening(zone: ScriptedZone) -> Iterator[ScriptedZone]:
    """The zone's agents answer meanwhile."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quorate-secret-")))
        zone.secret_file = str(folder / "c.json")
        secret = make_secret(folder / "c.json")
        for agent in zone.agents:
            agent.secret = secret
            stack.enter_context(agent)
        yield zone


class PlainRowScan:
    """RowScan without Spark, copy after copy; `between` is called after each copy was read."""

    def __init__(
        self,
        copies: ZoneCopies,
        settings: Settings = QUICK,
        between: Callable[[CopySeen], None] = lambda copy: None,
    ) -> None:
        self._copies = copies
        self._settings = settings
        self._between = between
        self.calls: list[tuple[int, ...]] = []

    def __call__(self, baselines: Mapping[int, Baseline]) -> dict[int, ScannedPartition]:
        """All rows of the baselines' partitions."""
        self.calls.append(tuple(baselines))
        zone, cluster = self._copies.zone, self._copies.cluster
        reading = read_copies(zone, self._copies.agents, cluster, self._settings)
        result: dict[int, ScannedPartition] = {}
        for partition, baseline in baselines.items():
            tally, problem = PartitionTally(baseline), ""
            rows_of: dict[bytes, list[RowSeen]] = {}
            for copy in reading.owned.get(partition, ()):
                try:
                    for rows in read_rows(copy, zone, cluster, self._settings):
                        for row in rows:
                            rows_of.setdefault(row[0], []).append(row_seen(copy.node, row))
                except Unreadable as error:
                    problem = str(error)
                self._between(copy)
            for key, seen in sorted(rows_of.items()):
                tally.count(key, seen, self._settings.rechecks_max)
            result[partition] = ScannedPartition(tally, problem)
        return result
