"""From whose copies a refill takes rows, and when it is refused, with what else is needed."""

import pytest

from quorate_cli.commands.refill import (
    Differing,
    Digests,
    DigestTold,
    Outvoted,
    Verdict,
    choose_suppliers,
)
from quorate_cli.terminal.problem import Problem

DIFFERING = Differing(
    3, (DigestTold("a", "x" * 32), DigestTold("b", "y" * 32), DigestTold("c", "y" * 32)), ("key",)
)
OUTVOTED = Verdict(outvoted=(Outvoted(3, "a", ("b", "c")),), digests=Digests((DIFFERING,)))


def test_those_that_agree_supply() -> None:
    assert choose_suppliers(OUTVOTED, "z", 3, "a", []) == ("b", "c")
    assert choose_suppliers(OUTVOTED, "z", 3, "a", ["c"]) == ("c",)


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
