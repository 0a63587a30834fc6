"""Which counters and lineages count as agreeing, in flight or differing."""

from dataclasses import replace
from typing import Any

from quorate.facts.lineage import Entry, Lineage
from quorate_spark.comparing.compare_counters import CounterWatch, Settled, Unsettled
from quorate_spark.copies import CopySeen, Reading, absence
from quorate_spark.verdict import CounterDifference
from quorate_spark_fixtures.scripted_agent import ScriptedCopy

WAIT_S = 10.0


def copies(*scripted: ScriptedCopy, incarnation: int = 1) -> list[CopySeen]:
    return [
        CopySeen(
            "127.0.0.1:1", "ABC"[i], f"s{i}", incarnation, replace(c, replica_index=i).state(5)
        )
        for i, c in enumerate(scripted)
    ]


def copy(lwm: int, **fields: Any) -> ScriptedCopy:
    return replace(ScriptedCopy(lwm=lwm), **fields)


def test_copies_at_rest_agree_at_the_first_reading() -> None:
    judged = CounterWatch(5).observe(copies(copy(9), copy(9), copy(9)), 0.0)

    assert isinstance(judged, Settled)
    assert (judged.settled_upto, judged.target) == (9, 9)


def test_a_copy_that_reaches_what_was_known_at_first_agrees_however_far_others_are_by_then() -> (
    None
):
    watch = CounterWatch(5)

    first = watch.observe(copies(copy(100), copy(90)), 0.0)
    second = watch.observe(copies(copy(150), copy(100)), 1.0)

    assert isinstance(first, Unsettled)
    assert isinstance(second, Settled)
    assert second.settled_upto == 100


def test_a_copy_that_stands_still_below_the_others_differs_and_what_it_lacks_is_named() -> None:
    watch = CounterWatch(5)
    for now_s, primary in ((0.0, 100), (WAIT_S, 120)):
        watch.observe(copies(copy(primary), copy(90, above=((95, 97),))), now_s)

    judged = watch.conclude(WAIT_S)

    assert isinstance(judged, CounterDifference)
    assert judged.what == "lwm"
    assert judged.detail == "B stays at LWM 90 of 100 and lacks 91 to 94, 98 to 100"


def test_a_copy_that_is_still_moving_at_the_end_of_the_wait_cannot_be_told() -> None:
    watch = CounterWatch(5)
    watch.observe(copies(copy(100), copy(10)), 0.0)
    watch.observe(copies(copy(200), copy(60)), WAIT_S)

    judged = watch.conclude(WAIT_S)

    assert isinstance(judged, Unsettled)
    assert "B still catches up (LWM 10, then 60, of 100)" in judged.reason


def test_one_reading_tells_of_no_standstill() -> None:
    watch = CounterWatch(5)
    watch.observe(copies(copy(103), copy(100)), WAIT_S)

    judged = watch.conclude(WAIT_S)

    assert isinstance(judged, Unsettled)
    assert "comparable for less than 10 s" in judged.reason


def test_a_version_that_changed_at_last_begins_a_new_standstill() -> None:
    watch = CounterWatch(5)
    watch.observe(copies(copy(103), copy(100)), 0.0)
    watch.observe(copies(copy(103, version=4), copy(100, version=4)), WAIT_S)

    assert isinstance(watch.conclude(WAIT_S), Unsettled)


def test_counters_that_a_copy_knows_of_and_nobody_holds_differ() -> None:
    watch = CounterWatch(5)
    for now_s in (0.0, WAIT_S):
        watch.observe(copies(copy(90), copy(90, hwm=95)), now_s)

    judged = watch.conclude(WAIT_S)

    assert isinstance(judged, CounterDifference)
    assert judged.what == "hwm"


def test_the_same_counters_in_different_terms_differ() -> None:
    old, new = (
        Lineage(0, 0, (Entry(3, 1), Entry(7, 51))),
        Lineage(0, 0, (Entry(3, 1), Entry(7, 41))),
    )

    judged = CounterWatch(5).observe(
        copies(copy(60, term=7, lineage=old), copy(60, term=7, lineage=new)), 0.0
    )

    assert isinstance(judged, CounterDifference)
    assert judged.what == "lineage"
    assert "agree up to counter 40 only" in judged.detail


def test_lineages_folded_at_different_counters_agree() -> None:
    whole = Lineage(0, 0, (Entry(3, 1), Entry(7, 41)))

    judged = CounterWatch(5).observe(
        copies(copy(60, term=7, lineage=whole), copy(60, term=7, lineage=whole.folded(60))), 0.0
    )

    assert isinstance(judged, Settled)


def test_a_new_term_sets_a_new_target() -> None:
    watch = CounterWatch(5)
    watch.observe(copies(copy(100), copy(90)), 0.0)
    new = Lineage(0, 0, (Entry(3, 1), Entry(8, 91)))

    judged = watch.observe(
        copies(copy(92, version=8, term=8, lineage=new), copy(92, version=8, term=8, lineage=new)),
        1.0,
    )

    assert isinstance(judged, Settled)
    assert judged.target == 92


def test_nothing_is_said_while_ownership_changes() -> None:
    for changing in (
        copies(copy(9), copy(9, version=4)),
        copies(copy(9), copy(9, term=4)),
        copies(copy(9), copy(9, adopted=False)),
        copies(copy(9), copy(9))[1:],
        [],
    ):
        watch = CounterWatch(5)

        watch.observe(changing, 0.0)

        assert isinstance(watch.conclude(WAIT_S), Unsettled)


def test_a_restarted_agent_is_measured_from_its_restart() -> None:
    watch = CounterWatch(5)
    watch.observe(copies(copy(100), copy(100, hwm=130)), 0.0)

    judged = watch.observe(copies(copy(100), copy(100), incarnation=2), 1.0)

    assert isinstance(judged, Settled)


def test_copies_that_are_nowhere_are_named() -> None:
    whole = {p: tuple(copies(copy(1), copy(1))) for p in range(4)}

    def missing(owned: dict[int, tuple[CopySeen, ...]], partitions: int, replicas: int) -> str:
        return absence(Reading(owned, (), ("A", "B")), "z", partitions, replicas)

    assert missing(whole, 4, 2) == ""
    assert missing(whole, 0, 0) == ""
    assert "no agent asked (A, B) owns a copy of zone z" in missing({}, 0, 0)
    assert "4 partitions (4, 5, 6, 7)" in missing(whole, 8, 0)
    assert "1 partitions (2)" in missing({p: c for p, c in whole.items() if p != 2}, 0, 0)
    assert "not a number a zone can have" in missing(dict.fromkeys(range(3), whole[0]), 0, 0)
    assert "fewer than 3 copies (partition 0: A, B)" in missing(whole, 4, 3)
