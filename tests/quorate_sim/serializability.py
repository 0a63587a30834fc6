"""Whether transactions that append to lists could have happened one after the other, in real time.

Every item is appended once, so the last state of a list tells the order of its appends, and what a
transaction saw tells where in that order it stands.  From that follows who must come before whom;
so does who ended before another began.  No circle in it: there is an order that explains
everything (strict serializability).
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

Items = tuple[bytes, ...]


class Step(NamedTuple):
    """One list of a transaction: the item that it appends, or None; the list as it saw it, with its
    own item, or None when nobody told it."""

    key: bytes
    item: bytes | None
    seen: Items | None


class Txn(NamedTuple):
    """One transaction, each list at most once.  `end` None: its outcome is unknown."""

    name: str
    start: int
    end: int | None
    steps: tuple[Step, ...]


def problem(transactions: Sequence[Txn], last: Mapping[bytes, Items]) -> str:
    """What no order explains; empty when there is one.  `last`: the lists in the end; what was
    refused is not among `transactions`."""
    owners = {step.item: txn for txn in transactions for step in txn.steps if step.item is not None}
    for key, items in last.items():
        for item in items:
            if item not in owners:
                return f"{key!r} has {item!r}, which nobody appended for good"
            if items.count(item) > 1:
                return f"{key!r} has {item!r} {items.count(item)} times: {owners[item].name}"
    happened = []
    for txn in transactions:
        there = [step.item in last.get(step.key, ()) for step in txn.steps if step.item is not None]
        if (txn.end is not None or any(there)) and not all(there):
            return f"a part of it happened, or nothing though it was answered: {txn.name}"
        if txn.end is not None or any(there):
            happened.append(txn)
    for txn in happened:
        for step in txn.steps:
            if step.seen is not None and step.seen != last.get(step.key, ())[: len(step.seen)]:
                return f"{txn.name} saw {step.seen} of {step.key!r}, which became {last[step.key]}"
            if step.seen is not None and step.item is not None and step.seen[-1:] != (step.item,):
                return f"{txn.name} did not see its own {step.item!r} last: {step.seen}"
    return _circle(happened, last, owners)


def _circle(
    happened: Sequence[Txn], last: Mapping[bytes, Items], owners: Mapping[bytes, Txn]
) -> str:
    after: dict[str, set[str]] = defaultdict(set)
    for items in last.values():
        for one, next_one in pairwise(items):
            after[owners[one].name].add(owners[next_one].name)
    for txn in happened:
        for step in txn.steps:
            if step.item is None and step.seen is not None:
                items, count = last.get(step.key, ()), len(step.seen)
                if count:
                    after[owners[items[count - 1]].name].add(txn.name)
                if count < len(items):
                    after[txn.name].add(owners[items[count]].name)
    _in_real_time(happened, after)
    for name, others in after.items():
        others.discard(name)
    before = dict.fromkeys(after, 0)
    for others in after.values():
        for other in others:
            before[other] = before.get(other, 0) + 1
    free = deque(name for name, count in before.items() if not count)
    while free:
        for other in after.get(free.popleft(), ()):
            before[other] -= 1
            if not before[other]:
                free.append(other)
    left = [name for name, count in before.items() if count and not name.startswith("until ")]
    return f"a circle among {sorted(left)}" if left else ""


def _in_real_time(happened: Sequence[Txn], after: dict[str, set[str]]) -> None:
    """Who ended before another began comes before it: by way of the moments of the ends."""
    ends = sorted((txn.end, txn.name) for txn in happened if txn.end is not None)
    moments = [f"until {end} {name}" for end, name in ends]
    for (_, name), moment in zip(ends, moments, strict=True):
        after[name].add(moment)
    for one, next_one in pairwise(moments):
        after[one].add(next_one)
    at = -1
    for txn in sorted(happened, key=lambda each: each.start):
        while at + 1 < len(ends) and ends[at + 1][0] < txn.start:
            at += 1
        if at >= 0:
            after[moments[at]].add(txn.name)
