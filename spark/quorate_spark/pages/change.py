"""The difference between two runs of a zone's validation."""

from typing import NamedTuple

from quorate_spark.verdict import Verdict


class Change(NamedTuple):
    """Confirmed keys of two runs, each (partition, key), as far as both lists are whole.

    `limits`: why a key that is missing from one list proves nothing; empty if it does.
    """

    new: tuple[tuple[int, str], ...]
    gone: tuple[tuple[int, str], ...]
    same: tuple[tuple[int, str], ...]
    limits: tuple[str, ...]


def change_since(before: Verdict, now: Verdict) -> Change:
    """Return which confirmed keys are new, gone and the same."""
    was, are = _keys(before), _keys(now)
    limits = []
    if before.level != now.level:
        limits.append(f"the last run was at level {before.level}, this one at level {now.level}")
    for run, name in ((before, "the last run"), (now, "this run")):
        if run.confirmed_keys > len(run.key_differences):
            limits.append(
                f"{name} lists {len(run.key_differences):,} of {run.confirmed_keys:,} keys"
            )
        if run.reasons:
            limits.append(f"{name} could not judge everything")
    if before.keys_hashed != now.keys_hashed:
        limits.append("one of the two runs has hashes in place of keys")
    return Change(
        tuple(each for each in are if each not in was),
        tuple(each for each in was if each not in are),
        tuple(each for each in are if each in was),
        tuple(limits),
    )


def _keys(verdict: Verdict) -> dict[tuple[int, str], None]:
    """Return the confirmed keys in the report's order."""
    return {(each.partition, each.key): None for each in verdict.key_differences}
