"""Whom the master takes for left, and when it must not judge."""

from quorate.facts.time import Now
from quorate.protocol.master import Master
from quorate.protocol.messages import FORMAT_VERSION, AgentReport, Hello
from quorate.protocol.settings import DEFAULTS

NAMES = ("agent-1", "agent-2")
SILENCE_MS = DEFAULTS.failure_detection_ms


def at(boot_ms: int) -> Now:
    return Now(1_700_000_000_000 + boot_ms, boot_ms)


def with_agents() -> Master:
    """Two registered agents, last heard at 10 000."""
    master = Master(1, DEFAULTS, at(0))
    for boot_ms in range(0, 10_001, 100):
        master.tick(at(boot_ms))
    for name in NAMES:
        master.agent_connected(Hello(FORMAT_VERSION, "agent", "main", name, "s", 1), at(10_000))
    for key, value in master.take_outputs().writes:
        master.written(key, value, at(10_000))
    assert online(master) == list(NAMES)
    return master


def online(master: Master) -> list[str]:
    return [node.name for node in master.status().nodes if node.online]


def test_an_agent_that_is_silent_for_too_long_has_left() -> None:
    master = with_agents()
    for boot_ms in range(10_000, 10_000 + SILENCE_MS + 1, 100):
        master.receive("agent-1", AgentReport(1), at(boot_ms))
        master.tick(at(boot_ms))

    assert online(master) == ["agent-1"]


def test_a_master_that_did_not_run_hears_everybody_before_it_judges_anybody() -> None:
    master = with_agents()

    woken_ms = 10_000 + 5 * SILENCE_MS
    master.receive("agent-1", AgentReport(1), at(woken_ms))  # agent-2's is still unread
    master.tick(at(woken_ms + 1))

    assert online(master) == list(NAMES)
    master.receive("agent-2", AgentReport(1), at(woken_ms + 2))
    for boot_ms in range(woken_ms, woken_ms + SILENCE_MS - 200, 100):
        master.tick(at(boot_ms))
    assert online(master) == list(NAMES)


def test_after_a_standstill_the_silent_are_still_found() -> None:
    master = with_agents()

    woken_ms = 10_000 + 5 * SILENCE_MS
    for boot_ms in range(woken_ms, woken_ms + SILENCE_MS + 1, 100):
        master.tick(at(boot_ms))

    assert online(master) == []
