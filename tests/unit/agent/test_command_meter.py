"""Each command is counted once, by family and result, and timed until its reply is made."""

import pytest

from quorate_agent.clients.meter import BOUNDS_S, EVERY_READ, Result
from quorate_agent.metrics import AgentMetrics
from quorate_lone_agent.agent import OTHER, ZONE, Agent, key_in

Count = dict[tuple[str, Result], int]


class _Counted(Agent):
    """An agent, what its client is told, and what is counted meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.sender = self.writer()
        self.meter = self.endpoint.answers.meter

    def count(self, *commands: bytes) -> Count:
        """Return the counts of these commands, sent in one go."""
        before = self.meter.counts()
        self.sender.send(*(tuple(command.split()) for command in commands))
        self.turn()
        return {
            key: count - before.get(key, 0)
            for key, count in self.meter.counts().items()
            if count != before.get(key, 0)
        }


@pytest.fixture
def agent() -> _Counted:
    return _Counted()


@pytest.mark.parametrize(
    ("command", "family"),
    [
        (b"GET k", "read"),
        (b"EXISTS k", "read"),
        (b"HGETALL h", "read"),
        (b"SET k v", "write"),
        (b"DEL absent", "write"),
        (b"FLUSHALL", "write"),
        (b"MULTI", "transaction"),
        (b"WATCH k", "transaction"),
        (b"SCAN 0", "keyspace"),
        (b"KEYS *", "keyspace"),
        (b"DBSIZE", "keyspace"),
        (b"PING", "connection"),
        (b"CLIENT ID", "connection"),
        (b"PUBSUB NUMPAT", "connection"),
        (b"INFO", "server"),
        (b"CLUSTER SLOTS", "server"),
        (b"WAIT 0 0", "server"),
    ],
)
def test_a_command_is_counted_once_in_its_family(
    agent: _Counted, command: bytes, family: str
) -> None:
    assert agent.count(command) == {(family, Result.OK): 1}


def test_commands_of_a_pipeline_are_counted_however_they_are_joined(agent: _Counted) -> None:
    assert agent.count(*[b"SET k%d v" % n for n in range(20)]) == {("write", Result.OK): 20}
    assert agent.count(*[b"GET k%d" % n for n in range(20)]) == {("read", Result.OK): 20}
    assert agent.count(*[b"INCR {n}%d" % n for n in range(20)]) == {("write", Result.OK): 20}
    assert agent.count(b"GET k1", b"SET k1 w", b"GET k1", b"PING") == {
        ("read", Result.OK): 2,
        ("write", Result.OK): 1,
        ("connection", Result.OK): 1,
    }


def test_a_transaction_is_as_many_commands_as_were_sent(agent: _Counted) -> None:
    one, other = key_in(0), key_in(1)

    assert agent.count(b"MULTI", b"SET %b v" % one, b"GET %b" % one, b"EXEC") == {
        ("transaction", Result.OK): 4
    }
    assert agent.count(b"MULTI", b"SET %b v" % one, b"SET %b v" % other, b"EXEC") == {
        ("transaction", Result.OK): 4
    }


def test_errors_of_the_client_are_counted_as_such(agent: _Counted) -> None:
    agent.count(b"HSET h f v", b"SET k v")

    assert agent.count(b"GET h") == {("read", Result.ERROR): 1}
    assert agent.count(b"GET k", b"GET h", b"GET k") == {
        ("read", Result.OK): 2,
        ("read", Result.ERROR): 1,
    }
    assert agent.count(b"APPEND h v") == {("write", Result.ERROR): 1}
    assert agent.count(b"MSET a 1 b 2") == {("write", Result.ERROR): 1}  # two slots
    assert agent.count(b"NONSENSE", b"GET") == {("unknown", Result.ERROR): 2}
    assert agent.count(b"EXEC") == {("transaction", Result.ERROR): 1}


def test_commands_for_another_agent_are_counted_as_redirected(agent: _Counted) -> None:
    agent.give(OTHER, range(ZONE.partitions))
    agent.clock.ahead_ms += 60_000  # it was primary long ago, and forwards nothing

    assert agent.count(b"GET k") == {("read", Result.REDIRECTED): 1}
    assert agent.count(b"SET k v", b"SET l v") == {("write", Result.REDIRECTED): 2}


def test_commands_refused_for_want_of_room_are_counted_as_refused(agent: _Counted) -> None:
    agent.is_full = True

    assert agent.count(b"SET k v") == {("write", Result.REFUSED): 1}


def test_a_command_that_no_agent_can_answer_is_counted_when_it_is_given_up(
    agent: _Counted,
) -> None:
    agent.up.discard("b")
    agent.give(OTHER, range(ZONE.partitions))
    assert agent.count(b"SET k v", b"GET k") == {}

    agent.tick(after_ms=60_000)

    assert agent.meter.counts() == {
        ("write", Result.OK): 0,
        ("write", Result.REFUSED): 1,
        ("read", Result.OK): 0,
        ("read", Result.REFUSED): 1,
    }


def test_a_write_takes_until_its_reply_is_made(agent: _Counted) -> None:
    agent.sender.send((b"SET", b"k", b"v"), (b"INCR", b"n"))
    agent.written()
    assert not agent.meter.times
    agent.clock.passed_ahead_s += 0.3

    agent.synced()

    times = agent.meter.times["write"]
    assert times[BOUNDS_S.index(0.5)] == 2
    assert 0.6 <= times[-1] < 1.0


def test_a_command_that_waited_is_timed_from_its_arrival(agent: _Counted) -> None:
    agent.sender.connection.blocked += 1
    agent.count(b"GET k")
    agent.clock.ahead_ms += 700
    agent.sender.connection.blocked -= 1

    agent.endpoint.go_on(agent.sender.connection)
    agent.turn()

    assert agent.meter.times["read"][BOUNDS_S.index(1.0)] == 1


def test_of_reads_sent_alone_one_in_so_many_stands_for_all(agent: _Counted) -> None:
    for _ in range(2 * EVERY_READ + 1):
        agent.sender.ask(b"GET", b"k")

    assert sum(agent.meter.times["read"][:-1]) == 2 * EVERY_READ
    assert agent.meter.counts() == {("read", Result.OK): 2 * EVERY_READ + 1}


def test_tools_are_told_the_times_of_reads_and_writes_by_their_upper_bounds() -> None:
    metrics = AgentMetrics()
    meter = metrics.meter("uid", lambda: 1.002)
    for arrived in (1.0, 1.0, -99.0):
        meter.answered("write", b"+OK")
        meter.end(arrived)
    meter.answered("read", b"$-1")
    meter.answered("transaction", b"+OK")
    meter.end(1.0019)

    assert metrics.client_times("uid") == (((100, 1),), ((2500, 2), (-1, 1)))
    assert metrics.client_times("another") == ((), ())
