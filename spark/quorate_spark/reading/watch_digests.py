"""Asks copies for their digests repeatedly until they can be judged, or the wait is over.

The wait ends when no further partition could be judged for `settle_timeout_s`: a zone of many
partitions may take longer as long as it progresses.
"""

import time
from collections.abc import Mapping, Sequence

from quorate.protocol.messages.tools import DIGESTS_ASKED_MAX, CopyDigest
from quorate_spark.comparing.compare_digests import DigestsTold, DigestWatch, Majority
from quorate_spark.copies import CopySeen
from quorate_spark.progress import Progress
from quorate_spark.reading.agent_link import AgentLink, Cluster, Unreadable
from quorate_spark.reading.agent_links import AgentLinks
from quorate_spark.reading.read_copies import check_process
from quorate_spark.reading.read_digests import read_digests
from quorate_spark.settings import Settings


def watch_digests(
    owned: Mapping[int, tuple[CopySeen, ...]],
    zone: str,
    cluster: Cluster,
    settings: Settings,
    progress: Progress | None = None,
    idle_lwm: Mapping[int, int] | None = None,
    enough: Mapping[int, Majority] | None = None,
) -> dict[int, DigestsTold | str]:
    """Return by partition the digests of its copies, or a sentence why there are none.

    `idle_lwm`: the counters at which copies are while nothing is written, and `enough`: the copies
    that are enough when the wait is over, see DigestWatch.
    """
    with AgentLinks(cluster, settings) as links:
        watches = {
            partition: DigestWatch(
                partition,
                tuple(copy.node for copy in copies),
                (idle_lwm or {}).get(partition),
                (enough or {}).get(partition),
            )
            for partition, copies in owned.items()
        }
        return _Sweeps(owned, zone, links, progress or Progress(), watches).run(settings)


class _Sweeps:
    """Repeated questions to agents.  `_problems`: address -> why the last sweep failed."""

    def __init__(
        self,
        owned: Mapping[int, tuple[CopySeen, ...]],
        zone: str,
        links: AgentLinks,
        progress: Progress,
        watches: Mapping[int, DigestWatch],
    ) -> None:
        self._progress = progress
        self._owned = owned
        self._zone = zone
        self._links = links
        self._watches = watches
        self._told: dict[int, DigestsTold | str] = {}
        self._problems: dict[str, str] = {}

    def run(self, settings: Settings) -> dict[int, DigestsTold | str]:
        open_ones = list(self._watches)
        deadline = time.monotonic() + settings.settle_timeout_s
        while True:
            self._sweep(open_ones)
            left = [partition for partition in open_ones if partition not in self._told]
            if len(left) < len(open_ones):
                deadline = time.monotonic() + settings.settle_timeout_s
            open_ones = left
            if not open_ones:
                return self._told
            if time.monotonic() >= deadline:
                return self._told | {
                    partition: self._watches[partition].judge_majority() or self._why(partition)
                    for partition in open_ones
                }
            time.sleep(settings.settle_poll_s)

    def _sweep(self, partitions: Sequence[int]) -> None:
        """Ask every owner of these once; the owners of one copy shortly after one another."""
        self._problems.clear()
        for start in range(0, len(partitions), DIGESTS_ASKED_MAX):
            batch = partitions[start : start + DIGESTS_ASKED_MAX]
            seen_at: dict[str, list[CopySeen]] = {}
            for partition in batch:
                for copy in self._owned[partition]:
                    seen_at.setdefault(copy.address, []).append(copy)
            for address, copies in seen_at.items():
                self._ask(address, copies)
            for partition in batch:
                watch = self._watches[partition]
                told = watch.judge() or watch.why_never()
                if told:
                    self._told.setdefault(partition, told)
            self._progress.reached(len(self._told), len(self._owned))

    def _ask(self, address: str, copies: Sequence[CopySeen]) -> None:
        """Ask one agent once.

        An agent that does not answer may be restarting: the next sweep asks it again, unless it is
        another process by then.
        """
        answers = {}
        if address not in self._problems:
            try:
                link = self._links.to(address)
                answers = self._answers(link, copies)
            except Unreadable as error:
                self._problems[address] = str(error)
                self._links.drop(address)
        for copy in copies:
            watch = self._watches[copy.state.partition]
            answer = answers.get(copy.state.partition)
            if answer is None:
                watch.forget(copy.node)
            else:
                watch.take_in(copy.node, answer)

    def _answers(self, link: AgentLink, copies: Sequence[CopySeen]) -> dict[int, CopyDigest]:
        for copy in copies:
            try:
                check_process(link, copy)
            except Unreadable as error:
                self._told[copy.state.partition] = str(error)
        partitions = [copy.state.partition for copy in copies]
        marks = [self._watches[partition].mark for partition in partitions]
        return read_digests(link, self._zone, partitions, marks)

    def _why(self, partition: int) -> str:
        problems = [
            self._problems[copy.address]
            for copy in self._owned[partition]
            if copy.address in self._problems
        ]
        if problems:
            return f"partition {partition}: {'; '.join(problems)}"
        return self._watches[partition].why_open()
