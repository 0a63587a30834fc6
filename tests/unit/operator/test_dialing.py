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
            agents={"agent-1": agent},
            zones={"uid": zone},
            drain=self._drain,
            registration=lambda node: record,
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

    def _dial(self, host: str, port: int, node: str | None = None) -> Any:
        return SimpleNamespace(address=(host, port), link=None, node=node)

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


class _Absent:
    """A new master of agent-1, which is linked, and of agent-2, whose address is not declared."""

    def __init__(self, *, held: bool) -> None:
        self.held = held
        self.records: dict[str, NodeRecord | None] = {
            "agent-1": NodeRecord("agent-1", "s", 1, "10.0.9.9", 7200, "10.0.9.9"),
            "agent-2": NodeRecord("agent-2", "t", 1, "10.0.0.1", 7100, "10.0.0.1"),
        }
        zone = SimpleNamespace(names=lambda node: node == "agent-1" or self.held)
        agent = SimpleNamespace(online=True, drain_wanted=False)
        self.master: Any = SimpleNamespace(
            agents=dict.fromkeys(self.records, agent),
            zones={"uid": zone},
            has_recovered=True,
            registration=self.records.get,
            forget=self._forget,
            drain=lambda node, draining, now: self.drained.append(node) or "",
        )
        self.forgotten: list[str] = []
        self.drained: list[str] = []
        self.dialed: list[str] = []
        self.undialed: list[str] = []
        self.endpoint: Any = SimpleNamespace(dial=self._dial, undial=self._undial)
        self.links: dict[str, Any] = {}
        self.dialing = Dialing("main", self.links)
        self.dialing.declare([NEW], self.endpoint)

    def connect(self, node: str, address: str) -> None:
        """The agent answers there."""
        peer: Any = self.dialing.peers[address]
        peer.link = self.links[node] = cast(Any, SimpleNamespace(peer=peer))
        self.dialing.reached(peer.link, node)

    def look(self) -> None:
        self.dialing.look(self.master, self.endpoint, Now(0, 0))

    def _dial(self, host: str, port: int, node: str | None = None) -> Any:
        self.dialed.append(f"{host}:{port}")
        return SimpleNamespace(address=(host, port), link=None, node=node)

    def _undial(self, peer: Any) -> None:
        self.undialed.append(f"{peer.address[0]}:{peer.address[1]}")

    def _forget(self, node: str, now: Now) -> str:
        self.forgotten.append(node)
        self.records[node] = None
        return ""


def test_an_agent_whose_address_went_while_no_master_led_is_found_by_its_registration() -> None:
    world = _Absent(held=True)
    world.look()
    assert world.dialed == [NEW]  # it may be at the declared address, where none answers yet

    world.connect("agent-1", NEW)
    world.look()
    world.look()

    assert world.dialed == [NEW, OLD]
    assert world.dialing.peers[OLD].node == "agent-2"  # no other agent is meant
    assert world.drained == []
    world.connect("agent-2", OLD)
    world.look()
    assert world.drained == ["agent-2"]
    world.held = False
    world.look()
    assert world.forgotten == ["agent-2"]
    assert [*world.dialing.peers] == [NEW]


def test_an_agent_that_never_comes_back_is_dialed_until_it_holds_nothing() -> None:
    world = _Absent(held=True)
    world.connect("agent-1", NEW)
    for _ in range(3):
        world.look()
    assert (world.dialed, world.forgotten) == ([NEW, OLD], [])

    world.held = False
    world.look()
    world.look()

    assert world.forgotten == ["agent-2"]
    assert [*world.dialing.peers] == [NEW]


def test_a_registration_is_removed_only_when_all_rows_are_known() -> None:
    world = _Absent(held=False)
    world.look()
    world.connect("agent-1", NEW)
    world.master.has_recovered = False
    world.look()
    assert world.forgotten == []

    world.master.has_recovered = True
    world.look()
    world.look()

    assert world.forgotten == ["agent-2"]


def test_any_agent_may_answer_at_an_address_that_is_declared_again() -> None:
    world = _Absent(held=True)
    world.connect("agent-1", NEW)
    world.look()

    world.dialing.declare([NEW, OLD], world.endpoint)

    assert world.dialing.peers[OLD].node is None


def test_an_agent_is_not_dialed_where_another_one_is_registered_now() -> None:
    """A link that is meant for the former agent would end the present one's link, at each try."""
    world = _Absent(held=True)
    world.dialing.declare(["db1:7100"], world.endpoint)
    world.records["agent-9"] = NodeRecord("agent-9", "u", 1, "10.0.0.1", 7100, "10.0.0.1")

    world.connect("agent-9", "db1:7100")
    world.look()
    world.look()

    assert OLD not in world.dialed
    assert world.forgotten == []


def test_an_agent_is_dialed_no_more_when_another_one_is_registered_there() -> None:
    world = _Absent(held=True)
    world.connect("agent-1", NEW)
    world.look()
    assert world.dialed == [NEW, OLD]
    world.dialing.declare([NEW, "db1:7100"], world.endpoint)
    world.records["agent-9"] = NodeRecord("agent-9", "u", 1, "10.0.0.1", 7100, "10.0.0.1")

    world.connect("agent-9", "db1:7100")
    world.look()
    world.look()

    assert world.undialed == [OLD]
    assert world.dialed == [NEW, OLD, "db1:7100"]
    assert (world.forgotten, world.drained) == ([], [])
