"""Finds the copies that the others out-vote, and the copies from which their rows may be taken.

Pure.  If a majority of the expected copies agrees, it is taken for right, and a copy that differs
from it is out-voted.  Without a majority it cannot be known which copy is right.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from quorate.facts.partition_row import majority
from quorate_spark.verdict import DigestDifference, KeyDifference, OutvotedCopy

T = TypeVar("T")


class Votes(msgspec.Struct, frozen=True):
    """The `outvoted` copies, and the `undecided` partitions, in which no majority agrees."""

    outvoted: tuple[OutvotedCopy, ...] = ()
    undecided: tuple[int, ...] = ()


def votes_by_digest(differences: Iterable[DigestDifference], replicas: int) -> Votes:
    """Judge by the digests of whole copies, only if a key is confirmed to differ.

    `replicas`: how many copies there should be; 0: as many as answered.
    """
    outvoted: list[OutvotedCopy] = []
    undecided: list[int] = []
    for difference in differences:
        if not difference.confirmed:
            continue
        told = {copy.node: copy.digest for copy in difference.copies}
        agreeing = _agreeing(told, replicas)
        if not agreeing:
            undecided.append(difference.partition)
        outvoted += [
            OutvotedCopy(difference.partition, node, agreeing)
            for node in told
            if agreeing and node not in agreeing
        ]
    return Votes(tuple(outvoted), tuple(undecided))


def votes_by_rows(differences: Sequence[KeyDifference], replicas: int) -> Votes:
    """Judge key by key.

    A copy is out-voted if it is out-voted at one key; rows may be taken from copies that are
    out-voted at none.
    """
    by_partition: dict[int, list[KeyDifference]] = {}
    for difference in differences:
        by_partition.setdefault(difference.partition, []).append(difference)
    outvoted: list[OutvotedCopy] = []
    undecided: list[int] = []
    for partition, found in sorted(by_partition.items()):
        nodes = dict.fromkeys(copy.node for difference in found for copy in difference.copies)
        wrong: dict[str, None] = {}
        for difference in found:
            rows = {
                copy.node: msgspec.structs.replace(copy, node="", replica_index=0)
                for copy in difference.copies
            }
            agreeing = _agreeing(rows, replicas)
            if not agreeing:
                wrong = nodes
                break
            wrong |= dict.fromkeys(node for node in rows if node not in agreeing)
        good = tuple(node for node in nodes if node not in wrong)
        if not good:
            undecided.append(partition)
        outvoted += [OutvotedCopy(partition, node, good) for node in wrong if good]
    return Votes(tuple(outvoted), tuple(undecided))


def _agreeing(told: Mapping[str, T], replicas: int) -> tuple[str, ...]:
    """Return the nodes that agree as a majority of `replicas`; empty if there is no majority."""
    groups: dict[T, list[str]] = {}
    for node, what in told.items():
        groups.setdefault(what, []).append(node)
    largest = max(groups.values(), key=len, default=[])
    return tuple(largest) if len(largest) >= majority(max(replicas, len(told))) else ()
