"""Which process of another agent is heard, and what is forgotten with an earlier one."""

from quorate.facts.time import Now
from quorate.facts.topology import NodeRecord
from quorate.protocol.agent.agent import AgentCore
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello
from quorate.protocol.messages.master import Members
from quorate.protocol.messages.replication import Heartbeat, HeartbeatAck
from quorate.protocol.settings import DEFAULTS
from quorate.protocol.storage import Storage

NOW = Now(0, 10_000)
LEASE_MS = DEFAULTS.lease_ms


class Store:
    """An agent's folder without zones."""

    def open_zone(self, record: object) -> Storage:
        raise AssertionError(record)

    def keep_zone(self, record: object) -> bool:
        return True

    def kept_zones(self) -> list[object]:
        return []

    def remove_zone(self, uid: str) -> bool:
        return True

    def raise_master_term(self, term: int, word: str) -> None:
        pass


def hello(store: str, incarnation: int = 1, process: str = "", node: str = "b") -> Hello:
    return Hello(FORMAT_VERSION, "agent", "main", node, store, incarnation, process=process)


class Agent:
    """An agent, a, that is told which store and incarnation of b is registered."""

    def __init__(self) -> None:
        self.core = AgentCore(hello("s-a", node="a"), Store(), DEFAULTS, NOW)
        self.sequence = 0

    def registers(self, store: str = "", incarnation: int = 1, process: str = "") -> None:
        self.sequence += 1
        nodes = [NodeRecord("a", "s-a", 1, "a", 1, "a")]
        if store:
            nodes.append(NodeRecord("b", store, incarnation, "b", 1, "b", process=process))
        told = Members(1, tuple(nodes), self.sequence)
        assert self.core.receive_from_master(told, NOW)

    def asks_at(self, ms: int) -> None:
        """Send b a heartbeat at this time."""
        self.core.leases.heartbeat("b", Now(0, ms))

    def is_answered(self, ms: int, sequence: int) -> int:
        """Return until when the lease of b runs after this answer."""
        self.core.receive("b", HeartbeatAck(ms, LEASE_MS, sequence, ()), NOW)
        return self.core.leases.held_until("b")


def test_the_registered_process_and_later_ones_of_its_store_are_heard() -> None:
    agent = Agent()
    assert not agent.core.hears(hello("old"))
    agent.registers("old", 3, "word")

    assert agent.core.hears(hello("old", 3, "word"))
    assert agent.core.hears(hello("old", 4, "next"))  # the master has not told of it yet
    assert not agent.core.hears(hello("old", 3, "copy"))
    assert not agent.core.hears(hello("old", 2))
    assert not agent.core.hears(hello("new", 9))


def test_an_earlier_process_is_not_heard_once_a_later_one_has_greeted() -> None:
    agent = Agent()
    agent.registers("old", 3)
    assert agent.core.peer_up(hello("old", 3), NOW)
    assert agent.core.hears(hello("old", 3))

    assert agent.core.peer_up(hello("old", 4), NOW)

    assert not agent.core.hears(hello("old", 3))
    assert not agent.core.peer_up(hello("old", 3), NOW)
    assert agent.core.hears(hello("old", 4))


def test_a_replaced_agent_that_greets_again_does_not_take_its_successors_lease() -> None:
    agent = Agent()
    agent.registers("new")
    assert agent.core.peer_up(hello("new"), NOW)
    agent.asks_at(9_000)
    until = agent.is_answered(9_000, 1 << 32)
    assert until > 0

    assert agent.core.peer_up(hello("old", 7), NOW)  # over another store: its link may stay

    assert not agent.core.hears(hello("old", 7))
    assert agent.core.hears(hello("new"))
    assert agent.core.leases.held_until("b") == until


def test_a_late_answer_of_a_former_store_does_not_hide_what_the_new_one_took_back() -> None:
    agent = Agent()
    agent.registers("old", 7)
    assert agent.core.peer_up(hello("old", 7), NOW)
    agent.asks_at(9_000)

    agent.registers("new", 1)
    assert agent.core.peer_up(hello("new", 1), NOW)

    assert not agent.core.hears(hello("old", 7))
    assert agent.is_answered(9_000, 7 << 32) == 0
    assert agent.core.leases.heartbeat("b", NOW) == Heartbeat(NOW.boot_ms, 0)


def test_a_lease_ends_with_the_registration_of_the_store_that_granted_it() -> None:
    for now_registered in ("new", ""):
        agent = Agent()
        agent.registers("old")
        assert agent.core.peer_up(hello("old"), NOW)
        agent.asks_at(9_000)
        assert agent.is_answered(9_000, 1 << 32) > 0

        agent.registers(now_registered)

        assert agent.core.leases.held_until("b") == 0
        assert agent.core.leases.heartbeat("b", NOW).seen == 0
