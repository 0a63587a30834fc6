"""What clients see of a turn whose batch found no room."""

from quorate_agent.resp import replies
from quorate_lone_agent.agent import Agent


def test_a_key_waits_for_its_earlier_write_when_a_later_one_was_refused() -> None:
    agent = Agent()
    writer, reader = agent.writer(), agent.writer()
    assert writer.ask(b"SET", b"k", b"first") == []
    agent.written()
    agent.writer().ask(b"SET", b"k", bytes(1 << 20))
    agent.written()
    assert reader.ask(b"GET", b"k") == []  # the first is not durable: it may still be lost
    agent.turn()
    assert writer.told() == [b"OK"]
    assert reader.told() == [b"first"]


def test_a_write_that_was_refused_says_so() -> None:
    agent = Agent()
    writer = agent.writer()
    assert writer.ask(b"SET", b"k", bytes(1 << 20)) == []
    agent.turn()
    (refused,) = writer.told()
    assert b"-" + str(refused).encode() + b"\r\n" == replies.OOM
