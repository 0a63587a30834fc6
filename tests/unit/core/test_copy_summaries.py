"""The sizes and positions of copies that an agent tells its master."""

import pytest

from quorate.protocol.messages.master import AskInventory, CopySummaries
from quorate_lone_agent.core import PARTITIONS, TICK_MS, LoneAgent


def test_sizes_are_told_little_by_little_and_wake_no_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = LoneAgent(100, monkeypatch)
    agent.write("zone-7", b"key")
    agent.pass_time(2000)
    agent.visits.clear()
    agent.sent.clear()

    agent.core.receive_from_master(AskInventory(1, brief=True), agent.now)
    agent.pass_time(TICK_MS)
    first = [message for _, message in agent.sent if isinstance(message, CopySummaries)]
    agent.pass_time(10 * TICK_MS)
    every = [message for _, message in agent.sent if isinstance(message, CopySummaries)]
    told = {message.zone: {p: size for p, size, *_ in message.copies} for message in every}

    assert 0 < len(first) < 50, "those of thousands would be a burst"
    assert len(told) == 100
    assert told["zone-7"].keys() == set(range(PARTITIONS))
    assert max(told["zone-7"].values()) > max(told["zone-8"].values())
    assert not agent.visits
