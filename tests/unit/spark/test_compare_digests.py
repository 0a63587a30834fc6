"""When copies have told enough to compare their digests, and when a mark must be set."""

from quorate.protocol.messages.tools import CopyDigest
from quorate_spark.comparing.compare_digests import MARGIN_MIN, DigestsTold, DigestWatch, Majority

NODES = ("a", "b")


def answer(
    lwm: int,
    digest: bytes = b"",
    mark: tuple[int, bytes] = (0, b""),
    term: int = 3,
    adopted: bool = True,
) -> CopyDigest:
    return CopyDigest(0, term, adopted, lwm, 7, digest or b"at %d" % lwm, *mark)


def marked(lwm: int, mark: int, **fields: int) -> CopyDigest:
    return answer(lwm, mark=(mark, b"at %d" % mark), **fields)


def observed(watch: DigestWatch, *answers: CopyDigest) -> tuple[int, bool] | None:
    for node, told in zip(watch.nodes, answers, strict=True):
        watch.take_in(node, told)
    told = watch.judge()
    return None if told is None else (told.counter, told.agree)


def test_equal_lwms_are_compared_at_once() -> None:
    assert observed(DigestWatch(0, NODES), answer(5), answer(5)) == (5, True)
    assert observed(DigestWatch(0, NODES), answer(5), answer(5, b"other")) == (5, False)


def test_equal_counters_of_different_moments_are_compared() -> None:
    watch = DigestWatch(0, NODES)

    assert observed(watch, answer(9), answer(5)) is None
    assert observed(watch, answer(20), answer(9, b"other")) == (9, False)


def test_a_mark_is_set_a_little_above_the_highest_lwm_and_told_by_both() -> None:
    watch = DigestWatch(0, NODES)

    assert observed(watch, answer(9), answer(5)) is None
    assert watch.mark == 9 + MARGIN_MIN
    assert observed(watch, answer(10), answer(6)) is None
    assert observed(watch, marked(15, 13), answer(11)) is None
    assert watch.mark == 13
    assert observed(watch, marked(18, 13), marked(17, 13)) == (13, True)


def test_a_mark_that_was_passed_before_it_was_asked_for_moves_further_ahead() -> None:
    watch = DigestWatch(0, NODES)

    assert observed(watch, answer(9), answer(5)) is None
    assert observed(watch, answer(109), answer(105)) is None
    assert watch.mark == 109 + 200
    assert observed(watch, answer(209), answer(205)) is None
    assert watch.mark == 309
    assert observed(watch, marked(310, 309), marked(311, 309)) == (309, True)


def test_a_mark_of_somebody_elses_question_counts_for_nothing() -> None:
    watch = DigestWatch(0, NODES)
    theirs = answer(20, mark=(13, b"before updates were undone"))

    assert observed(watch, answer(9), answer(5)) is None
    assert watch.mark == 13
    assert observed(watch, theirs, answer(6)) is None
    assert watch.mark > 20


def test_what_was_told_in_an_earlier_term_is_forgotten() -> None:
    watch = DigestWatch(0, NODES)

    assert observed(watch, answer(9), answer(5)) is None
    assert observed(watch, answer(12, term=4), answer(9, b"other")) is None
    assert "a is in term 4, b in 3" in watch.why_open()
    assert observed(watch, answer(14, term=4), answer(12, b"undone", term=4)) == (12, False)
    assert observed(watch, answer(14, term=4), answer(9, term=4, adopted=False)) is None


def test_a_copy_that_went_back_is_compared_by_what_it_told_since() -> None:
    watch = DigestWatch(0, NODES)

    assert observed(watch, answer(9, b"never committed"), answer(5)) is None
    assert observed(watch, answer(7), answer(9)) is None
    assert observed(watch, answer(9), answer(9)) == (9, True)


def test_a_copy_that_told_nothing_is_named() -> None:
    watch = DigestWatch(0, NODES)
    assert observed(watch, answer(9), answer(5)) is None
    watch.forget("b")

    assert watch.judge() is None
    assert watch.why_open() == "partition 0: b told no digest"


def of_three(node: str, *answers: CopyDigest, copies: int = 3) -> DigestsTold | None:
    """Digests told by a majority, to which `node`, whose rows are read, belongs."""
    watch = DigestWatch(0, ("a", "b", "c"), enough=Majority(copies, node))
    assert observed(watch, *answers) is None
    return watch.judge_majority()


def test_a_copy_that_is_behind_is_left_out_of_a_majority() -> None:
    told = DigestsTold(9, (b"at 9", b"at 9"), 7)
    repaired = answer(9, term=3, adopted=False)
    assert of_three("b", answer(9), answer(9), answer(5)) == told
    assert of_three("a", answer(9), answer(9), repaired) == told
    assert of_three("c", answer(9), answer(9), answer(5)) is None, "its rows are read"
    assert of_three("c", answer(9), answer(9), repaired) is None, "its rows are read"


def test_less_than_a_majority_is_not_enough() -> None:
    assert of_three("a", answer(9), answer(9), answer(5), copies=5) is None
    assert of_three("a", answer(9), answer(9, b"other"), answer(5)) is None
    assert of_three("a", answer(9), answer(8), answer(5)) is None


def test_a_majority_of_an_earlier_term_is_none() -> None:
    """The primary of the new term may have closed counters that the others still tell."""
    activated = answer(9, term=4, adopted=False)
    assert of_three("b", activated, answer(9), answer(9)) is None
    assert of_three("b", answer(9, term=4), answer(9), answer(9)) is None


def test_a_mark_is_set_for_a_majority_while_a_copy_is_repaired() -> None:
    watch = DigestWatch(0, ("a", "b", "c"), enough=Majority(3, "b"))
    repaired = answer(50, adopted=False)

    assert observed(watch, answer(9), answer(5), repaired) is None
    assert watch.mark == 9 + MARGIN_MIN
    assert observed(watch, answer(10), answer(6), repaired) is None
    assert observed(watch, marked(15, 13), marked(14, 13), repaired) is None
    assert watch.mark == 13
    assert watch.judge_majority() == DigestsTold(13, (b"at 13", b"at 13"), 7)


def test_all_copies_must_tell_if_no_majority_is_enough() -> None:
    watch = DigestWatch(0, ("a", "b", "c"))

    assert observed(watch, answer(9), answer(9), answer(5)) is None
    assert watch.judge_majority() is None
