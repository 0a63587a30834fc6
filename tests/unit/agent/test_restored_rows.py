"""A tool has the primary write rows, where there are none or in place of others, and reads logs."""

from typing import Any

import msgspec
import pytest

from quorate.facts.keyspace import RESERVED
from quorate.facts.time import Now
from quorate.protocol.messages.replication import Update
from quorate.protocol.messages.tools import (
    AskCopies,
    AskUpdates,
    RestoreRows,
    RowsRestored,
    UpdatesTold,
)
from quorate.protocol.storage import Row
from quorate_agent.process import tools
from quorate_agent.process.paced.pace import Portion
from quorate_agent.process.tools import answer_tool
from quorate_lone_agent.agent import OTHER, Agent, key_in

KEY, SECOND, THIRD = (key_in(1, name) for name in (b"k", b"l", b"m"))
WAITS = RowsRestored(waits_for="a quorum of the copies")


@pytest.fixture
def agent() -> Agent:
    return Agent()


def ask(agent: Agent, question: Any, wall_ms: int = 0) -> Any:
    now = Now(wall_ms, agent.clock.boot_ms())
    return answer_tool(question, "a", [agent.replicas], debug_commands=False, now=now)


def restore(agent: Agent, *rows: tuple[bytes, bytes, int], partition: int = 1) -> RowsRestored:
    answer = ask(agent, RestoreRows("books", partition, rows))
    assert isinstance(answer, RowsRestored)
    return answer


def row_of(agent: Agent, key: bytes) -> Row | None:
    return agent.replicas.copies[1].get(key)


def test_rows_are_written_in_one_update_and_done_when_a_quorum_has_it(agent: Agent) -> None:
    counter = agent.replicas.copies[1].lwm
    rows = ((KEY, b"1", 0), (SECOND, b"2", 99_000))

    assert restore(agent, *rows) == WAITS
    reader = agent.writer()
    assert reader.ask(b"GET", KEY) == [], "the row may be lost still"
    assert restore(agent, *rows) == WAITS, "they are not written twice"
    agent.turn()

    assert restore(agent, *rows) == RowsRestored(done=True)
    assert reader.told() == [b"1"]
    assert agent.replicas.copies[1].lwm == counter + 1
    row = row_of(agent, SECOND)
    assert row is not None
    assert (row.value, row.expires_at) == (b"2", 99_000)


def test_a_key_that_has_another_row_is_left_alone_and_named(agent: Agent) -> None:
    agent.write(b"SET", KEY, b"newer")
    agent.write(b"SET", SECOND, b"deleted")
    agent.write(b"DEL", SECOND)

    restore(agent, (KEY, b"1", 0), (SECOND, b"2", 0))
    agent.turn()

    assert restore(agent, (KEY, b"1", 0), (SECOND, b"2", 0)) == RowsRestored(True, (KEY,))
    reader = agent.writer()
    assert reader.ask(b"GET", KEY) == [b"newer"]
    assert reader.ask(b"GET", SECOND) == [b"2"]


def test_a_key_that_was_deleted_since_comes_back(agent: Agent) -> None:
    """As docs/protocol.md says: a primary does not remember which rows it restored."""
    restore(agent, (KEY, b"1", 0))
    agent.turn()
    agent.write(b"DEL", KEY)
    agent.turn()

    assert restore(agent, (KEY, b"1", 0)) == WAITS

    row = row_of(agent, KEY)
    assert row is not None
    assert row.value == b"1"


def test_a_key_that_is_due_to_expire_has_no_row(agent: Agent) -> None:
    restore(agent, (KEY, b"1", 5_000))
    agent.turn()

    assert ask(agent, RestoreRows("books", 1, ((KEY, b"2", 0),)), 4_999).kept == (KEY,)
    assert ask(agent, RestoreRows("books", 1, ((KEY, b"2", 0),)), 5_000).kept == ()


def test_a_row_whose_time_is_over_is_neither_written_nor_waited_for(agent: Agent) -> None:
    """Else each repetition would write it again, as its key has no row any more."""
    ask_again = RestoreRows("books", 1, ((KEY, b"1", 5_000), (SECOND, b"2", 0)))
    counter = agent.replicas.copies[1].lwm
    assert ask(agent, ask_again, 4_999) == WAITS

    assert ask(agent, ask_again, 5_000) == WAITS, "for the other row"
    agent.turn()

    assert ask(agent, ask_again, 5_000) == RowsRestored(done=True)
    assert agent.replicas.copies[1].lwm == counter + 1


def test_a_row_whose_time_is_over_replaces_the_one_that_is_there(agent: Agent) -> None:
    agent.write(b"SET", KEY, b"older")
    agent.turn()

    ask(agent, RestoreRows("books", 1, ((KEY, b"1", 5_000),), replaces=True), 5_000)

    row = row_of(agent, KEY)
    assert row is not None
    assert row.expires_at == 5_000


def test_what_no_client_can_write_is_refused(agent: Agent) -> None:
    about = "is no client's key of partition 1"
    assert about in restore(agent, (KEY, b"", 0), (RESERVED + b"k", b"", 0)).problem
    assert about in restore(agent, (key_in(2), b"", 0)).problem
    assert "none that clients can read" in restore(agent, (KEY, b"\xffx", 0)).problem
    assert "zone cards: not on agent a" in ask(agent, RestoreRows("cards", 1, ())).problem
    assert row_of(agent, KEY) is None


def test_another_zone_of_the_same_name_gets_no_rows(agent: Agent) -> None:
    """The zone of which the tool knew was deleted, and one of its name was created."""
    uid = agent.replicas.record.uid
    rows = ((KEY, b"1", 0),)

    said = ask(agent, RestoreRows("books", 1, rows, uid="earlier"))
    assert f"is another one, {uid}, not earlier" in said.problem
    assert row_of(agent, KEY) is None
    assert ask(agent, RestoreRows("books", 1, rows, uid=uid)) == WAITS


def test_only_the_primary_writes_and_only_where_there_is_room(agent: Agent) -> None:
    agent.replicas.why_full = "its disk is full"
    assert "no room on agent a: its disk is full" in restore(agent, (KEY, b"1", 0)).problem
    agent.replicas.why_full = ""
    agent.give(OTHER, [1])

    assert restore(agent, (KEY, b"1", 0)).waits_for == "agent a to serve as its primary"
    assert row_of(agent, KEY) is None


def replace(
    agent: Agent, *rows: tuple[bytes, bytes, int], written: tuple[int, int] = (0, 0)
) -> RowsRestored:
    answer = ask(agent, RestoreRows("books", 1, rows, replaces=True, written=written))
    assert isinstance(answer, RowsRestored)
    return answer


def test_rows_that_replace_others_are_one_update_and_done_when_a_quorum_has_it(
    agent: Agent,
) -> None:
    agent.write(b"SET", KEY, b"older")
    agent.turn()
    counter = agent.replicas.copies[1].lwm
    rows = ((KEY, b"1", 0), (SECOND, b"2", 99_000))

    told = replace(agent, *rows)
    assert (told.done, told.kept, told.written[0]) == (False, (), counter + 1)
    assert not replace(agent, *rows, written=told.written).done
    agent.turn()

    assert replace(agent, *rows, written=told.written).done
    assert agent.replicas.copies[1].lwm == counter + 1
    row = row_of(agent, SECOND)
    assert row is not None
    assert (row.value, row.expires_at) == (b"2", 99_000)
    assert agent.writer().ask(b"GET", KEY) == [b"1"]


def test_rows_that_are_there_already_are_not_written_again(agent: Agent) -> None:
    replace(agent, (KEY, b"1", 0), (SECOND, b"2", 0))
    agent.turn()
    counter = agent.replicas.copies[1].lwm

    assert replace(agent, (KEY, b"1", 0), (SECOND, b"2", 0)).done
    assert agent.replicas.copies[1].lwm == counter


def test_a_repeated_request_leaves_what_a_client_has_written_since(agent: Agent) -> None:
    told = replace(agent, (KEY, b"1", 0))
    agent.turn()
    agent.write(b"SET", KEY, b"newer")
    agent.turn()

    assert replace(agent, (KEY, b"1", 0), written=told.written).done

    row = row_of(agent, KEY)
    assert row is not None
    assert row.value == b"newer"


def test_a_primary_of_another_term_writes_the_rows_again_where_others_are(agent: Agent) -> None:
    counter, term = replace(agent, (KEY, b"1", 0)).written
    agent.turn()
    agent.write(b"SET", KEY, b"newer")
    agent.turn()

    assert not replace(agent, (KEY, b"1", 0), written=(counter, term - 1)).done

    row = row_of(agent, KEY)
    assert row is not None
    assert row.value == b"1"


def test_rows_that_replace_others_need_room_and_readable_values(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "none that clients can read" in replace(agent, (KEY, b"\xffx", 0)).problem
    monkeypatch.setattr(tools, "VALUE_BYTES_MAX", 3)
    assert "has 4 bytes, above 3" in replace(agent, (KEY, b"long", 0)).problem
    agent.replicas.why_full = "its disk is full"
    assert "no room on agent a: its disk is full" in replace(agent, (KEY, b"1", 0)).problem
    assert row_of(agent, KEY) is None


def updates(agent: Agent, after: int, upto: int = 1 << 60) -> tuple[UpdatesTold, list[int]]:
    answer = ask(agent, AskUpdates("books", 1, after, upto))
    assert isinstance(answer, UpdatesTold)
    decode = msgspec.msgpack.Decoder(Update).decode
    return answer, [decode(raw).counter for raw in answer.updates]


def test_updates_are_told_piece_by_piece(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "UPDATES_BYTES_MAX", 1)
    start = agent.replicas.copies[1].lwm
    for key in (KEY, SECOND, THIRD):
        agent.write(b"SET", key, b"x")

    told, counters = updates(agent, start, start + 2)
    assert (counters, told.next, told.lwm) == ([start + 1], start + 1, start + 3)
    told, counters = updates(agent, start + 1, start + 2)
    assert (counters, told.next) == ([start + 2], None)
    told, counters = updates(agent, start + 3)
    assert (counters, told.next, told.problem) == ([], None, "")


def test_what_the_log_lacks_and_what_is_no_history_is_not_told(agent: Agent) -> None:
    copy = agent.replicas.copies[1]
    start = copy.lwm
    for key in (KEY, SECOND):
        agent.write(b"SET", key, b"x")
    copy.storage.log_put(1, start + 2, copy.promise_term + 7, b"of a term that was undone")
    copy.majority = copy.lwm
    copy.cut_log(start + 1)

    told, counters = updates(agent, 0)

    assert (counters, told.reaches_from) == ([start + 2], start + 1)
    assert "partition 9: no copy on agent a" in ask(agent, AskUpdates("books", 9, 0, 1)).problem
    portion = Portion(1 << 20)
    question = AskUpdates("books", 1, 0, 1 << 60)
    answer_tool(question, "a", [agent.replicas], False, Now(0, 0), portion)
    assert portion.read == sum(map(len, told.updates)) + len(b"of a term that was undone")


def test_a_copy_says_how_far_a_quorum_has_its_updates(agent: Agent) -> None:
    copy = agent.replicas.copies[1]
    before = copy.majority
    agent.writer().ask(b"SET", KEY, b"x")

    (state,) = ask(agent, AskCopies("books", 1)).copies
    assert (state.majority, state.lwm) == (before, before + 1)
    agent.turn()
    (state,) = ask(agent, AskCopies("books", 1)).copies
    assert state.majority == before + 1
    copy.majority += 5  # as a backup is told of updates that it does not have yet
    (state,) = ask(agent, AskCopies("books", 1)).copies

    assert state.majority == before + 1
