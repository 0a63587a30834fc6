"""An agent whose place another process has: its roles have ended, and its clients are told."""

import msgspec
import pytest

from quorate.facts.topology import NodeRecord
from quorate.protocol.copies.waiters import Waiter
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello, RefusalCode, Refused
from quorate.protocol.messages.master import Members, TroubleKind
from quorate.protocol.transactions.coordinator import Outcome, PartWanted
from quorate_lone_agent.core import PARTITIONS, LoneAgent

MASTER = Hello(FORMAT_VERSION, "master", "main", "", master_term=1, master_word="mine")
HERE = NodeRecord("a", "store-a", 1, "a", 1, "a")


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> LoneAgent:
    """An agent that is the only voter of its partitions."""
    agent = LoneAgent(1, monkeypatch)
    assert agent.core.master_up(MASTER)
    return agent


def _refuse(agent: LoneAgent) -> None:
    agent.core.refused(MASTER, Refused("another has its place", RefusalCode.OLDER_PROCESS))
    assert not agent.core.registered


def _write(agent: LoneAgent) -> Waiter:
    """A client writes, and waits for its answer."""
    zone, role, waiter = agent.core.zones["zone-0"], agent.role(), Waiter((b"key",), None, 0)
    role.write(((b"key", b"value", 0),))
    role.wait(waiter)
    zone.commands_wrote(role)
    return waiter


def test_a_write_that_waits_is_unknown(agent: LoneAgent) -> None:
    """The agent is the only voter: what is durable here would be acknowledged."""
    waiter = _write(agent)
    turns = agent.core.flush(agent.now).turns

    _refuse(agent)

    for uid, turn in turns:
        agent.core.synced(uid, turn, agent.now)
    zone = agent.core.zones["zone-0"]
    assert zone.has_work
    finished = zone.take_finished()
    assert finished.unknown == [waiter]
    assert not finished.answered


def test_no_role_goes_on_until_a_master_gives_a_new_one(agent: LoneAgent) -> None:
    zone = agent.core.zones["zone-0"]

    _refuse(agent)
    agent.pass_time(5_000)

    assert not agent.core.has_primaries
    agent.core.check()
    assert agent.core.receive_from_master(Members(1, (HERE,), 2), agent.now)
    assert agent.core.registered
    told = zone.troubles(agent.now)
    assert [each.partition for each in told] == list(range(PARTITIONS))
    assert {each.kind for each in told} == {TroubleKind.NO_ROLE}
    agent.tell("zone-0", 2)
    agent.pass_time(1_000)
    assert agent.role().term == 2
    assert agent.role().serves(agent.ms)


def test_the_registration_of_another_process_ends_roles_as_well(agent: LoneAgent) -> None:
    waiter = _write(agent)
    next_process = msgspec.structs.replace(HERE, incarnation=2)

    assert agent.core.receive_from_master(Members(1, (next_process,), 2), agent.now)

    assert not agent.core.registered
    assert agent.core.zones["zone-0"].take_finished().unknown == [waiter]
    assert not agent.core.has_primaries


def test_the_registration_of_an_earlier_start_leaves_roles_as_they_are(agent: LoneAgent) -> None:
    """As a metastore has it that was put back; the present start is registered in a moment."""
    earlier = msgspec.structs.replace(HERE, incarnation=0)

    assert agent.core.receive_from_master(Members(1, (earlier,), 2), agent.now)
    assert not agent.core.registered
    assert agent.core.has_primaries

    assert agent.core.receive_from_master(Members(1, (HERE,), 3), agent.now)
    assert agent.core.registered
    assert agent.role().serves(agent.ms)


def test_a_transaction_is_given_up_in_time(agent: LoneAgent) -> None:
    zone = agent.core.zones["zone-0"]
    _refuse(agent)
    wanted = PartWanted(0, (b"key",), ((b"SET", b"key", b"value"),), ())

    zone.transactions.begin((wanted,), False, None, agent.ms + 1_000, agent.now)
    agent.pass_time(5_000)

    assert [each.outcome for each in zone.transactions.ended] == [Outcome.NOT_EXECUTED]
