"""A zone at rest wakes for whoever needs something of it, and stays awake until that is done."""

from quorate.protocol.messages.clients import Forward
from quorate_agent.zones.storage_room import RoomWatch
from quorate_lone_agent.agent import OTHER, Agent


class _Disk:
    """A storage as full as it is told to be."""

    full_reason = ""
    is_short = False


def at_rest() -> Agent:
    """An agent whose zone has nothing to do."""
    agent = Agent()
    agent.tick()
    assert not agent.replicas.has_work
    agent.replicas.at_rest = True
    return agent


def test_a_client_wakes_the_zone_and_keeps_it_awake_until_it_is_gone() -> None:
    agent = at_rest()

    client = agent.writer()
    assert not agent.replicas.at_rest
    assert agent.replicas.has_work
    assert client.ask(b"GET", b"k") == [None]
    client.leave()
    agent.turn()

    assert not agent.replicas.has_work


def test_a_command_of_another_agents_client_wakes_the_zone() -> None:
    agent = at_rest()
    asked = agent.beat("b")
    set_k = ((b"SET", b"k", b"v"),)

    agent.endpoint.forwards.perform(
        "b", Forward("uid-1", "p", 1, False, set_k, heard_ms=asked.sent_ms, left_ms=5000)
    )

    assert not agent.replicas.at_rest
    assert agent.replicas.has_work
    agent.turn()
    assert not agent.replicas.has_work
    assert [message.reply for message in agent.sent] == [b"+OK\r\n"]


def test_rows_that_move_a_primary_wake_the_zone_until_clients_were_told() -> None:
    agent = at_rest()
    agent.give(OTHER, [0])
    agent.replicas.at_rest = True
    row = agent.replicas.table[1]
    assert row is not None

    agent.endpoint.hand_overs.rows_came([row], 0)

    assert not agent.replicas.at_rest


def test_room_after_there_was_none_wakes_the_zone() -> None:
    agent, disk = at_rest(), _Disk()
    watch = RoomWatch(agent.replicas, disk)
    watch.look(1.0)
    assert agent.replicas.at_rest

    disk.is_short = True
    watch.look(2.0)
    agent.replicas.at_rest, agent.replicas.look_ms = True, 1 << 40
    disk.is_short = False
    watch.look(3.0)

    assert not agent.replicas.at_rest
    assert agent.replicas.look_ms == 0, "gaps that could not be filled without room are due"
