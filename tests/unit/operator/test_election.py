"""Who may be master: the pure half of the elector, in tables and under random schedules."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate_operator.mastership.election import (
    Election,
    ElectionSettings,
    Look,
    Lost,
    SeenLease,
    Wait,
    Write,
    holds,
    next_step,
    saw,
    scaled,
    wrote,
)

SETTINGS = ElectionSettings(10_000, 7_000, 1_500, 1_500)
NOBODY = SeenLease("", "", 0)
A_HOLDS = SeenLease("5", "a", 10_000)


def candidate(name: str = "b") -> Election:
    return Election(name, SETTINGS)


def test_a_candidate_looks_first() -> None:
    assert next_step(candidate(), 100) == Look(100)


def test_a_lease_that_does_not_exist_is_created() -> None:
    assert next_step(saw(candidate(), NOBODY, 0), 5) == Write("")


def test_a_released_lease_is_taken_at_once() -> None:
    assert next_step(saw(candidate(), SeenLease("9", "", 1_000), 0), 5) == Write("9")


def test_a_held_lease_is_taken_only_after_it_was_seen_unchanged_for_its_whole_length() -> None:
    seen = saw(candidate(), A_HOLDS, 1_000)

    assert next_step(seen, 10_999) == Look(11_000)
    assert next_step(seen, 11_000) == Write("5")


def test_seeing_the_same_revision_again_does_not_restart_the_count() -> None:
    seen = saw(saw(candidate(), A_HOLDS, 1_000), A_HOLDS, 9_000)

    assert next_step(seen, 11_000) == Write("5")


def test_a_renewal_restarts_the_count() -> None:
    seen = saw(saw(candidate(), A_HOLDS, 1_000), SeenLease("6", "a", 10_000), 9_000)

    assert next_step(seen, 11_000) == Look(12_500)


def test_a_lease_of_our_own_that_we_do_not_know_of_is_ours_to_write_again() -> None:
    assert next_step(saw(candidate("a"), A_HOLDS, 0), 1) == Write("5")


def test_the_holder_renews_every_retry_period() -> None:
    held = wrote(candidate(), "6", 1_000, 1_010)

    assert next_step(held, 2_000) == Wait(2_500)
    assert next_step(held, 2_500) == Write("6")


def test_the_holder_stops_at_its_deadline_which_is_before_the_others_begin() -> None:
    held = wrote(candidate(), "6", 1_000, 1_010)

    assert holds(held, 7_999)
    assert not holds(held, 8_000)
    assert isinstance(next_step(held, 8_000), Lost)


def test_a_holder_that_sees_another_holder_stops_for_good() -> None:
    held = saw(wrote(candidate(), "6", 1_000, 1_010), SeenLease("7", "c", 10_000), 1_500)

    assert not holds(held, 1_500)
    assert isinstance(next_step(held, 1_500), Lost)


def test_a_holder_whose_lease_was_deleted_stops() -> None:
    assert not holds(saw(wrote(candidate(), "6", 1_000, 1_010), NOBODY, 1_500), 1_500)


def test_a_renewal_is_counted_from_its_begin_not_from_its_answer() -> None:
    held = wrote(wrote(candidate(), "6", 1_000, 1_010), "7", 2_500, 2_510)

    assert holds(held, 9_499)
    assert not holds(held, 9_500)


def test_a_renewal_that_is_answered_after_the_deadline_does_not_revive_the_holder() -> None:
    held = wrote(candidate(), "6", 1_000, 1_010)
    assert not holds(held, 8_000)

    late = wrote(held, "7", 7_900, 8_000)

    assert not holds(late, 8_001)
    assert next_step(late, 8_001) == Lost("the lease was not renewed for 7000 ms")


def test_a_first_write_that_is_answered_too_late_makes_no_holder() -> None:
    late = wrote(saw(candidate(), NOBODY, 0), "6", 1_000, 8_000)

    assert not holds(late, 8_000)
    assert isinstance(next_step(late, 8_000), Lost)


def test_a_candidate_that_never_wrote_holds_nothing() -> None:
    assert not holds(candidate(), 0)
    assert not holds(saw(candidate("a"), A_HOLDS, 0), 1)


@pytest.mark.parametrize("lease_ms", range(3_000, 120_001, 1_000))
def test_settings_of_every_length_keep_their_order(lease_ms: int) -> None:
    settings = scaled(lease_ms)

    assert settings.renew_deadline_ms < lease_ms
    assert settings.request_timeout_ms + settings.retry_ms < settings.renew_deadline_ms


def test_settings_that_break_their_order_are_refused() -> None:
    with pytest.raises(ValueError, match="must hold"):
        ElectionSettings(10_000, 10_000, 1_500, 1_500)


class Server:
    """A Lease with revisions, and two candidates whose requests take and lose time."""

    def __init__(self) -> None:
        self.lease = NOBODY
        self.revision = 0

    def write(self, expected: str, holder: str) -> str | None:
        if expected != self.lease.revision:
            return None
        self.revision += 1
        self.lease = SeenLease(str(self.revision), holder, SETTINGS.lease_ms)
        return self.lease.revision


@settings(max_examples=500)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 1),  # whose turn
            st.sampled_from(
                [0, 1, 500, 1_500, 2_999, 6_999, 10_000]
            ),  # time that passes before it: frozen, slow, idle
            st.integers(0, 1_500),  # how long the request takes
            st.sampled_from(["answered", "lost", "done but unanswered"]),
        ),
        max_size=60,
    )
)
def test_two_candidates_never_hold_at_the_same_time_and_none_again_after_its_lapse(
    turns: list[tuple[int, int, int, str]],
) -> None:
    server = Server()
    elections = [Election("a", SETTINGS), Election("b", SETTINGS)]
    has_held, has_ended = [False, False], [False, False]
    now_ms = 0
    for who, idle_ms, takes_ms, outcome in turns:
        now_ms += idle_ms
        step = next_step(elections[who], now_ms)
        began_ms = now_ms
        if isinstance(step, Write):
            revision = None
            if outcome != "lost":
                revision = server.write(step.revision, elections[who].identity)
            now_ms += takes_ms
            for each in (0, 1):  # the mandate is asked for while a request is under way
                has_ended[each] |= has_held[each] and not holds(elections[each], now_ms)
            if outcome == "answered" and revision is not None:
                elections[who] = wrote(elections[who], revision, began_ms, now_ms)
            elif outcome == "answered":
                elections[who] = saw(elections[who], server.lease, now_ms)
        elif isinstance(step, Look) and outcome == "answered":
            lease = server.lease
            now_ms += takes_ms
            elections[who] = saw(elections[who], lease, now_ms)

        assert not all(holds(each, now_ms) for each in elections)
        for each in (0, 1):
            is_holder = holds(elections[each], now_ms)
            assert not (is_holder and has_ended[each]), "what lapsed has come back"
            has_ended[each] |= has_held[each] and not is_holder
            has_held[each] |= is_holder
