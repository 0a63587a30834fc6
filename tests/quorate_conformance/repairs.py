"""Judges a case about copies that differ: what a validation says, what a repair decides.

Ours departs where the reference's answer depends on the order of reading or on an arbitrary tie:
the key is irreparable then, and the reason is given.  Each decision is judged for every order.
"""

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from quorate.facts.errors import InvariantError
from quorate.facts.update_counter import UpdateCounter, check_primary_counter
from quorate.protocol.copies.totals import row_digest
from quorate.protocol.storage import Row
from quorate_conformance.case_files import Case
from quorate_spark.comparing.compare_counters import CounterWatch, Settled, Unsettled
from quorate_spark.comparing.compare_digests import DigestsTold
from quorate_spark.comparing.compare_rows import (
    Baseline,
    KeyState,
    RowSeen,
    compare_key,
    digest,
)
from quorate_spark.copies import CopySeen
from quorate_spark.repairing.decide import Action, Strategy, decide
from quorate_spark.verdict import CopyRow, CounterDifference, KeyDifference
from quorate_spark_fixtures.scripted_agent import ScriptedCopy

WORDS = "described in words: the cases of repair_cases run the strategies"


def judge_of(case: Case) -> Callable[[Case], None] | str:
    """The judge, or why there is none."""
    if case.section == "repair_cases":
        return _repair
    if case.section == "idle_verify":
        return _collision if "left" in case.facts else _verdict
    return WORDS


def _repair(case: Case) -> None:
    copies, expect = case.facts["copies"], case.facts["expect"]
    seen = [
        RowSeen(node, copy["version"], 1, 0, digest(copy["value"].encode()))
        for node, copy in copies.items()
        if copy["value"] is not None
    ]
    judged = compare_key(seen, Baseline(0, tuple(copies), 100))
    assert (judged.state is KeyState.AGREE) == expect["consistent"]
    if expect["consistent"]:
        return
    rows = [
        _row(node, node == case.facts["primary"], copy["value"], copy["version"])
        for node, copy in copies.items()
    ]
    for order in permutations(rows):
        difference = KeyDifference(0, "k", b"k".hex(), judged.what, order)
        for strategy in Strategy:
            assert _told(difference, strategy, copies) == _expected(expect[strategy.value])


def _row(node: str, is_primary: bool, value: str | None, version: int | None) -> CopyRow:
    index = 0 if is_primary else 1 + int(node[1:])
    if value is None or version is None:
        return CopyRow(node, index, present=False)
    told = digest(value.encode()).hex()
    return CopyRow(node, index, True, version, 1, 0, False, len(value), told)


def _told(difference: KeyDifference, strategy: Strategy, copies: dict[str, Any]) -> str | None:
    """The decision in the words of the cases: a value, None for no value, or irreparable."""
    decision = decide(difference, strategy)
    assert decision.reason
    if decision.action is Action.IRREPARABLE:
        return "irreparable"
    if decision.row is None:
        return None
    value = copies[decision.row.node]["value"]
    assert {copies[node]["value"] for node in decision.right} == {value}
    return str(value)


def _expected(word: str | None) -> str | None:
    return word.partition(" ")[0] if word is not None else None


def _collision(case: Case) -> None:
    """The digests differ where the copies do, whether versions stay with keys or move along."""
    left, right = case.facts["left"], case.facts["right"]
    versions = {value: number for number, value in enumerate(left.values(), 1)}
    for of_key in (True, False):

        def total(rows: dict[str, str], of_key: bool = of_key) -> int:
            digests = [
                row_digest(
                    key.encode(),
                    Row(int(key) if of_key else versions.get(value, 1), 1, 0, value.encode()),
                )
                for key, value in rows.items()
            ]
            return sum(digests) % (1 << 128)

        assert total(left) != total(right)
        assert total(left) == total(dict(reversed(left.items())))


def _verdict(case: Case) -> None:
    if "primary" in case.facts:
        primary = case.facts["primary"]
        with pytest.raises(InvariantError, match="HWM 7 below LWM 9"):
            check_primary_counter(UpdateCounter(primary["lwm"], primary["hwm"]))
        return
    assert _found(case.facts["copies"]) == case.facts["expect"]


def _found(copies: list[dict[str, Any]]) -> list[str]:
    """What a validation finds in the copies, in the words of the cases."""
    watch = CounterWatch(5)
    for now_s in (0.0, 10.0):
        watch.observe([_seen(index, copy) for index, copy in enumerate(copies)], now_s)
    judged = watch.conclude(10.0)
    if isinstance(judged, Unsettled):
        assert "has not adopted" in judged.reason
        return ["skipped MOVING; result not full"]
    if isinstance(judged, CounterDifference):
        return ["counter"]
    assert isinstance(judged, Settled)
    digests = tuple(copy.get("hash", 0).to_bytes(16) for copy in copies)
    return [] if DigestsTold(judged.target, digests, 0).agree else ["hash"]


def _seen(index: int, facts: dict[str, Any]) -> CopySeen:
    copy = ScriptedCopy(index, lwm=facts.get("lwm", 0), adopted="state" not in facts)
    return CopySeen("127.0.0.1:1", f"n{index}", f"s{index}", 1, copy.state(5))
