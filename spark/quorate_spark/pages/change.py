"""The difference between two runs of a zone's validation, and which of them are of one zone.

A zone that was deleted and created again under the same name has another uid.
"""

from collections.abc import Sequence
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


def last_of_zone(earlier: Sequence[Verdict], now: Verdict) -> Verdict | None:
    """Return the latest of the earlier runs that is of the zone of `now`; None if there is none.

    Runs without a uid are taken for those of one zone, up to one that has a uid.
    """
    for run in reversed(earlier):
        if run.zone_uid == now.zone_uid:
            return run
        if run.zone_uid:
            return None
    return None


def new_zones(runs: Sequence[Verdict]) -> list[int]:
    """Return the indexes of the runs with which another zone of the name begins."""
    found, uid = [], ""
    for index, run in enumerate(runs):
        if uid and run.zone_uid not in ("", uid):
            found.append(index)
        uid = run.zone_uid or uid
    return found


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
