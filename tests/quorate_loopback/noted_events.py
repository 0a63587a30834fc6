"""Events that masters tell while a test runs."""

import pytest

from quorate.protocol.messages.events import Event
from quorate_operator.mastership.runner import Runner


def note_events(monkeypatch: pytest.MonkeyPatch, begin: str) -> list[Event]:
    """A list that grows by each event whose reason begins like this."""
    seen: list[Event] = []
    tell = Runner.tell

    def noted(self: Runner, events: list[Event]) -> None:
        seen.extend(each for each in events if each.reason.startswith(begin))
        tell(self, events)

    monkeypatch.setattr(Runner, "tell", noted)
    return seen
