"""The primaries of a zone's partitions, found again when they change."""

import time
from collections.abc import Callable, Iterable

from msgspec import structs

from quorate.protocol.messages.tools import RestoreRows, RowsRestored
from quorate_spark.copies import CopySeen
from quorate_spark.reading.agent_link import TooOld, Unreadable
from quorate_spark.reading.agent_links import AgentLinks
from quorate_spark.reading.read_copies import copies_of
from quorate_spark.reading.settle import ZoneCopies

FIRST_POLL_S = 0.001
LARGE_POLL_S = 0.02
LARGE_BYTES = 1024 * 1024
"""Requests above this size begin to be repeated at the longer pause: each repeats the rows."""
POLL_S_MAX = 0.3
FIND_AGAIN_S = 0.03
"""After a pause of this length the primary is looked for again: it may be another one."""
SILENT_S = 5.0
"""An agent that does not answer is asked last for so long: it may take seconds not to answer."""


class RowsRefused(Unreadable):
    """A primary does not write these rows; the message may name a key."""

    def __init__(self, partition: int, problem: str) -> None:
        super().__init__(f"partition {partition}: {problem}")
        self.partition = partition


class Primaries:
    """Asks the primary of a partition, whichever agent that is at the moment.

    `wait_s`: how long one request may take, with all its repetitions.
    """

    def __init__(
        self,
        copies: ZoneCopies,
        links: AgentLinks,
        wait_s: float,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._copies = copies
        self._links = links
        self._wait_s = wait_s
        self._sleep = sleep
        self._found: dict[int, CopySeen] = {}
        self._silent: dict[str, float] = {}
        """By address: until when an agent is asked last."""

    def find(self, partition: int) -> CopySeen:
        """Return the primary's copy as it is now.  Raises Unreadable if none answers in time."""
        deadline = time.monotonic() + self._wait_s
        while True:
            found = self._find(partition)
            if found is not None:
                return found
            if time.monotonic() > deadline:
                raise Unreadable(
                    f"partition {partition} has no primary that answers within {self._wait_s:g} s"
                )
            self._sleep(POLL_S_MAX)

    def begin(self, ask: RestoreRows) -> RowsRestored | None:
        """Have the rows written, without waiting; return the answer, None if there is none yet.

        `restore` waits until a quorum has the rows.  Raises Unreadable.
        """
        return self._try(ask)[0]

    def restore(self, ask: RestoreRows) -> RowsRestored:
        """Have the rows written; return the answer once a quorum has them.  Raises Unreadable."""
        deadline = time.monotonic() + self._wait_s
        size = sum(len(key) + len(value) for key, value, _ in ask.rows)
        pause_s = LARGE_POLL_S if size > LARGE_BYTES else FIRST_POLL_S
        while True:
            answer, waits_for = self._try(ask)
            if answer is not None:
                if answer.done:
                    return answer
                ask = structs.replace(ask, written=answer.written)
            if time.monotonic() > deadline:
                raise Unreadable(
                    f"partition {ask.partition}: rows are not written within {self._wait_s:g} s: it"
                    f" waits for {waits_for}"
                )
            self._sleep(pause_s)
            if pause_s >= FIND_AGAIN_S:
                self._found.pop(ask.partition, None)
            pause_s = min(2 * pause_s, POLL_S_MAX)

    def _try(self, ask: RestoreRows) -> tuple[RowsRestored | None, str]:
        """Ask once; return the answer, and what is waited for."""
        partition, ask = ask.partition, structs.replace(ask, uid=self._copies.uid)
        primary = self._found.get(partition) or self._find(partition)
        if primary is None:
            return None, "a primary that answers"
        try:
            answer = self._links.to(primary.address).ask(ask, RowsRestored)
        except Unreadable as error:
            self._links.drop(primary.address)
            self._found.pop(partition, None)
            if isinstance(error, TooOld):
                raise
            return None, str(error)
        if answer.problem:
            raise RowsRefused(partition, answer.problem)
        return answer, answer.waits_for

    def _find(self, partition: int) -> CopySeen | None:
        """Return the primary's copy; an agent that does not answer is left out."""
        now = time.monotonic()
        last = {address for address, until in self._silent.items() if now < until}
        first = [address for address in self._copies.agents if address not in last]
        return self._find_among(partition, first) or self._find_among(partition, sorted(last))

    def _find_among(self, partition: int, addresses: Iterable[str]) -> CopySeen | None:
        leading: list[CopySeen] = []
        for address in addresses:
            try:
                link = self._links.to(address)
                leading += [
                    copy
                    for copy in copies_of(link, address, self._copies.zone, partition)
                    if copy.state.partition == partition
                    and copy.state.replica_index == 0
                    and copy.state.adopted
                ]
            except Unreadable:
                self._links.drop(address)
                self._silent[address] = time.monotonic() + SILENT_S
        if not leading:
            return None
        found = self._found[partition] = max(leading, key=lambda copy: copy.state.term)
        return found
