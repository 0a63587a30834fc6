"""A tool has the primary write a row that copies shall have, if nothing wrote the key meanwhile."""

from typing import Any

import pytest

from quorate.facts.keyspace import RESERVED
from quorate.facts.time import Now
from quorate.protocol.messages.tools import (
    ASKED_MS_MAX,
    HandedOver,
    HandOver,
    KeyRepaired,
    RepairKey,
)
from quorate.protocol.storage import Row
from quorate_agent.process.tools import answer_tool
from quorate_lone_agent.agent import OTHER, Agent, key_in

KEY = key_in(1)


@pytest.fixture
def agent() -> Agent:
    made = Agent()
    made.write(b"SET", KEY, b"wrong")
    return made


def row_of(agent: Agent, key: bytes = KEY) -> Row | None:
    return agent.replicas.copies[1].get(key)


def version_of(agent: Agent) -> tuple[int, int]:
    row = row_of(agent)
    assert row is not None
    return row.counter, row.term


def ask(agent: Agent, question: Any) -> Any:
    now = Now(0, agent.clock.boot_ms())
    return answer_tool(question, "a", [agent.replicas], debug_commands=False, now=now)


def repair(
    agent: Agent, value: bytes | None, seen: tuple[int, int], key: bytes = KEY, partition: int = 1
) -> KeyRepaired:
    answer = ask(agent, RepairKey("books", partition, key, *seen, value, 0))
    assert isinstance(answer, KeyRepaired)
    return answer


@pytest.mark.parametrize("value", [b"right", None], ids=["written", "removed"])
def test_a_row_is_written_once_and_done_when_a_quorum_has_it(
    agent: Agent, value: bytes | None
) -> None:
    counter, term = seen = version_of(agent)

    first = repair(agent, value, seen)
    assert first == KeyRepaired(counter + 1, term, waits_for="a quorum of the copies")
    reader = agent.writer()
    assert reader.ask(b"GET", KEY) == [], "the row may be lost still"
    again = repair(agent, value, seen)
    assert again == first, "it is not written twice"
    agent.turn()

    assert reader.told() == [value]
    assert repair(agent, value, seen) == KeyRepaired(counter + 1, term, done=True)
    assert agent.replicas.copies[1].lwm == counter + 1


def test_another_zone_of_the_same_name_is_not_repaired(agent: Agent) -> None:
    """Its row can have the very version of the earlier zone's: both began to count at 1."""
    uid, (counter, term) = agent.replicas.record.uid, version_of(agent)
    before = row_of(agent)

    def told(uid: str) -> KeyRepaired:
        answer = ask(agent, RepairKey("books", 1, KEY, counter, term, b"right", 0, uid))
        assert isinstance(answer, KeyRepaired)
        return answer

    assert f"is another one, {uid}, not earlier" in told("earlier").problem
    assert row_of(agent) == before
    assert told(uid).counter == counter + 1


def test_a_removal_is_written_also_when_the_primary_has_no_row_any_more(agent: Agent) -> None:
    """Another copy may have one, and only a tombstone takes it away."""
    seen = version_of(agent)
    repair(agent, None, seen)
    agent.turn()
    agent.replicas.copies[1].space.drop(KEY)
    counter = agent.replicas.copies[1].lwm

    assert repair(agent, None, seen).waits_for == "a quorum of the copies"
    agent.turn()
    assert repair(agent, None, seen).done
    assert agent.replicas.copies[1].lwm == counter + 1

    other = key_in(1, b"other")
    assert not repair(agent, None, (0, 0), other).done
    agent.turn()
    assert repair(agent, None, (0, 0), other).done


def test_a_key_that_was_written_since_is_left_alone(agent: Agent) -> None:
    counter, term = seen = version_of(agent)
    agent.write(b"SET", KEY, b"newer")

    answer = repair(agent, b"right", seen)

    assert answer.changed == f"it is written with counter {counter + 1} of term {term}"
    assert (answer.done, answer.waits_for, answer.problem) == (False, "", "")
    agent.turn()
    assert agent.writer().ask(b"GET", KEY) == [b"newer"]


def test_a_key_that_a_client_set_to_the_same_value_is_done(agent: Agent) -> None:
    seen = version_of(agent)
    agent.write(b"SET", KEY, b"right")

    assert repair(agent, b"right", seen).done
    assert agent.replicas.copies[1].lwm == seen[0] + 1


def test_a_missing_row_is_written_unless_the_key_was_written_and_deleted_since(
    agent: Agent,
) -> None:
    copy, other = agent.replicas.copies[1], key_in(1, b"other")
    seen = (copy.lwm, 0)
    answer = repair(agent, b"right", seen, other)
    assert answer.waits_for == "a quorum of the copies"

    third = key_in(1, b"third")
    agent.write(b"SET", third, b"1")
    agent.write(b"DEL", third)
    answer = repair(agent, b"right", seen, third)
    assert answer.changed.startswith("it is deleted with counter")
    copy.settled = copy.lwm
    assert copy.purge_tombstones(1)
    assert repair(agent, b"right", seen, third).changed == "it is deleted"


def test_what_reads_no_value_or_names_no_clients_key_is_refused(agent: Agent) -> None:
    seen = version_of(agent)
    before = agent.replicas.copies[1].lwm

    assert "none that clients can read" in repair(agent, b"\xff?", seen).problem
    assert "partition 2" in repair(agent, b"x", seen, partition=2).problem
    assert "partition 1" in repair(agent, b"x", (0, 0), RESERVED + b"t").problem
    assert (
        "zone cards: not on agent a" in ask(agent, RepairKey("cards", 1, KEY, 1, 1, b"", 0)).problem
    )
    assert agent.replicas.copies[1].lwm == before


def test_without_room_only_removals_are_written(agent: Agent) -> None:
    seen = version_of(agent)
    agent.replicas.why_full = "no disk"

    assert repair(agent, b"right", seen).problem == "no room on agent a: no disk"
    assert repair(agent, None, seen).waits_for == "a quorum of the copies"


def test_a_key_waits_for_its_primary_and_for_the_transaction_that_locks_it(agent: Agent) -> None:
    seen = version_of(agent)
    role = agent.replicas.roles[1]
    role.locks[KEY] = b"t"
    assert "a transaction" in repair(agent, b"right", seen).waits_for
    role.locks.clear()
    role.serving_until = 0
    assert "agent a to serve" in repair(agent, b"right", seen).waits_for
    agent.give(OTHER, [1])
    assert "agent a to serve" in repair(agent, b"right", seen).waits_for


def test_a_batch_for_which_there_was_no_room_is_written_again(agent: Agent) -> None:
    """The counter of the lost row is given out again, so a counter alone proves nothing."""
    seen = version_of(agent)
    first = repair(agent, b"right", seen)
    role, copy = agent.replicas.roles[1], agent.replicas.copies[1]
    copy.space.put(KEY, Row(*seen, 0, b"wrong"))  # as go_back leaves it
    role.acked = first.counter

    assert not repair(agent, b"right", seen).done


def test_a_primary_hands_over_while_it_is_asked_to(agent: Agent) -> None:
    zone = agent.replicas
    assert ask(agent, HandOver("books", 1)) == HandedOver(done=False)
    assert zone.to_hand_over == (1,)

    agent.tick(ASKED_MS_MAX // 2)
    assert zone.to_hand_over == (1,)
    agent.tick(ASKED_MS_MAX // 2)
    assert zone.to_hand_over == ()

    ask(agent, HandOver("books", 1))
    agent.give(OTHER, [1])
    assert ask(agent, HandOver("books", 1)).problem == "partition 1: no copy on agent a"
    assert zone.to_hand_over == ()
    assert ask(agent, HandOver("cards", 1)).problem == "zone cards: not on agent a"
