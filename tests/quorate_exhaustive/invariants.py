"""What holds in every state: whoever would be asked, what clients were told is found again."""

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import NamedTuple

from quorate.facts.errors import InvariantError
from quorate.facts.lineage import EMPTY_LINEAGE, Lineage
from quorate.facts.partition_row import PartitionRow, majority
from quorate.facts.update_counter import kept_under
from quorate.protocol.copies.copy import Copy
from quorate_exhaustive.processes import UID, Disk, Written


class Held(NamedTuple):
    """What one disk holds of the partition: an activation hears this of its copy."""

    lineage: Lineage
    lwm: int
    above: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]


def held_on(disk: Disk) -> Held:
    """What a process that started over this disk would report."""
    storage = disk.zones.get(UID)
    if storage is None:
        return Held(EMPTY_LINEAGE, 0, ())
    copy = Copy(0, storage)
    copy.recover()
    return Held(copy.lineage, copy.lwm, copy.held())


def check_recoverable(row: PartitionRow, held: Mapping[str, Held], told: Iterable[Written]) -> None:
    """I-5: from every majority of the row's voters an activation finds every acknowledged update.

    An activation takes, of those that answer, the lineage with the highest last term, and of each
    what is not divergent against it, up to the first counter that none holds.
    """
    names = row.voter_nodes
    for asked in combinations(names, majority(len(names))):
        _check_found(asked, held, told)


def check_trusted(names: Iterable[str], held: Mapping[str, Held], told: Iterable[Written]) -> None:
    """Each copy of which the master says that it has every acknowledged update has them alone."""
    for name in names:
        _check_found((name,), held, told)


def _check_found(asked: tuple[str, ...], held: Mapping[str, Held], told: Iterable[Written]) -> None:
    answered = sorted(told)
    if not answered:
        return
    present = [held[name] for name in asked]
    lineage = max((copy.lineage for copy in present), key=lambda each: each.last_term)
    union = kept_under(lineage, 0, ())
    for copy in present:
        prefix = copy.lineage.agreed_prefix(lineage, copy.lwm)
        for first, last in kept_under(lineage, prefix, copy.above):
            union.add(first, last)
    top = union.end_of_prefix(0)
    for written in answered:
        if written.counter > top or lineage.is_divergent(written.term, written.counter):
            raise InvariantError(
                f"I-5: {written} was acknowledged; asking {asked} finds 1..{top} of {lineage}"
            )
