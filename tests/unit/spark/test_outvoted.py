"""Which copies are out-voted, which may supply, and when nobody can tell."""

from io import StringIO

from rich.console import Console

from quorate_spark.comparing.outvoted import votes_by_digest, votes_by_rows
from quorate_spark.report import print_report
from quorate_spark.verdict import (
    CopyDigestTold,
    CopyRow,
    DigestDifference,
    DigestFigures,
    KeyDifference,
    Level,
    Outcome,
    OutvotedCopy,
    Verdict,
)


def by_digest(partition: int, **digests: str) -> DigestDifference:
    told = tuple(CopyDigestTold(node, digest) for node, digest in digests.items())
    return DigestDifference(partition, 9, told, (1,), 3, confirmed=True)


def by_rows(partition: int, key: str, **values: str) -> KeyDifference:
    copies = tuple(
        CopyRow(node, index, True, 5, 2, 0, False, 3, value)
        for index, (node, value) in enumerate(values.items())
    )
    return KeyDifference(partition, key, key.encode().hex(), ("value",), copies)


def test_the_copy_whose_digest_two_of_three_contradict_is_out_voted() -> None:
    votes = votes_by_digest([by_digest(3, a="x", b="y", c="y")], 3)
    assert votes.outvoted == (OutvotedCopy(3, "a", ("b", "c")),)
    assert votes.undecided == ()


def test_no_majority_is_undecided() -> None:
    assert votes_by_digest([by_digest(3, a="x", b="y", c="z")], 3).undecided == (3,)
    assert votes_by_digest([by_digest(3, a="x", b="y")], 2).undecided == (3,)


def test_copies_that_are_away_count_for_the_majority_that_is_needed() -> None:
    """One of two that are there may be the last good one: the third is away."""
    votes = votes_by_digest([by_digest(3, a="x", b="y")], 3)
    assert (votes.outvoted, votes.undecided) == ((), (3,))
    assert votes_by_digest([by_digest(3, a="x", b="y", c="y")], 5).undecided == (3,)


def test_digests_that_no_key_confirms_decide_nothing() -> None:
    unconfirmed = DigestDifference(3, 9, by_digest(3, a="x", b="y", c="y").copies, (), 0)
    votes = votes_by_digest([unconfirmed], 3)
    assert (votes.outvoted, votes.undecided) == ((), ())


def test_by_rows_only_copies_that_are_right_everywhere_may_supply() -> None:
    one, two = by_rows(3, "k", a="x", b="y", c="y"), by_rows(3, "l", a="y", b="x", c="y")
    votes = votes_by_rows([one, two], 3)
    assert votes.outvoted == (OutvotedCopy(3, "a", ("c",)), OutvotedCopy(3, "b", ("c",)))


def test_by_rows_one_key_without_majority_leaves_the_partition_undecided() -> None:
    one, two = by_rows(3, "k", a="x", b="y", c="y"), by_rows(3, "l", a="x", b="y", c="z")
    votes = votes_by_rows([one, two], 3)
    assert (votes.outvoted, votes.undecided) == ((), (3,))


def test_by_rows_copies_that_are_all_wrong_somewhere_leave_nobody_to_supply() -> None:
    wrong = [
        by_rows(3, "k", a="x", b="y", c="y"),
        by_rows(3, "l", a="y", b="x", c="y"),
        by_rows(3, "m", a="y", b="y", c="x"),
    ]
    assert votes_by_rows(wrong, 3).undecided == (3,)


def told(verdict: Verdict, width: int = 40) -> list[str]:
    console = Console(file=StringIO(), width=width, color_system=None)
    print_report(verdict, console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def test_the_report_ends_with_one_unbroken_command_for_each_copy() -> None:
    outvoted = (OutvotedCopy(3, "agent-1", ("agent-2", "agent-3")),)
    verdict = Verdict("library", Level.ROWS, Outcome.DIFFER, outvoted=outvoted)
    command = "  quorate debug refill library 3 --agent agent-1"
    assert told(verdict)[-1] == f"{command} --from agent-2 --from agent-3"
    digests = DigestFigures(1, 1, 0, 3, ())
    by_digests = Verdict(
        "library", Level.DIGEST, Outcome.DIFFER, outvoted=outvoted, digests=digests
    )
    assert told(by_digests)[-1] == command


def test_the_report_says_that_keys_are_confirmed_of_which_none_is_listed() -> None:
    difference = by_digest(3, a="x", b="y", c="y")
    figures = DigestFigures(1, 1, 0, 3, (difference,))
    table = "\n".join(told(Verdict("z", Level.DIGEST, Outcome.DIFFER, digests=figures), width=160))
    assert "confirmed, none is listed" in table
