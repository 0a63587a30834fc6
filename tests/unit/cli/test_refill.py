"""From whose copies a refill takes rows, and when it is refused, with what else is needed."""

from pathlib import Path

import msgspec
import pytest

from quorate.protocol.messages.tools import Refill, Refilling
from quorate_cli.commands import refill
from quorate_cli.commands.refill import (
    CountersDiffering,
    Differing,
    Digests,
    DigestTold,
    Outvoted,
    Verdict,
    choose_suppliers,
    until_done,
)
from quorate_cli.copies.agent_question import Asked, Unreached
from quorate_cli.terminal.problem import Problem

DIFFERING = Differing(
    3, (DigestTold("a", "x" * 32), DigestTold("b", "y" * 32), DigestTold("c", "y" * 32)), True
)
OTHER = msgspec.structs.replace(DIFFERING, partition=1)
CUT = Verdict(outvoted=(Outvoted(1, "a", ("b", "c")),), digests=Digests((OTHER,), 2))
OUTVOTED = Verdict(outvoted=(Outvoted(3, "a", ("b", "c")),), digests=Digests((DIFFERING,)))


def test_those_that_agree_supply() -> None:
    assert choose_suppliers(OUTVOTED, "z", 3, "a", []) == ("b", "c")
    assert choose_suppliers(OUTVOTED, "z", 3, "a", ["c"]) == ("c",)


def test_partitions_before_the_last_that_is_listed_agree() -> None:
    assert choose_suppliers(CUT, "z", 0, "a", ["b"]) == ("b",)


def test_a_copy_is_out_voted_although_no_key_of_it_is_listed() -> None:
    """The copy that the others out-vote may not supply, either."""
    assert DIFFERING.keys == ()
    with pytest.raises(Problem, match="the copy of b is not out-voted"):
        choose_suppliers(OUTVOTED, "z", 3, "b", ["a"])


@pytest.mark.parametrize(
    ("verdict", "agent", "named", "words"),
    [
        (OUTVOTED, "b", [], "the copy of b is not out-voted (a xxxxxxxx, b yyyyyyyy, c yyyyyyyy)"),
        (OUTVOTED, "a", ["a", "c"], "--from a does not name a good copy"),
        (Verdict(digests=Digests((DIFFERING,))), "a", [], "a may have the last good one"),
        (Verdict(digests=Digests((DIFFERING,))), "a", ["b"], "a may have the last good one"),
        (Verdict(), "a", [], "there is nothing to refill"),
        (
            Verdict(("partition 3: b is silent",)),
            "a",
            ["b"],
            "determine which copies are right",
        ),
        (Verdict(("agent at x cannot be reached",)), "a", ["b"], "agent at x cannot be reached"),
        (
            Verdict(counter_differences=(CountersDiffering(3, "b lacks 5..9"),)),
            "a",
            [],
            "its copies' counters differ: b lacks 5..9",
        ),
        (Verdict(differing_partitions=300), "a", ["b"], "0 of 300 partitions whose counters"),
        (CUT, "a", [], "lists 1 of 2 partitions that differ"),
        (CUT, "a", ["b"], "lists 1 of 2 partitions that differ"),
    ],
)
def test_a_copy_that_may_be_the_last_good_one_is_kept(
    verdict: Verdict, agent: str, named: list[str], words: str
) -> None:
    with pytest.raises(Problem) as refused:
        choose_suppliers(verdict, "z", 3, agent, named)
    assert words in str(refused.value)
    assert str(refused.value).startswith("zone z, partition 3: ")


def test_what_level_rows_found_is_taken_from_those_it_named() -> None:
    """Digests agree: the row changed on disk behind its agent.  What is unknown of another
    partition does not matter."""
    assert choose_suppliers(Verdict(("partition 4: silent",)), "z", 3, "a", ["b"]) == ("b",)


def test_counters_that_differ_in_another_partition_do_not_matter() -> None:
    verdict = Verdict(counter_differences=(CountersDiffering(4, "b lacks 5"),))
    verdict = msgspec.structs.replace(verdict, differing_partitions=1)
    assert choose_suppliers(verdict, "z", 3, "a", ["b"]) == ("b",)


def test_digests_that_no_key_confirms_are_no_difference() -> None:
    unconfirmed = msgspec.structs.replace(DIFFERING, confirmed=False)
    verdict = Verdict(digests=Digests((unconfirmed,), 1))
    assert verdict.differing(3) is None


@pytest.mark.parametrize(
    "answer",
    [Unreached("no answer"), Refilling("z", 3, waits_for="the new rows to be durable")],
)
def test_a_refill_that_does_not_end_in_time_may_have_changed_the_copy(
    monkeypatch: pytest.MonkeyPatch, answer: Unreached | Refilling
) -> None:
    def ask_agent(*_arguments: object) -> Refilling:
        if isinstance(answer, Unreached):
            raise answer
        return answer

    monkeypatch.setattr(refill, "ask_agent", ask_agent)
    asked = Asked("127.0.0.1", 1, "main", "a", Path("secret"))

    with pytest.raises(Problem) as late:
        until_done(asked, Refill("z", 3, "token", ("b",)), -1)

    assert "a: not refilled within -1 s (" in str(late.value)
    assert "whether the copy was changed is unknown: the refill may still end" in str(late.value)
