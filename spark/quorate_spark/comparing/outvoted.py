"""Which copies the others out-vote, and from whose copies their rows may be taken.

Pure.  What a majority of the copies that there should be agrees on is taken for right: a copy that
tells something else is out-voted.  Where no majority agrees nobody can know which copy is right.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from quorate.facts.partition_row import majority
from quorate_spark.verdict import DigestDifference, KeyDifference, OutvotedCopy

T = TypeVar("T")


class Votes(msgspec.Struct, frozen=True):
    """`outvoted` copies, and the `undecided` partitions, of which no majority agrees."""

    outvoted: tuple[OutvotedCopy, ...] = ()
    undecided: tuple[int, ...] = ()


def votes_by_digest(differences: Iterable[DigestDifference], replicas: int) -> Votes:
    """Judged by the digests of whole copies; only where a key is confirmed to differ.  `replicas`:
    how many copies there should be; 0: as many as told."""
    outvoted: list[OutvotedCopy] = []
    undecided: list[int] = []
    for difference in differences:
        if not difference.keys:
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
    """Judged key by key: a copy is out-voted when it is at one of them, and rows may be taken from
    those that are at none."""
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
    """The nodes that told what a majority of `replicas` told; empty when there is none."""
    groups: dict[T, list[str]] = {}
    for node, what in told.items():
        groups.setdefault(what, []).append(node)
    largest = max(groups.values(), key=len, default=[])
    return tuple(largest) if len(largest) >= majority(max(replicas, len(told))) else ()
