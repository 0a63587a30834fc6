"""Declared drains, each agent by itself."""

from typing import cast

from quorate.facts.topology import NodeRecord
from quorate_operator.declared.drains import DeclaredDrains
from quorate_operator.mastership.runner import Runner


class Led:
    """A master with agents 1 to 4: one cannot be drained, one holds copies, one holds none."""

    is_leading = True

    def registration(self, agent: str) -> NodeRecord | None:
        return NodeRecord(agent, "s", 1, "h", 1, "h") if agent != "agent-4" else None

    def ask_drain(self, agent: str, draining: bool) -> str:
        return "node agent-1: add an agent first" if agent == "agent-1" else ""

    def zones_naming(self, agent: str) -> tuple[str, ...]:
        return ("library",) if agent == "agent-2" else ()


def test_an_agent_without_copies_is_told_beside_those_that_are_not_so_far() -> None:
    led = Led()
    drains = DeclaredDrains(cast(Runner, led), ())
    assert drains.look().emptied == ()
    drains.declare(["agent-1", "agent-2", "agent-3", "agent-4"])

    view = drains.look()

    assert view.emptied == ("agent-3",), "one that is refused has none now, and may get some"
    assert [agent for agent, _ in view.refused] == ["agent-1"]
    assert view.held == (("agent-2", ("library",)),)
    assert view.unknown == ("agent-4",)
    led.is_leading = False
    assert drains.look().emptied == ()
