"""The operator's memory of events: what comes after which, who has missed some, who is woken."""

import asyncio

from quorate.protocol.messages.events import Event, Reason, first_sequence, time_text
from quorate.protocol.status import ZoneStatus
from quorate_operator.mastership.event_log import EventLog, states

NAMES = {"uid-1": "books"}


def _moves(*partitions: int) -> list[Event]:
    return [Event("uid-1", p, Reason.MIGRATION_STARTED, f"MOVE {p}") for p in partitions]


def _log(kept: int = 100, term: int = 1) -> EventLog:
    log = EventLog(kept)
    log.begin(term)
    return log


def test_events_follow_each_other_without_a_gap_and_name_their_zone() -> None:
    log = _log(term=3)
    start = log.last
    log.add(_moves(5, 6), NAMES, 0)
    log.add([Event("", None, Reason.NODE_LEFT, "a left", "Warning")], NAMES, 1_500)
    found, missed = log.after(start)
    assert not missed
    assert [event.sequence for event in found] == [start + 1, start + 2, start + 3]
    assert [(event.zone, event.partition) for event in found] == [
        ("books", 5),
        ("books", 6),
        ("", None),
    ]
    assert found[-1].time == "1970-01-01T00:00:01.500Z"
    assert log.after(start + 2)[0] == found[2:]
    assert log.after(log.last) == ([], False)


def test_who_lags_behind_the_memory_is_told_the_rest_and_that_some_are_missing() -> None:
    log = _log(kept=3)
    start = log.last
    log.add(_moves(*range(5)), NAMES, 0)
    assert log.after(start + 2)[1] is False
    found, missed = log.after(start + 1)
    assert missed
    assert [event.partition for event in found] == [2, 3, 4]


def test_who_listened_to_another_master_has_missed_something_even_when_counts_agree() -> None:
    before, log = _log(term=1), _log(term=2)
    before.add(_moves(*range(50)), NAMES, 0)
    log.add(_moves(*range(60)), NAMES, 0)
    assert before.last < first_sequence(2)
    for other in (before.last, 0, first_sequence(9)):
        found, missed = log.after(other)
        assert missed
        assert len(found) == 60


async def test_who_waits_is_woken_by_the_next_event_and_by_the_end() -> None:
    log = _log()
    waiting = asyncio.create_task(log.wait(log.last, 30))
    await asyncio.sleep(0)
    log.add(_moves(1), NAMES, 0)
    await asyncio.wait_for(waiting, 5)
    await asyncio.wait_for(log.wait(log.last - 1, 30), 5)  # there is something already
    waiting = asyncio.create_task(log.wait(log.last, 30))
    await asyncio.sleep(0)
    log.close()
    await asyncio.wait_for(waiting, 5)
    await asyncio.wait_for(log.wait(log.last, 30), 5)


async def test_waiting_has_an_end() -> None:
    log = _log()
    await asyncio.wait_for(log.wait(log.last, 0.01), 5)


def test_a_state_says_how_the_zone_is_and_what_is_lost() -> None:
    zone = ZoneStatus(
        "uid-1", "books", "Unavailable", "2 partitions have no serving primary", 8, 5, 1, 2, 3, 4,
        0, 0, 0, 0, {}, (), (), lost=1, lost_partitions=(7,),
    )  # fmt: skip
    [told] = states([zone], 77, 0)
    assert (told.sequence, told.reason, told.zone, told.kind) == (77, "State", "books", "Warning")
    assert told.message == "Unavailable: 2 partitions have no serving primary"
    assert told.state is not None
    assert told.state.lost_partitions == (7,)
    assert (told.state.migrations_running, told.state.migrations_queued) == (3, 4)
    assert told.time == time_text(0)
