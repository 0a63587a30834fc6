"""The judge of the chaos tests must find what is planted, and nothing else."""

from quorate_cluster.history import ABSENT, Outcome, Read, Write, find_violations

OK, REFUSED, UNKNOWN = Outcome.ACKNOWLEDGED, Outcome.REFUSED, Outcome.UNKNOWN


def _write(value: int, start: float, end: float, outcome: Outcome = OK, key: str = "k") -> Write:
    return Write(key, value, start, end, outcome)


def _read(value: int, start: float, end: float, key: str = "k") -> Read:
    return Read(key, value, start, end)


def test_nothing_is_found_in_an_orderly_history() -> None:
    writes = [_write(1, 0, 1), _write(2, 2, 3), _write(1, 0, 1, key="other")]
    reads = [_read(1, 1.5, 1.6), _read(2, 4, 5), _read(1, 4, 5, key="other")]

    assert find_violations(writes, reads) == []


def test_a_read_during_a_write_may_see_either_value() -> None:
    writes = [_write(1, 0, 1), _write(2, 2, 6)]

    assert find_violations(writes, [_read(1, 3, 4)]) == []
    assert find_violations(writes, [_read(2, 3, 4)]) == []


def test_a_write_of_unknown_outcome_may_be_there_or_not() -> None:
    writes = [_write(1, 0, 1), _write(2, 2, 3, UNKNOWN)]

    assert find_violations(writes, [_read(1, 8, 9)]) == []
    assert find_violations(writes, [_read(2, 8, 9)]) == []
    assert find_violations(writes, [_read(1, 4, 5), _read(2, 8, 9)]) == []


def test_an_acknowledged_write_that_is_gone_is_found() -> None:
    writes = [_write(1, 0, 1), _write(2, 2, 3)]

    assert find_violations(writes, [_read(1, 4, 5)]) == [
        "k: read 1 although 2 was acknowledged before"
    ]
    assert find_violations(writes, [_read(ABSENT, 4, 5)]) == [
        "k: absent although 2 was acknowledged before"
    ]


def test_an_acknowledged_write_that_is_gone_is_found_behind_a_refused_one() -> None:
    writes = [_write(1, 0, 1), _write(2, 2, 3, REFUSED)]

    assert find_violations(writes, [_read(1, 4, 5)]) == []
    assert find_violations(writes, [_read(ABSENT, 4, 5)]) == [
        "k: absent although 1 was acknowledged before"
    ]


def test_a_refused_write_that_took_effect_is_found() -> None:
    writes = [_write(1, 0, 1), _write(2, 2, 3, REFUSED)]

    assert find_violations(writes, [_read(2, 4, 5)]) == [
        "k: read 2, whose writer was told it was not done"
    ]


def test_a_value_that_nobody_wrote_is_found() -> None:
    assert find_violations([_write(1, 0, 1)], [_read(7, 4, 5)]) == [
        "k: read 7, which was never written"
    ]


def test_a_value_read_before_it_was_written_is_found() -> None:
    assert find_violations([_write(1, 6, 7)], [_read(1, 4, 5)]) == [
        "k: read 1 before it was written"
    ]


def test_a_read_that_goes_back_behind_another_is_found() -> None:
    writes = [_write(1, 0, 1), _write(2, 2, 9)]
    reads = [_read(2, 3, 4), _read(1, 5, 6)]

    assert find_violations(writes, reads) == ["k: read 1 although 2 was read before"]


def test_a_value_seen_of_an_unknown_write_must_stay() -> None:
    writes = [_write(1, 0, 1), _write(2, 2, 3, UNKNOWN)]
    reads = [_read(2, 4, 5), _read(1, 6, 7)]

    assert find_violations(writes, reads) == ["k: read 1 although 2 was read before"]


def test_reads_that_overlap_are_not_ordered() -> None:
    writes = [_write(1, 0, 1), _write(2, 2, 9)]
    reads = [_read(2, 3, 5), _read(1, 4, 6)]

    assert find_violations(writes, reads) == []


def test_a_writer_that_goes_on_after_an_unknown_outcome_is_found() -> None:
    writes = [_write(1, 0, 1, UNKNOWN), _write(2, 2, 3)]

    assert find_violations(writes, []) == ["k: written again after a write of unknown outcome"]
