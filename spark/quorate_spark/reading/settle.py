"""Reads copies repeatedly until their counters can be judged, or the wait is over."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from quorate_spark.comparing.compare_counters import CounterWatch, Judgement, Settled, Unsettled
from quorate_spark.copies import Reading, absence
from quorate_spark.progress import Progress
from quorate_spark.reading.agent_link import Cluster, Unreadable
from quorate_spark.reading.read_copies import read_answering, read_copies
from quorate_spark.settings import Settings

STANDSTILL_SHARE = 0.5
"""A copy must stand still for this share of the wait before it counts as differing."""


@dataclass(frozen=True, slots=True)
class ZoneCopies:
    """Where to read the copies of a zone, and how many there should be.

    `partitions` and `replicas`: as the zone declares them, 0 if not known.  With them a missing
    copy is noticed, not only a differing one.  `uid`: of the zone, as agents tell it; nothing is
    written into another zone of this name.  Empty: any will do.
    """

    zone: str
    agents: tuple[str, ...]
    cluster: Cluster
    partitions: int = 0
    replicas: int = 0
    uid: str = ""

    def read(self, settings: Settings) -> Reading:
        """Read all copies now.  Raises Unreadable if an agent does not answer."""
        return read_copies(self.zone, self.agents, self.cluster, settings)

    def read_answering(self, settings: Settings) -> Reading:
        """Read the copies of the agents that answer.  Raises Unreadable if none does."""
        return read_answering(self.zone, self.agents, self.cluster, settings)

    def absence(self, reading: Reading) -> str:
        """Return which copies are missing; empty if none is known to be."""
        return absence(reading, self.zone, self.partitions, self.replicas)


def settle(
    copies: ZoneCopies,
    settings: Settings,
    only: Iterable[int] | None = None,
    progress: Progress | None = None,
    new_watch: Callable[[int], CounterWatch] = CounterWatch,
) -> tuple[Reading, dict[int, Judgement]]:
    """Return the last reading, and a judgement of each partition (of `only`, if given).

    `new_watch` makes what judges a partition.  A settled partition keeps the judgement of the
    reading that settled it while it has the same copies; if another one appears, it is judged
    again.  The wait begins with the first reading in which all agents answer.
    Raises Unreadable if there is none for as long, or an agent does not answer at its end.
    """
    watches = {partition: new_watch(partition) for partition in sorted(only or ())}
    judgements: dict[int, Judgement] = {}
    deadline = time.monotonic() + settings.settle_timeout_s
    is_first = True
    while True:
        try:
            reading = copies.read(settings)
        except Unreadable:
            # The agent may be restarting.
            if time.monotonic() >= deadline:
                raise
        else:
            now_s = time.monotonic()
            if is_first:
                deadline, is_first = now_s + settings.settle_timeout_s, False
            if only is None:
                for partition in reading.owned:
                    if partition not in watches:
                        watches[partition] = new_watch(partition)
            for partition, watch in watches.items():
                seen = reading.owned.get(partition, ())
                judged = judgements.get(partition)
                if not isinstance(judged, Settled) or not judged.is_of(seen):
                    judgements[partition] = watch.observe(seen, now_s)
            open_ones = sum(
                isinstance(judgement, Unsettled) and not judgement.is_final
                for judgement in judgements.values()
            )
            if progress is not None:
                progress.reached(len(judgements) - open_ones, len(judgements))
            if not open_ones and not copies.absence(reading):
                return reading, judgements
            if now_s >= deadline:
                standstill_s = settings.settle_timeout_s * STANDSTILL_SHARE
                catching_up = {
                    process
                    for watch in watches.values()
                    for process in watch.catching_up_since(now_s - standstill_s)
                }
                return reading, {
                    partition: watch.conclude(standstill_s, catching_up)
                    for partition, watch in watches.items()
                }
        time.sleep(settings.settle_poll_s)
