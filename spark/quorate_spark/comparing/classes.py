"""Counts differences by class, as a verdict has them."""

from collections import Counter
from collections.abc import Iterable

from quorate.wire.jobs.validation_result import DifferenceClass
from quorate_spark.verdict import CounterDifference, KeyDifference

_OF_COUNTERS = {
    "lwm": DifferenceClass.COUNTER,
    "hwm": DifferenceClass.GAP,
    "lineage": DifferenceClass.LINEAGE,
}
_OF_KEYS = {
    "missing": DifferenceClass.MISSING,
    "tombstone": DifferenceClass.MISSING,
    "counter": DifferenceClass.KEY_COUNTER,
    "term": DifferenceClass.KEY_COUNTER,
    "hwm": DifferenceClass.KEY_COUNTER,
    "expires_at": DifferenceClass.EXPIRY,
}


def count_classes(
    partitions: Iterable[CounterDifference], keys: Iterable[KeyDifference], skipped: int
) -> dict[str, int]:
    """Return the counts above 0, by class; a key counts once in each class it belongs to.

    `skipped`: how many partitions could not be judged.
    """
    found = Counter[DifferenceClass]()
    found.update(_OF_COUNTERS.get(each.what, DifferenceClass.OTHER) for each in partitions)
    for key in keys:
        found.update({_class_of_key(what, key) for what in key.what})
    found[DifferenceClass.SKIPPED] = skipped
    return {each.value: found[each] for each in DifferenceClass if found[each]}


def _class_of_key(what: str, key: KeyDifference) -> DifferenceClass:
    if what != "value":
        return _OF_KEYS.get(what, DifferenceClass.OTHER)
    lengths = {copy.value_bytes for copy in key.copies if copy.present and not copy.tombstone}
    return DifferenceClass.SIZE if len(lengths) > 1 else DifferenceClass.VALUE
