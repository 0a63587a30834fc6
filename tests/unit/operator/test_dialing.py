"""Whom the master drains because its address is declared no more."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from quorate.facts.time import Now
from quorate.facts.topology import NodeRecord
from quorate_operator.mastership.dialing import Dialing

OLD, NEW = "10.0.0.1:7100", "10.0.9.9:7200"


class _World:
    """A master with one agent that holds copies, dialed at OLD, whose address becomes NEW."""

    def __init__(self, *, online: bool) -> None:
        record = NodeRecord("agent-1", "s", 1, "10.0.0.1", 7100, "10.0.0.1")
        agent = SimpleNamespace(record=record, online=online, drain_wanted=False)
        zone = SimpleNamespace(names=lambda node: node == "agent-1")
        self.drained: list[tuple[str, bool]] = []
        self.master: Any = SimpleNamespace(
            agents={"agent-1": agent}, zones={"uid": zone}, drain=self._drain
        )
        self.undialed: list[str] = []
        self.endpoint: Any = SimpleNamespace(dial=self._dial, undial=self._undial)
        self.links: dict[str, Any] = {}
        self.dialing = Dialing("main", self.links)
        self.dialing.declare([OLD], self.endpoint)
        self.connect(OLD)
        self.dialing.declare([NEW], self.endpoint)

    def connect(self, address: str) -> None:
        """The agent answers there."""
        peer = self.dialing.peers[address]
        link = cast(Any, SimpleNamespace(peer=peer))
        cast(Any, peer).link = self.links["agent-1"] = link
        self.dialing.reached(link, "agent-1")

    def look(self) -> None:
        self.dialing.look(self.master, self.endpoint, Now(0, 0))

    def _dial(self, host: str, port: int) -> Any:
        return SimpleNamespace(address=(host, port), link=None)

    def _undial(self, peer: Any) -> None:
        self.undialed.append(f"{peer.address[0]}:{peer.address[1]}")

    def _drain(self, node: str, draining: bool, now: Now) -> str:
        self.drained.append((node, draining))
        return ""


@pytest.mark.parametrize("online", [True, False])
def test_an_agent_whose_address_was_replaced_is_drained_while_it_answers_there(
    online: bool,
) -> None:
    world = _World(online=online)

    world.look()

    # One that is silent there may be at the new address by now.
    assert world.drained == ([("agent-1", True)] if online else [])


def test_an_agent_that_answers_at_its_new_address_is_not_drained() -> None:
    world = _World(online=True)
    world.connect(NEW)

    world.look()

    assert world.drained == []
    assert world.undialed == [OLD]
