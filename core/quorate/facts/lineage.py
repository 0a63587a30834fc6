"""The lineage of a copy: the term in which each counter of a partition was written.

Source: docs/protocol.md, section 2. A lineage is a list of entries (term, first counter, closed
counters) above a folded base (base term, base counter). An entry *covers* the counters from its
first one on, and those it closed. The term at counter c is that of the last entry that covers c.

An update (t, c) is *divergent* against a lineage if the term at c is not t: because t is not in the
lineage, because a later entry covers c, or because t's own entry does not.
"""

from collections.abc import Collection
from itertools import pairwise

import msgspec

from quorate.facts.errors import InvariantError


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """Term `term` wrote the counters from `first` on, and closed those in `closed` as no-ops."""

    term: int
    first: int
    closed: tuple[tuple[int, int], ...] = ()

    def covers(self, counter: int) -> bool:
        """Return whether this entry decides the term of `counter`, unless a later entry does."""
        return counter >= self.first or any(low <= counter <= high for low, high in self.closed)


class Lineage(msgspec.Struct, frozen=True, array_like=True):
    """`entries` in rising order of term; counters up to `base_counter` end in `base_term`."""

    base_term: int = 0
    base_counter: int = 0
    entries: tuple[Entry, ...] = ()

    @property
    def last_term(self) -> int:
        """Term of the last entry."""
        return self.entries[-1].term if self.entries else self.base_term

    @property
    def last_first(self) -> int:
        """First counter of the last entry."""
        return self.entries[-1].first if self.entries else self.base_counter + 1

    def term_at(self, counter: int) -> int | None:
        """Return the term of `counter`; None below the base, where terms are forgotten."""
        for entry in reversed(self.entries):
            if entry.covers(counter):
                return entry.term
        return self.base_term if counter >= self.base_counter else None

    def is_divergent(self, term: int, counter: int) -> bool:
        """Return whether update (term, counter) is not part of this history."""
        at = self.term_at(counter)
        return term > self.base_term if at is None else at != term

    def edges(self) -> list[int]:
        """Return, in order, the counters where the term may differ from the counter before."""
        bounds = {entry.first for entry in self.entries}
        for entry in self.entries:
            for first, last in entry.closed:
                bounds.update((first, last + 1))
        return sorted(bounds)

    def stretches(self, first: int, last: int) -> list[tuple[int, int]]:
        """Split first..last into inclusive ranges of one term each."""
        cuts = [first, *(edge for edge in self.edges() if first < edge <= last), last + 1]
        return [(low, high - 1) for low, high in pairwise(cuts)]

    def agreed_prefix(self, other: "Lineage", upto: int) -> int:
        """Return the highest m <= upto such that both lineages have the same term at every c <= m.

        Terms below a folded base are unknown, so the result is 0 if the higher base is above
        `upto`.
        """
        low = max(self.base_counter, other.base_counter)
        if low > upto:
            return 0
        if self.term_at(low) != other.term_at(low):
            return 0
        for edge in sorted({*self.edges(), *other.edges()}):
            if edge > upto:
                break
            if edge > low and self.term_at(edge) != other.term_at(edge):
                return edge - 1
        return upto

    def appended(self, entry: Entry) -> "Lineage":
        """Return this lineage with one more entry. InvariantError unless its term is higher.

        The last entries that decide no counter any more are dropped: those that begin at or above
        the new one's first counter and closed none. So terms without updates do not add up.
        """
        if entry.term <= self.last_term and self.entries:
            raise InvariantError(f"term {entry.term} is not above {self.last_term}")
        entries = self.entries
        while entries and entries[-1].first >= entry.first and not entries[-1].closed:
            entries = entries[:-1]
        return Lineage(self.base_term, self.base_counter, (*entries, entry))

    def without_unused(self, counter: int, terms: Collection[int]) -> "Lineage":
        """Return the lineage without its last entries if they wrote nothing that is held.

        Held are the counters up to `counter`, and above it updates of `terms`.
        """
        entries = self.entries
        while entries and entries[-1].first > counter and not entries[-1].closed:
            if entries[-1].term in terms:
                break
            entries = entries[:-1]
        return Lineage(self.base_term, self.base_counter, entries)

    def folded(self, counter: int) -> "Lineage":
        """Return the lineage with the entries that `counter` settles folded into the base.

        All voters hold everything up to `counter`. It settles each entry that is followed by one
        that starts at or below it.
        """
        keep = len(self.entries)
        for index, entry in enumerate(self.entries):
            if entry.first > counter:
                keep = index
                break
        settled = self.entries[: max(keep - 1, 0)]
        if not settled:
            return self
        kept = self.entries[len(settled) :]
        base = kept[0].first - 1
        if base < self.base_counter or any(entry.closed for entry in kept):
            return self
        # Not always the last settled term: that one may have written nothing that survived.
        base_term = Lineage(self.base_term, self.base_counter, settled).term_at(base)
        if base_term is None or any(e.closed and e.term > base_term for e in settled):
            return self
        return Lineage(base_term, base, kept)


EMPTY_LINEAGE = Lineage()
