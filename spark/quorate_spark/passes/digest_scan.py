"""One pass over all copies that compares digests, and reads rows only where they differ.

Plain Python over the agents' peer ports: no Spark.  Agents maintain these digests as they write, so
only level rows finds a row that changed on disk behind its agent.
"""

from collections.abc import Collection, Mapping

import msgspec

from quorate_spark.comparing.compare_digests import DigestsTold
from quorate_spark.comparing.compare_rows import Baseline, PartitionTally
from quorate_spark.comparing.outvoted import votes_by_digest
from quorate_spark.copies import CopySeen
from quorate_spark.passes.scan_rows import ScannedPartition
from quorate_spark.progress import Progress
from quorate_spark.reading.agent_link import Unreadable
from quorate_spark.reading.descend import descend
from quorate_spark.reading.settle import ZoneCopies
from quorate_spark.reading.watch_digests import watch_digests
from quorate_spark.settings import Settings
from quorate_spark.verdict import CopyDigestTold, DigestDifference, DigestFigures, Mode, Verdict


class DigestScan:
    """A RowScan by digests.  A later pass over a partition replaces earlier findings.

    In mode idle no copy is asked to note a digest at a mark ahead.  If one is no longer at the
    counter of the baseline, the partition cannot be judged.
    """

    def __init__(
        self,
        copies: ZoneCopies,
        settings: Settings,
        progress: Progress | None = None,
        mode: Mode = Mode.LIVE,
    ) -> None:
        self._mode = mode
        self._copies = copies
        self._settings = settings
        self._progress = progress or Progress()
        self._unread: dict[int, int] = {}
        self._rows_read = 0
        self._differences: dict[int, DigestDifference] = {}

    def __call__(self, baselines: Mapping[int, Baseline]) -> dict[int, ScannedPartition]:
        """Judge the baselines' partitions.  Raises Unreadable if the copies cannot be listed."""
        reading = self._copies.read(self._settings)
        scanned: dict[int, ScannedPartition] = {}
        owned: dict[int, tuple[CopySeen, ...]] = {}
        for partition, baseline in baselines.items():
            self._unread.pop(partition, None)
            self._differences.pop(partition, None)
            copies = reading.owned.get(partition, ())
            if tuple(copy.node for copy in copies) == baseline.nodes:
                owned[partition] = copies
            else:
                scanned[partition] = _not_scanned(
                    baseline,
                    f"partition {partition}: its copies moved while digests were to be compared",
                )
        zone, cluster = self._copies.zone, self._copies.cluster
        idle_lwm = None
        if self._mode is Mode.IDLE:
            idle_lwm = {partition: baselines[partition].settled_upto for partition in owned}
        told = watch_digests(owned, zone, cluster, self._settings, self._progress, idle_lwm)
        for partition, found in sorted(told.items()):
            scanned[partition] = (
                _not_scanned(baselines[partition], found)
                if isinstance(found, str)
                else self._judge(baselines[partition], owned[partition], found)
            )
        return scanned

    def figures_added(self, verdict: Verdict, confirmed: Collection[int]) -> Verdict:
        """Return the verdict with the figures of what was compared by digest and what was read.

        `confirmed`: the partitions of which a key is confirmed to differ.  The verdict lists only
        the first of these keys.
        """
        keys: dict[int, list[str]] = {}
        for difference in verdict.key_differences:
            keys.setdefault(difference.partition, []).append(difference.key)
        differing = [
            msgspec.structs.replace(
                difference,
                keys=tuple(keys.get(partition, ())),
                confirmed=partition in confirmed,
            )
            for partition, difference in sorted(self._differences.items())
        ]
        figures = DigestFigures(
            len(self._unread),
            len(differing),
            sum(self._unread.values()),
            self._rows_read,
            tuple(differing[: self._settings.differences_max]),
        )
        votes = votes_by_digest(differing, self._copies.replicas)
        return msgspec.structs.replace(
            verdict, digests=figures, outvoted=votes.outvoted, undecided=votes.undecided
        )

    def _judge(
        self, baseline: Baseline, copies: tuple[CopySeen, ...], told: DigestsTold
    ) -> ScannedPartition:
        partition = baseline.partition
        if told.agree:
            self._unread[partition] = told.rows
            return ScannedPartition(PartitionTally(baseline, settled=told.rows))
        zone, cluster = self._copies.zone, self._copies.cluster
        try:
            found = descend(copies, told.counter, zone, cluster, self._settings)
        except Unreadable as error:
            return _not_scanned(baseline, str(error))
        found.tally.settled += found.rows_unread
        self._unread[partition] = found.rows_unread
        self._rows_read += found.rows_read
        self._differences[partition] = DigestDifference(
            partition,
            told.counter,
            tuple(
                CopyDigestTold(node, digest.hex())
                for node, digest in zip(baseline.nodes, told.digests, strict=True)
            ),
            found.buckets,
            found.rows_read,
        )
        return ScannedPartition(
            found.tally,
            suspicion=(
                f"partition {partition}: digests differed at counter {told.counter}, and no row"
                " that differs was found (overwritten meanwhile; or a digest is not that of the"
                " copy's rows: --level rows compares these)"
            ),
        )


def _not_scanned(baseline: Baseline, reason: str) -> ScannedPartition:
    return ScannedPartition(PartitionTally(baseline), reason)
