"""Events about runs of zones that are not led yet: which wait, and which are dropped."""

import pytest

from quorate.protocol.messages.events import Event, Reason
from quorate_loopback.namespace import Namespace
from quorate_loopback.noted_events import note_events
from quorate_operator.declared.runs.zone_events import KEPT_MAX, ZONES_MAX, RunEvent, ZoneEvents


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """Events about exports."""
    return note_events(monkeypatch, "Export")


def failed(message: str) -> RunEvent:
    return RunEvent(Reason.EXPORT_FAILED, "Warning", message)


def created(led: Namespace, time: str) -> None:
    """Show the Zone as one that was created then."""
    body = led.api.objects[led.path("Zone", "books")]
    led.show({**body, "metadata": {**body["metadata"], "creationTimestamp": time}})


@pytest.mark.parametrize(
    ("time", "count"), [("2026-01-01T00:00:00Z", 1), ("9999-01-01T00:00:00Z", 0)]
)
async def test_a_zone_is_told_nothing_about_an_earlier_one_of_its_name(
    led: Namespace, told: list[Event], time: str, count: int
) -> None:
    find, is_led = led.controller._led_zone, [False]
    events = ZoneEvents(lambda zone: find(zone) if is_led[0] else "it is not led")
    events.tell("books", [failed("of the zone")])
    events.tell("songs", [failed("of another zone")])
    is_led[0] = True
    created(led, time)
    events.tell_kept("books")
    events.tell_kept("books")

    assert [each.message for each in told] == ["of the zone"] * count


async def test_the_newest_ones_are_kept_and_told_in_their_order(
    led: Namespace, told: list[Event]
) -> None:
    find, is_led = led.controller._led_zone, [False]
    events = ZoneEvents(lambda zone: find(zone) if is_led[0] else "it is not led")
    events.tell("books", [failed(str(index)) for index in range(KEPT_MAX + 2)])
    is_led[0] = True
    events.tell("books", [failed("last")])

    assert [each.message for each in told] == [*map(str, range(2, KEPT_MAX + 2)), "last"]


async def test_events_of_one_zone_drop_none_of_another(led: Namespace, told: list[Event]) -> None:
    find, is_led = led.controller._led_zone, [False]
    events = ZoneEvents(lambda zone: find(zone) if is_led[0] else "it is not led")
    events.tell("books", [failed("of the zone")])
    for index in range(KEPT_MAX + 2):
        events.tell("songs", [failed(str(index))])
    is_led[0] = True
    events.tell_kept("books")

    assert [each.message for each in told] == ["of the zone"]


async def test_the_newest_of_a_series_is_kept(led: Namespace, told: list[Event]) -> None:
    find, is_led = led.controller._led_zone, [False]
    events = ZoneEvents(lambda zone: find(zone) if is_led[0] else "it is not led")
    for message in ("first", "other", "second"):
        series = "" if message == "other" else "times"
        events.tell("books", [failed(message)._replace(series=series)])
    is_led[0] = True
    events.tell_kept("books")

    assert [each.message for each in told] == ["other", "second"]


async def test_the_zone_that_was_told_longest_ago_is_dropped(
    led: Namespace, told: list[Event]
) -> None:
    find, is_led = led.controller._led_zone, [False]
    events = ZoneEvents(lambda zone: find(zone) if is_led[0] else "it is not led")
    for zone in ("songs", "books", *map(str, range(ZONES_MAX - 1))):
        events.tell(zone, [failed(zone)])
    is_led[0] = True
    events.tell_kept("books")

    assert [each.message for each in told] == ["books"]
    assert "songs" not in events._kept
