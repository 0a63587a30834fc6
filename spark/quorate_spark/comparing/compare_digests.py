"""Judges whether the copies of a partition have the same digest, over several readings.

Pure.  The rows of a copy are the fold of its updates up to its LWM.  So in one term the digest at
one counter is the same on every copy, whenever it is told.  An answer tells two digests: the
present one, at the copy's LWM, and the one at the mark that the copy was asked to note.

    no counter at which every copy told its digest -> a mark a little above the highest LWM
    a copy passed the mark before it was asked     -> another mark, further ahead
    a counter at which every copy told its digest  -> AGREE or DIFFER at that counter
    a copy's term changed, or its LWM went back    -> what it told until then is forgotten

An export needs a majority only.  At the end of its wait copies that do not tell are left out: one
that has not adopted its term, or whose LWM stands still, counts as one whose agent is away.
"""

from typing import NamedTuple

from quorate.protocol.messages.tools import CopyDigest

MARGIN_MIN = 4
"""Counters between the highest LWM and the first mark."""


class DigestsTold(NamedTuple):
    """The digests of all copies at one counter, in the order of the watch's nodes.

    `rows`: live rows as the hottest copy last counted them.  Of a majority: see judge_majority.
    """

    counter: int
    digests: tuple[bytes, ...]
    rows: int

    @property
    def agree(self) -> bool:
        """Whether all digests are the same."""
        return len(set(self.digests)) == 1


class Majority(NamedTuple):
    """Copies of a partition that are enough: more than half of `copies`, one of them on `node`."""

    copies: int
    node: str


class DigestWatch:
    """The digests of one partition so far.  `mark`: the mark to ask the copies for, 0 for none.

    `idle_lwm`: the counter at which all copies are while nothing is written; no mark is set then.
    `enough`: the copies that are enough at the end of the wait; None: all must tell.
    """

    __slots__ = (
        "_asked",
        "_highest",
        "_last",
        "_margin",
        "_told",
        "enough",
        "idle_lwm",
        "mark",
        "nodes",
        "partition",
    )

    def __init__(
        self,
        partition: int,
        nodes: tuple[str, ...],
        idle_lwm: int | None = None,
        enough: Majority | None = None,
    ) -> None:
        self.partition = partition
        self.nodes = nodes
        self.idle_lwm = idle_lwm
        self.enough = enough
        self.mark = 0
        self._margin = MARGIN_MIN
        self._highest = 0
        self._last: dict[str, CopyDigest] = {}
        self._told: dict[str, dict[int, bytes]] = {node: {} for node in nodes}
        self._asked: dict[str, int] = {}

    def take_in(self, node: str, answer: CopyDigest) -> None:
        """Take the answer of `node` to a question with the present mark."""
        last = self._last.get(node)
        told = self._told[node]
        if last is not None and (
            answer.term != last.term or answer.lwm < last.lwm or not answer.adopted
        ):
            told.clear()
            self._asked.pop(node, None)
        self._last[node] = answer
        if not answer.adopted:
            return
        told[answer.lwm] = answer.digest
        if answer.lwm < self.mark:
            self._asked[node] = self.mark
        elif self.mark and self._asked.get(node) == self.mark == answer.mark:
            # A mark of another client's question may be of updates that were undone since.  This
            # one was noted after we asked, below it and in this term.
            told[answer.mark] = answer.mark_digest

    def forget(self, node: str) -> None:
        """Forget `node`: it has no such copy now, or did not answer."""
        self._last.pop(node, None)
        self._told[node].clear()
        self._asked.pop(node, None)

    def judge(self) -> DigestsTold | None:
        """Return the digests at the highest counter at which all copies told theirs.

        None if there is no such counter yet; `mark` is then set for the next question.
        """
        if self._why_not_comparable():
            if self.enough is not None:
                self._set_mark()
            return None
        common = set.intersection(*(set(told) for told in self._told.values()))
        if common:
            counter = max(common)
            digests = tuple(self._told[node][counter] for node in self.nodes)
            return DigestsTold(counter, digests, self._last[self.nodes[0]].rows)
        if self.idle_lwm is None:
            self._set_mark()
        return None

    def judge_majority(self) -> DigestsTold | None:
        """Return the digests of the copies that are enough, at the highest counter at which they
        told the same digest in the highest term; None if there is none.  For the end of the wait.
        """
        present = self._present()
        if self.enough is None or self.enough.node not in present:
            return None
        told = self._told[self.enough.node]
        for counter in sorted(told, reverse=True):
            digests = tuple(
                self._told[node][counter]
                for node in present
                if self._told[node].get(counter) == told[counter]
            )
            if len(digests) * 2 > self.enough.copies:
                return DigestsTold(counter, digests, present[self.enough.node].rows)
        return None

    def why_never(self) -> str:
        """Return why the partition can never be judged; empty if it may be."""
        if self.idle_lwm is None:
            return ""
        moved = [each for each in self._last.items() if each[1].lwm != self.idle_lwm]
        if not moved:
            return ""
        places = ", ".join(f"{node} at LWM {answer.lwm}" for node, answer in moved)
        return (
            f"partition {self.partition}: updates came while digests were read ({places}; all were"
            f" at {self.idle_lwm})"
        )

    def why_open(self) -> str:
        """Return why the partition cannot be judged yet, in one sentence."""
        reason = self._why_not_comparable()
        if not reason:
            places = ", ".join(f"{node} at {self._last[node].lwm}" for node in self.nodes)
            reason = (
                f"no counter at which every copy told its digest (LWM of {places}; asked for"
                f" {self.mark or self.idle_lwm})"
            )
        return f"partition {self.partition}: {reason}"

    def _why_not_comparable(self) -> str:
        for node in self.nodes:
            answer = self._last.get(node)
            if answer is None:
                return f"{node} told no digest"
            if not answer.adopted:
                return f"{node} has not adopted term {answer.term} yet: the copy is being repaired"
        first = self._last[self.nodes[0]]
        for node in self.nodes[1:]:
            if self._last[node].term != first.term:
                return (
                    f"{self.nodes[0]} is in term {first.term}, {node} in {self._last[node].term}:"
                    " its primary is being activated"
                )
        return ""

    def _present(self) -> dict[str, CopyDigest]:
        """Return the last answers of the copies that have adopted the highest term."""
        term = max((answer.term for answer in self._last.values()), default=0)
        return {
            node: answer
            for node, answer in self._last.items()
            if answer.adopted and answer.term == term
        }

    def _set_mark(self) -> None:
        present = self._present()
        if not present:
            return
        highest = max(answer.lwm for answer in present.values())
        advanced = highest - self._highest if self._highest else 0
        self._highest = highest
        missed = any(
            answer.lwm >= self.mark and self.mark not in self._told[node]
            for node, answer in present.items()
        )
        if self.mark and not missed:
            return
        # Far enough ahead that the next question reaches every copy before its LWM passes it.
        self._margin = max(2 * self._margin if self.mark else self._margin, 2 * advanced)
        self.mark = highest + self._margin
