"""Which nodes may hold a zone's copies follows from what happened, how long ago, and two times."""

import pytest

from quorate.facts.topology import Happening
from quorate.facts.zone import NEVER_MS, DataNodes
from quorate.planning.target.data_nodes import (
    Member,
    Timer,
    TimerKind,
    chosen_anew,
    first_data_nodes,
    settle,
)

AB = DataNodes(("A", "B"), 2)


def here(name: str, revision: int = 1, age_ms: int = 10**6, *, is_voter: bool = False) -> Member:
    return Member(name, True, is_voter, Happening(revision, age_ms))


def away(name: str, revision: int, age_ms: int, *, is_voter: bool = True) -> Member:
    return Member(name, False, is_voter, Happening(revision, age_ms))


def test_first_are_those_that_are_there_or_hold_copies() -> None:
    members = [here("B", 5), here("A"), away("C", 3, 1), away("D", 4, 1, is_voter=False)]

    assert first_data_nodes(members) == DataNodes(("A", "B", "C"), 5)
    known = DataNodes(("A", "C"), 4)
    assert chosen_anew(known, members, "region", "") == DataNodes(("A", "B", "C"), 5, "region")


@pytest.mark.parametrize(("age_ms", "left_ms"), [(0, 5_000), (4_999, 1), (5_000, 0), (9_000, 0)])
def test_a_joiner_waits_for_the_whole_time(age_ms: int, left_ms: int) -> None:
    nodes, timers = settle(AB, [here("A"), here("B"), here("C", 3, age_ms)], 5_000, NEVER_MS)

    if left_ms:
        assert nodes == AB
        assert timers == (Timer(TimerKind.SCALE_UP, ("C",), left_ms),)
    else:
        assert nodes == DataNodes(("A", "B", "C"), 3)
        assert timers == ()


def test_a_later_join_starts_the_time_again_and_both_enter_in_one_step() -> None:
    members = [here("A"), here("B"), here("C", 3, 6_000), here("D", 4, 1_000)]
    nodes, timers = settle(AB, members, 5_000, NEVER_MS)
    assert nodes == AB
    assert timers == (Timer(TimerKind.SCALE_UP, ("C", "D"), 4_000),)

    members = [here("A"), here("B"), here("C", 3, 10_000), here("D", 4, 5_000)]
    nodes, timers = settle(AB, members, 5_000, NEVER_MS)
    assert nodes == DataNodes(("A", "B", "C", "D"), 4)
    assert timers == ()


def test_who_is_a_data_node_already_does_not_start_a_timer_again() -> None:
    """B was restarted just now: that says nothing of D, nor of C, which is gone."""
    known = DataNodes(("A", "B", "C"), 4)
    members = [here("A"), here("B", 6, 0), away("C", 4, 60), here("D", 5, 5_000)]

    assert settle(known, members, 5_000, 60)[0].nodes == ("A", "B", "D")


def test_joins_and_leaves_do_not_wait_for_each_other() -> None:
    members = [here("A"), away("B", 4, 50), here("C", 3, 5_000)]
    nodes, timers = settle(AB, members, 5_000, 60)

    assert nodes.nodes == ("A", "B", "C")
    assert timers == (Timer(TimerKind.SCALE_DOWN, ("B",), 10),)


def test_who_is_back_in_time_remains_one() -> None:
    members = [here("A"), here("B", 5, 10, is_voter=True)]

    assert settle(AB, members, NEVER_MS, 60) == (AB, ())


def test_who_is_back_too_late_waits_like_a_newcomer_unless_it_still_holds_copies() -> None:
    nodes, _ = settle(AB, [here("A"), away("B", 4, 60)], NEVER_MS, 60)
    assert nodes == DataNodes(("A",), 4)

    emptied = here("B", 5, 10)
    nodes, timers = settle(nodes, [here("A"), emptied], 100, 60)
    assert nodes.nodes == ("A",)
    assert timers == (Timer(TimerKind.SCALE_UP, ("B",), 90),)

    again, _ = settle(nodes, [here("A"), emptied._replace(is_voter=True)], 100, 60)
    assert again.nodes == ("A", "B")


def test_never_is_said_and_does_not_fire() -> None:
    long_ago = 10**15
    members = [here("A"), away("B", 4, long_ago), here("C", 3, long_ago)]
    nodes, timers = settle(AB, members, NEVER_MS, NEVER_MS)

    assert nodes == AB
    assert [(timer.kind, timer.nodes, timer.is_set) for timer in timers] == [
        (TimerKind.SCALE_UP, ("C",), False),
        (TimerKind.SCALE_DOWN, ("B",), False),
    ]


def test_who_is_not_registered_or_does_not_fit_is_no_data_node() -> None:
    assert settle(AB, [here("A")], 0, NEVER_MS)[0].nodes == ("A",)
    unfit = here("B")._replace(fits=False)
    assert settle(AB, [here("A"), unfit], 0, NEVER_MS)[0].nodes == ("A",)
