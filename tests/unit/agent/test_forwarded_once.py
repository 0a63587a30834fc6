"""A forwarded command happens once, and what its client was told of it stays true."""

import msgspec
import pytest

from quorate.facts.keyspace import key_partition
from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Holder, Voter
from quorate.protocol.messages.clients import Forward, Forwarded
from quorate.protocol.messages.replication import Heartbeat
from quorate.protocol.storage import Row
from quorate_agent.resp import replies
from quorate_agent.resp.remembered import request_key
from quorate_lone_agent.agent import OTHER, ZONE, Agent


def _p(key: bytes) -> int:
    return key_partition(key, ZONE.partitions)


def _forwards(agent: Agent) -> list[Forward]:
    return [m for m in agent.sent if isinstance(m, Forward)]


def _answers(agent: Agent) -> list[bytes]:
    return [m.reply for m in agent.sent if isinstance(m, Forwarded)]


def _forward(agent: Agent, *words: bytes, left_ms: int = 5_000) -> Forward:
    """What "b" asks of the agent."""
    heard_ms = agent.beat("b").sent_ms
    process = "0123456789abcdef"
    return Forward(ZONE.uid, process, 1, False, (words,), heard_ms=heard_ms, left_ms=left_ms)


def test_no_room_is_not_said_of_what_was_executed(agent: Agent) -> None:
    """The link broke behind the first attempt; then the memory is full."""
    agent.endpoint.forwards.perform("b", _forward(agent, b"INCR", b"k"))
    agent.turn()
    agent.is_full = True
    agent.endpoint.forwards.perform("b", _forward(agent, b"INCR", b"k"))
    agent.turn()
    assert _answers(agent) == [b":1\r\n", b":1\r\n"]


def test_no_room_is_not_passed_on_for_what_may_have_been_executed(agent: Agent) -> None:
    client = agent.writer()
    agent.give(OTHER, range(4))
    assert client.ask(b"INCR", b"k") == []
    forwards = agent.endpoint.forwards
    (first,) = _forwards(agent)
    forwards.peer_down("b")  # it may have been executed
    agent.turn()
    assert len(_forwards(agent)) == 2
    forwards.take_reply("b", Forwarded(ZONE.uid, first.process, first.number, replies.OOM))
    agent.turn()
    told = client.told()
    assert not any("OOM" in str(each) for each in told), told


def test_no_room_is_not_said_here_of_what_another_may_execute(agent: Agent) -> None:
    """The first attempt is on its way still when the partition comes home, and there is no room;
    the client was told so, and the next primary executed it."""
    client = agent.writer()
    agent.give(OTHER, range(4))
    assert client.ask(b"INCR", b"k") == []
    agent.is_full = True
    agent.give(agent.me, range(4))
    (told,) = client.told()
    assert str(told).startswith("UNKNOWN")


def test_no_room_is_said_here_of_what_no_other_has_executed(agent: Agent) -> None:
    client = agent.writer()
    agent.give(OTHER, range(4))
    assert client.ask(b"INCR", b"k") == []
    (first,) = _forwards(agent)
    declined = Forwarded(ZONE.uid, first.process, first.number, replies.CLUSTERDOWN)
    agent.endpoint.forwards.take_reply("b", declined)
    agent.is_full = True
    agent.give(agent.me, range(4))
    (told,) = client.told()
    assert str(told).startswith("OOM")


def _pair() -> tuple[Agent, Agent]:
    """An agent that forwards everything, and the one that is primary."""
    forwarding, primary = Agent(), Agent()
    forwarding.hear_beat("b", primary.beat("a"))
    forwarding.give(OTHER, range(4))
    return forwarding, primary


def _carry(forwarding: Agent, primary: Agent) -> None:
    """What the one has sent to the other comes there, in order."""
    sent, forwarding.sent[:] = _forwards(forwarding), []
    for message in sent:
        primary.endpoint.forwards.perform("a", message)


def _carry_back(primary: Agent, forwarding: Agent) -> None:
    """And the answers."""
    sent, primary.sent[:] = [m for m in primary.sent if isinstance(m, Forwarded)], []
    for message in sent:
        forwarding.endpoint.forwards.take_reply("b", message)
    forwarding.turn()


def test_what_was_answered_does_not_happen_later() -> None:
    """The answers' link breaks and is back while the primary waits for its lease: the request is
    asked twice, and between its two attempts waits another client's DEL."""
    forwarding, primary = _pair()
    primary.write(b"SET", b"k", b"old")
    role = primary.replicas.primaries[_p(b"k")]
    assert role is not None
    role.serving_until = 0
    client = forwarding.writer()
    assert client.ask(b"SET", b"k", b"mine", b"NX") == []
    _carry(forwarding, primary)
    other = primary.writer()
    other.ask(b"DEL", b"k")
    forwarding.endpoint.forwards.peer_down("b")
    forwarding.turn()
    _carry(forwarding, primary)
    primary.replicas.renew_lease(role)
    primary.turn()
    assert other.told() == [1]
    _carry_back(primary, forwarding)

    (told,) = client.told()
    (value,) = primary.writer().ask(b"GET", b"k")
    assert (told, value) in ((b"OK", b"mine"), (None, None))


def test_an_attempt_that_was_left_behind_does_not_happen_after_another_was_answered() -> None:
    """The first attempt waits at a primary that lost its lease, the second is answered by the
    next; then the first agent is primary again, in a row that it hears of as the next one."""
    forwarding, primary = _pair()
    client = forwarding.writer()
    primary.write(b"SET", b"k", b"old")
    assert client.ask(b"SET", b"k", b"mine", b"NX") == []
    (first,) = _forwards(forwarding)
    forwarding.endpoint.forwards.peer_down("b")
    forwarding.turn()
    (_, second) = _forwards(forwarding)
    primary.endpoint.forwards.perform("a", second)
    primary.turn()
    _carry_back(primary, forwarding)
    assert client.told() == [None]
    primary.write(b"DEL", b"k")
    primary.endpoint.forwards.perform("a", first)
    primary.turn()
    assert primary.writer().ask(b"GET", b"k") == [None]


def _give_and_serve(agent: Agent, holder: Holder) -> None:
    """As `Agent.give`, but what parked commands write is still in the agent's turn."""
    agent._version += 1
    version = agent._version
    voters = (Voter(holder.node, holder.store),)
    agent.replicas.set_rows(
        [PartitionRow(p, version, version, holder, (holder.node,), voters) for p in range(4)],
        agent._now(),
    )
    agent.endpoint.table_changed()
    agent.written()
    agent.synced()  # it serves: commands that were parked are executed


def test_exec_that_came_home_and_goes_again_is_still_exec(agent: Agent) -> None:
    """It changed nothing here and waited for somebody's write when its primary went once more."""
    agent.give(OTHER, range(4))
    somebody, client = agent.writer(), agent.writer()
    somebody.ask(b"SET", b"k", b"1")
    client.send((b"MULTI",), (b"SETNX", b"k", b"v"), (b"EXEC",))
    assert _forwards(agent)[-1].transaction
    _give_and_serve(agent, agent.me)  # both come home and are executed
    agent.written()  # and wait to be durable
    agent.give(OTHER, range(4))
    *_, told = client.told()  # what it had to say was written here
    assert "UNKNOWN" in str(told)


def test_no_room_for_the_update_is_not_said_of_what_another_may_execute(agent: Agent) -> None:
    """There seemed to be room until the turn was written."""
    client = agent.writer()
    agent.give(OTHER, range(4))
    assert client.ask(b"INCR", b"k") == []
    _give_and_serve(agent, agent.me)
    role = agent.replicas.primaries[_p(b"k")]
    assert role is not None
    agent.replicas.finished.refused.extend(role.take_undone(0))
    agent.endpoint.settle()
    (told,) = client.told()
    assert str(told).startswith("UNKNOWN")


@pytest.mark.parametrize(
    "words", [(b"HELLO", b"3"), (b"READONLY",), (b"CLIENT", b"SETNAME", b"me")]
)
def test_a_forwarded_transaction_that_changes_its_connection(words: tuple[bytes, ...]) -> None:
    forwarding, _ = _pair()
    client = forwarding.writer()
    *_, told = client.send((b"MULTI",), words, (b"GET", b"k"), (b"EXEC",))
    assert "MOVED" in str(told)
    assert _forwards(forwarding) == []


def test_who_says_that_there_is_no_room_is_not_asked_again_at_once(agent: Agent) -> None:
    client = agent.writer()
    agent.give(OTHER, range(4))
    client.ask(b"INCR", b"k")
    forwards = agent.endpoint.forwards
    (first,) = _forwards(agent)
    forwards.peer_down("b")
    for _ in range(50):
        agent.turn()
        forwards.take_reply("b", Forwarded(ZONE.uid, first.process, first.number, replies.OOM))
    assert len(_forwards(agent)) < 10


def test_what_comes_when_its_client_waits_no_more_is_not_executed(agent: Agent) -> None:
    """The network held it: by then its client was told that nobody knows, and writers went on."""
    late = _forward(agent, b"SET", b"k", b"late", left_ms=0)
    agent.endpoint.forwards.perform("b", late)
    # Of an earlier process here, or never heard: its age is not known.
    unheard = msgspec.structs.replace(late, heard_ms=late.heard_ms - 1, left_ms=5_000)
    agent.endpoint.forwards.perform("b", unheard)
    agent.turn()
    assert _answers(agent) == [replies.CLUSTERDOWN] * 2
    assert agent.writer().ask(b"GET", b"k") == [None]


def test_what_waits_for_a_primary_waits_no_longer_than_its_client(agent: Agent) -> None:
    role = agent.replicas.primaries[_p(b"k")]
    assert role is not None
    role.serving_until = 0
    agent.endpoint.forwards.perform("b", _forward(agent, b"SET", b"k", b"late", left_ms=4_000))
    agent.turn()
    assert _answers(agent) == []
    agent.clock.ahead_ms = 4_000
    agent.replicas.renew_lease(role)
    agent.turn()
    assert _answers(agent) == [replies.CLUSTERDOWN]


def test_what_waited_for_an_answer_that_was_undone_waits_no_longer_than_its_client(
    agent: Agent,
) -> None:
    """A second attempt finds what the first one wrote, and waits for it, as a read does."""
    for left_ms in (5_000, 4_000):
        forward = _forward(agent, b"SET", b"k", b"late", left_ms=left_ms)
        agent.endpoint.forwards.perform("b", forward)
    role = agent.replicas.primaries[_p(b"k")]
    assert role is not None
    agent.replicas.end_role(role)
    agent.endpoint.settle()
    assert len(_answers(agent)) == 1  # nobody knows
    agent.clock.ahead_ms = 4_000
    role.copy.put(request_key("0123456789abcdef", 1), Row(0, 0, 0, None))
    role.copy.put(b"k", Row(role.copy.lwm, role.copy.last_term, 0, b"new"))
    agent.give(agent.me, range(4))
    agent.turn()
    assert _answers(agent) == [replies.UNKNOWN_OUTCOME, replies.CLUSTERDOWN]
    assert agent.writer().ask(b"GET", b"k") == [b"new"]


def test_what_was_forwarded_for_one_that_is_gone_is_not_asked_of_the_next_primary() -> None:
    """The first is suspended: no link breaks, and it never reads what it was sent."""
    forwarding, _ = _pair()
    client = forwarding.writer()
    client.ask(b"SET", b"k", b"late")
    client.connection.eof_received()
    forwarding.give(Holder("c", "s-c.1", 1), range(4))
    assert len(_forwards(forwarding)) == 1
    (told,) = client.told()
    assert str(told).startswith("UNKNOWN")


def test_each_attempt_says_how_long_its_client_still_waits() -> None:
    forwarding, _ = _pair()
    forwarding.writer().ask(b"SET", b"k", b"1")
    forwarding.clock.ahead_ms = 1_000
    later = forwarding.clock.boot_ms()
    forwarding.hear_beat("b", Heartbeat(later, 0))
    forwarding.endpoint.forwards.peer_down("b")
    forwarding.turn()
    first, second = _forwards(forwarding)
    assert later > first.heard_ms > 0
    assert second.heard_ms == later
    assert 0 < second.left_ms <= first.left_ms - 950  # clocks may differ by 5 %
    assert first.left_ms <= 4_750


def test_what_a_receiver_may_not_execute_is_asked_again_in_a_while() -> None:
    forwarding, _ = _pair()
    client = forwarding.writer()
    client.ask(b"SET", b"k", b"1")
    for count in (1, 2):
        forwards = _forwards(forwarding)
        assert len(forwards) == count
        refused = Forwarded(ZONE.uid, "process", forwards[0].number, replies.CLUSTERDOWN)
        forwarding.endpoint.forwards.take_reply("b", refused)
        forwarding.turn()
        assert len(_forwards(forwarding)) == count
        forwarding.clock.ahead_ms = 100 * count
        forwarding.turn()
    client.connection.eof_received()  # it may ask elsewhere from now on
    forwarding.endpoint.forwards.take_reply("b", refused)
    forwarding.endpoint.table_changed()
    forwarding.turn()
    assert len(_forwards(forwarding)) == 3
    assert [str(each) for each in client.told()] == ["CLUSTERDOWN Hash slot not served"]


@pytest.mark.parametrize("words", [(b"GET", b"k"), (b"SET", b"k", b"v")])
def test_what_comes_when_forwarding_has_ended_is_redirected(
    agent: Agent, words: tuple[bytes, ...]
) -> None:
    agent.give(OTHER, range(4))
    forward_ms = agent.replicas.settings.forward_ms
    agent.clock.ahead_ms = forward_ms - 500
    assert agent.writer().ask(*words) == []
    assert len(_forwards(agent)) == 1
    agent.clock.ahead_ms = forward_ms + 1
    (told,) = agent.writer().ask(*words)
    assert str(told).startswith("MOVED")
    assert len(_forwards(agent)) == 1


def test_no_redirection_is_passed_on_for_what_may_have_been_executed(agent: Agent) -> None:
    """Its client would send it again, as another request."""
    client = agent.writer()
    agent.give(OTHER, range(4))
    assert client.ask(b"INCR", b"k") == []
    forwards = agent.endpoint.forwards
    (first,) = _forwards(agent)
    forwards.peer_down("b")
    agent.turn()
    moved = b"-MOVED 1 c:3\r\n"
    forwards.take_reply("b", Forwarded(ZONE.uid, first.process, first.number, moved))
    agent.turn()
    assert client.told() == []
    assert len(_forwards(agent)) == 3  # it is asked again of whoever is primary


def test_watch_is_redirected_and_what_it_guards_is_refused_with_it(agent: Agent) -> None:
    """Also while other commands are forwarded: the guard would stay behind."""
    client = agent.writer()
    agent.give(OTHER, range(4))
    watch, multi, queued, ended = client.send(
        (b"WATCH", b"k"), (b"MULTI",), (b"SET", b"k", b"v"), (b"EXEC",)
    )
    assert str(watch).startswith("MOVED")
    assert multi == b"OK"
    assert str(queued).startswith("ERR the WATCH before this transaction was not executed")
    assert str(ended).startswith("EXECABORT")
    assert _forwards(agent) == []
    assert client.ask(b"SET", b"k", b"v") == []  # that guard is over: forwarded
    assert len(_forwards(agent)) == 1


def test_rows_that_remember_replies_are_no_keys_of_clients(agent: Agent) -> None:
    agent.endpoint.forwards.perform("b", _forward(agent, b"SET", b"k", b"v"))
    agent.turn()
    assert _answers(agent) == [b"+OK\r\n"]
    client = agent.writer()
    assert client.ask(b"DBSIZE") == [1]
    ((_, keys),) = client.ask(b"SCAN", b"0", b"COUNT", b"100")
    assert keys == [b"k"]
    agent.write(b"DEL", b"k")
    assert client.ask(b"DBSIZE") == [0]
    assert client.ask(b"RANDOMKEY") == [None]


def test_what_comes_before_the_row_that_sent_it_here_waits_for_the_row(agent: Agent) -> None:
    """The former primary heard of its successor first, and forwards within a millisecond."""
    agent.give(OTHER, range(4))
    agent.endpoint.forwards.perform("b", _forward(agent, b"SET", b"k", b"1"))
    agent.turn()
    assert _answers(agent) == []
    agent.give(agent.me, range(4))
    assert _answers(agent) == [b"+OK\r\n"]


def test_what_waits_for_such_a_row_follows_the_row_that_comes(agent: Agent) -> None:
    agent.give(OTHER, range(4))
    agent.endpoint.forwards.perform("b", _forward(agent, b"SET", b"k", b"1"))
    agent.up.add("c")
    agent.nodes["c"] = ("c", 3)
    agent.give(Holder("c", "s-c.1", 1), range(4))
    (told,) = _answers(agent)
    assert told.startswith(b"-MOVED ")
    assert told.endswith(b" c:3\r\n")


def test_who_waits_for_such_a_row_waits_no_longer_than_its_client(agent: Agent) -> None:
    """It was the other agent that had the older row, and it is primary still."""
    agent.give(OTHER, range(4))
    agent.endpoint.forwards.perform("b", _forward(agent, b"SET", b"k", b"late", left_ms=4_000))
    agent.clock.ahead_ms = 4_000
    agent.turn()
    assert _answers(agent) == [replies.CLUSTERDOWN]


def _answer_of(forward: Forward, reply: bytes) -> Forwarded:
    return Forwarded(ZONE.uid, forward.process, forward.number, reply)


@pytest.mark.parametrize(("waits_ms", "says"), [(4_900, 7), (5_100, "UNKNOWN")])
def test_an_outcome_is_waited_for_as_long_again(
    agent: Agent, waits_ms: int, says: int | str
) -> None:
    """It was begun in time, and waits there for acknowledgements."""
    client = agent.writer()
    agent.give(OTHER, range(4))
    assert client.ask(b"INCR", b"k") == []
    (forward,) = _forwards(agent)

    agent.tick(5_000)
    assert client.told() == []
    agent.tick(waits_ms)
    agent.endpoint.forwards.take_reply("b", _answer_of(forward, b":7\r\n"))
    agent.turn()

    (told,) = client.told()
    assert told == says or str(told).startswith(str(says))
    counted = agent.metrics.registry.get_sample_value("quorate_commands_unknown_total")
    assert counted == (says == "UNKNOWN")


def test_a_read_that_is_late_is_not_waited_for(agent: Agent) -> None:
    client = agent.writer()
    agent.give(OTHER, range(4))
    assert client.ask(b"GET", b"k") == []

    agent.tick(5_000)

    (told,) = client.told()
    assert str(told).startswith("CLUSTERDOWN")


@pytest.mark.parametrize(
    ("reply", "is_told"),
    [
        (b":7\r\n", True),
        (b"-WRONGTYPE no\r\n", True),
        (replies.CLUSTERDOWN, False),
        (replies.UNKNOWN_OUTCOME, False),
        (replies.OOM, False),
        (b"-MOVED 1 d:4\r\n", False),
    ],
)
def test_an_outcome_is_taken_of_whoever_was_asked_before(
    agent: Agent, reply: bytes, is_told: bool
) -> None:
    """The next primary has been asked since, and finds the same answer, if it serves in time."""
    client = agent.writer()
    agent.give(OTHER, range(4))
    client.ask(b"INCR", b"k")
    agent.up.add("c")
    agent.nodes["c"] = ("c", 3)
    agent.give(Holder("c", "s-c.1", 1), range(4))
    first, second = _forwards(agent)
    assert first.number == second.number

    agent.endpoint.forwards.take_reply("b", _answer_of(first, reply))
    agent.turn()

    assert len(client.told()) == is_told
    assert len(_forwards(agent)) == 2
