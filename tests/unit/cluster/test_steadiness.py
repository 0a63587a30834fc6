"""Memory that grows is told from memory that is used."""

from quorate_cluster.steadiness import GROWTH_BYTES_MAX, growth

MB = 1_000_000


def test_memory_that_is_reached_once_and_kept_does_not_grow() -> None:
    sizes = [100 * MB, 300 * MB, *[400 * MB] * 10]

    assert growth(sizes) == 0


def test_memory_that_goes_up_all_the_time_grows() -> None:
    sizes = [number * 10 * MB for number in range(40)]

    assert growth(sizes) == 200 * MB - GROWTH_BYTES_MAX


def test_a_single_peak_is_no_growth() -> None:
    sizes = [200 * MB] * 40
    sizes[35] = 900 * MB

    assert growth(sizes) == 0


def test_too_few_looks_say_nothing() -> None:
    assert growth([100 * MB, 900 * MB]) == 0
