"""Every case in which data and commands can meet while a partition's data move, as a story.

One partition, no chance: who is hurt, and when, is told step by step.  The cases are those of
Infinispan's first design of a state transfer that blocks nobody.  Its words, and ours: a cache view
and its consistent hash are a row; the pending hash is a row with an active migration; a stale view
id is an old version or term; the coordinator is the master, a joiner the newcomer, a pushing owner
the supplier; a merge is the end of a network split; an originator is the client, or the agent that
forwards for it; the data container is a copy.  Commands that are sent to where the data were are in
tests/process/agent/test_stale_tables.py, subscribers in tests/process/agent/test_subscribers.py.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

import msgspec
import pytest

from quorate.facts.errors import InvariantError
from quorate_sim.planted_copies import snapshot_row_wins, tombstone_dropped_early
from quorate_sim.scenario import Scenario
from quorate_sim.transfer_story import (
    KEYS,
    NEW,
    OLD,
    HeldChunks,
    backup_moves,
    primary_moves,
    written_long_ago,
)

pytestmark = pytest.mark.simulation


def _end(story: Scenario, expected: dict[bytes, bytes | None]) -> None:
    """Everything is quiet; a client reads what is expected, and so does every owner's copy."""
    story.cluster.network.judge = None
    story.come_to_rest()
    primary = story.wait_for_primary()
    for key, value in expected.items():
        assert story.read(primary, key) == value
        for owner in story.row.owners:
            row = story.copy(owner).get(key)
            assert (None if row is None else row.value) == value, (owner, key)


def _off_is_noticed(off: AbstractContextManager[None], story: Callable[[], None]) -> None:
    with off, pytest.raises((InvariantError, AssertionError)):
        story()


# --- commands while a copy is filled --------------------------------------------------------------


def test_the_old_primary_reads_and_writes_until_the_new_one_has_everything() -> None:
    story, chunks = primary_moves()
    story.written("a1", KEYS[0], NEW)
    story.written("a1", b"more", NEW)
    assert story.read("a1", KEYS[-1]) == OLD
    assert not story.serves("a2")
    story.run(500)
    assert story.serves("a1")
    chunks.release()
    assert story.wait_for_primary("a1") == "a2"
    _end(story, dict.fromkeys(KEYS[1:], OLD) | {KEYS[0]: NEW, b"more": NEW})


def test_a_write_during_a_transfer_goes_to_the_old_and_the_new_owner() -> None:
    story, chunks, leaver = backup_moves()
    counter = story.copy(story.primary).hwm
    story.written(story.primary, KEYS[0], NEW)
    story.run(50)
    assert story.copy(leaver).lwm == counter + 1
    assert story.copy("a4").highest_held() == counter + 1
    chunks.release()
    _end(story, dict.fromkeys(KEYS[1:], OLD) | {KEYS[0]: NEW})


def test_who_lost_its_copy_has_nothing_of_it_left() -> None:
    story, chunks = primary_moves()
    chunks.release()
    story.wait_for_primary("a1")
    story.come_to_rest()
    copy = story.zone("a1").copies.get(0)
    assert copy is None or not copy.present
    assert story.cluster.clients.send_to(story.agent("a1"), "get", KEYS[0]).outcome == "elsewhere"


def test_nobody_reads_at_a_new_owner_what_it_has_not_got() -> None:
    story, chunks = primary_moves()
    assert story.copy("a2").get(KEYS[-1]) is None
    assert not story.copy("a2").adopted  # so no client may read it, READONLY neither
    early = story.cluster.clients.send_to(story.agent("a2"), "get", KEYS[-1])
    assert early.outcome != "ok"
    chunks.release()
    _end(story, dict.fromkeys(KEYS, OLD))


def test_a_change_behind_the_place_where_the_copying_is_comes_along() -> None:
    story, chunks = primary_moves(passed=2)
    story.written("a1", KEYS[0], NEW)  # was copied already
    story.cluster.clients.send(-1, "zone", "del", KEYS[1])
    story.written("a1", b"a-new-key", NEW)
    story.run(100)
    chunks.release()
    _end(story, {KEYS[0]: NEW, KEYS[1]: None, b"a-new-key": NEW, KEYS[2]: OLD})


def test_two_clients_writing_one_key_during_a_transfer_are_in_one_order_everywhere() -> None:
    story, chunks, _ = backup_moves()
    for _ in range(20):
        for _ in range(2):
            story.cluster.clients.send(-1, "zone", "set", KEYS[0])
        story.run(3)
    chunks.release()
    story.come_to_rest()
    found = {story.copy(owner).get(KEYS[0]) for owner in story.row.owners}
    assert len(found) == 1


# --- rows that come late --------------------------------------------------------------------------


def test_a_late_row_never_overwrites_what_was_written_since() -> None:
    story, chunks = primary_moves(passed=0)
    for key in KEYS[::2]:
        story.written("a1", key, NEW)
    story.run(50)
    chunks.deliver()
    _end(story, dict.fromkeys(KEYS[::2], NEW) | dict.fromkeys(KEYS[1::2], OLD))


def test_a_late_row_never_overwrites_is_noticed_when_the_rule_is_off() -> None:
    _off_is_noticed(snapshot_row_wins(), test_a_late_row_never_overwrites_what_was_written_since)


def test_a_late_row_never_brings_a_deleted_key_back() -> None:
    story, chunks = primary_moves(passed=0)
    for key in KEYS[::2]:
        story.deleted("a1", key)
    story.run(50)
    chunks.deliver()
    _end(story, dict.fromkeys(KEYS[::2]) | dict.fromkeys(KEYS[1::2], OLD))


def test_a_late_row_never_brings_back_is_noticed_when_the_rule_is_off() -> None:
    _off_is_noticed(snapshot_row_wins(), test_a_late_row_never_brings_a_deleted_key_back)


def test_a_key_is_deleted_written_and_deleted_again_while_its_row_is_on_its_way() -> None:
    story, chunks = primary_moves(passed=0)
    for kind in ("del", "set", "del"):
        op = story.cluster.clients.send_to(story.agent("a1"), kind, KEYS[0], NEW)
        story.wait(lambda op=op: op.outcome == "ok", kind)
    chunks.deliver()
    _end(story, {KEYS[0]: None, KEYS[1]: OLD})


def test_what_deleted_keys_leave_goes_when_every_copy_is_past_it() -> None:
    story, chunks, leaver = backup_moves()
    for key in KEYS[:10]:
        story.deleted(story.primary, key)
    story.run(1000)
    assert story.copy(story.primary).tombstones  # the new owner is not past them
    chunks.release()
    _end(story, dict.fromkeys(KEYS[:10]) | dict.fromkeys(KEYS[10:], OLD))
    owners = story.row.owners
    story.wait(lambda: not any(story.copy(owner).tombstones for owner in owners), "purged")
    assert leaver not in owners
    for owner in owners:
        assert story.copy(owner).get(KEYS[0]) is None


def test_what_deleted_keys_leave_is_noticed_when_it_goes_early() -> None:
    _off_is_noticed(
        tombstone_dropped_early(), test_what_deleted_keys_leave_goes_when_every_copy_is_past_it
    )


def test_every_step_of_a_transfer_is_told() -> None:
    story, chunks = primary_moves()
    chunks.release()
    story.wait_for_primary("a1")
    story.come_to_rest()
    told = [line.split("event ")[1].split()[0] for line in story.world.lines if "event " in line]
    steps = [word.removeprefix("Migration") for word in told if word.startswith("Migration")]
    assert steps == ["Started", "CaughtUp", "Switched", "Finished"]


# --- somebody leaves ------------------------------------------------------------------------------


def test_the_supplier_leaves_and_another_goes_on() -> None:
    story, chunks, _ = backup_moves()
    supplier = chunks.kept[0][0]
    assert supplier != story.primary  # which has enough to do
    story.crash(supplier)
    chunks.release()
    story.wait(lambda: "a4" in story.row.owners, "the new agent owns")
    story.start(supplier)
    _end(story, dict.fromkeys(KEYS, OLD))


def test_the_primary_leaves_while_a_copy_is_filled() -> None:
    story, chunks, _ = backup_moves()
    first = story.primary
    story.written(first, KEYS[0], NEW)
    story.crash(first)
    second = story.wait_for_primary(first)
    story.written(second, KEYS[1], NEW)
    chunks.release()
    story.wait(lambda: "a4" in story.row.owners, "the new agent owns")
    story.start(first)
    _end(story, {KEYS[0]: NEW, KEYS[1]: NEW, KEYS[2]: OLD})


def test_the_new_owner_leaves_half_filled_and_is_filled_anew() -> None:
    story, chunks, leaver = backup_moves()
    story.crash("a4")
    story.wait(lambda: story.row.active is None, "it is given up")
    assert leaver in story.row.owners
    story.written(story.primary, KEYS[0], NEW)
    chunks.release()
    story.start("a4")
    story.wait(lambda: "a4" in story.row.owners, "the new agent owns")
    _end(story, dict.fromkeys(KEYS[1:], OLD) | {KEYS[0]: NEW})


def test_the_master_leaves_and_the_next_one_goes_on_without_a_second_copy() -> None:
    story, chunks = primary_moves()
    story.cluster.masters[-1].die()
    story.cluster.add_master()
    story.run(200)
    story.written("a1", KEYS[0], NEW)
    chunks.release()
    story.wait_for_primary("a1")
    _end(story, dict.fromkeys(KEYS[1:], OLD) | {KEYS[0]: NEW})
    assert story.zone("a2").full_copies == 1


def test_a_transfer_is_interrupted_again_and_again() -> None:
    story, chunks, _ = backup_moves()
    expected: dict[bytes, bytes | None] = dict.fromkeys(KEYS, OLD)
    for number in range(5, 8):
        story.crash(f"a{number - 1}")
        story.cluster.add_agent(f"a{number}")
        chunks.to, chunks.left = f"a{number}", 1
        chunks.kept.clear()
        chunks.wait()
        key = KEYS[number]
        story.written(story.wait_for_primary(), key, NEW)
        expected[key] = NEW
    chunks.release()
    for number in range(4, 7):
        story.start(f"a{number}")
    _end(story, expected)


def test_more_owners_leave_than_a_majority_and_nobody_answers_for_them() -> None:
    story = Scenario()
    written_long_ago(story)
    voters = story.row.voters
    for name in story.row.replicas[:2]:
        assert name is not None
        story.crash(name)
    story.cluster.add_agent("a4")
    for _ in range(200):
        story.run(20)
        assert story.primary == ""
    assert story.row.voters == voters
    for name in sorted(story.cluster.agents):
        if not story.agent(name).alive:
            story.start(name)
    _end(story, dict.fromkeys(KEYS, OLD))


# --- who has not heard of it ----------------------------------------------------------------------


def test_one_that_never_heard_of_a_change_brings_nothing_old_back() -> None:
    story = Scenario()
    first = story.primary
    written_long_ago(story)
    story.cut(first)
    lost = story.write(first, KEYS[0], b"never answered")
    second = story.wait_for_primary(first)
    for key in KEYS[1:5]:
        story.deleted(second, key)
    story.written(second, KEYS[5], NEW)
    story.cluster.add_agent("a4")  # on the other side of the split
    story.wait(lambda: "a4" in story.row.owners, "the new agent owns")
    story.heal()
    expected: dict[bytes, bytes | None] = dict.fromkeys(KEYS, OLD)
    _end(story, expected | dict.fromkeys(KEYS[1:5]) | {KEYS[5]: NEW})
    assert lost.outcome == "unknown"


def test_one_that_was_away_and_missed_nothing_is_sent_nothing() -> None:
    story = Scenario()
    written_long_ago(story)
    away = story.backups()[0]
    chunks = HeldChunks(story, away, passed=1 << 30)
    story.cut(away)
    story.wait(lambda: away not in story.row.owners, "it has left")
    story.heal()
    story.wait(lambda: away in story.row.owners, "it owns again")
    _end(story, dict.fromkeys(KEYS, OLD))
    assert chunks.sent == 0


def test_a_newcomer_with_old_data_of_its_own_shows_none_of_it() -> None:
    story = Scenario()
    written_long_ago(story)
    away = story.backups()[-1]
    story.crash(away)
    story.cluster.add_agent("a4")
    story.wait(lambda: away not in story.row.voter_nodes, "another took its place")
    for key in KEYS[:5]:
        story.deleted(story.primary, key)
    story.come_to_rest()
    story.crash("a4")
    story.start(away)
    story.wait(lambda: away in story.row.owners, "it owns again")
    story.start("a4")
    _end(story, dict.fromkeys(KEYS[:5]) | dict.fromkeys(KEYS[5:], OLD))


# --- many at once ---------------------------------------------------------------------------------


def test_all_backups_are_replaced_at_once_and_no_update_is_lost() -> None:
    story = Scenario()
    for name in ("a4", "a5"):
        story.add(name)
    leavers = story.backups()
    for name in leavers:
        story.drain(name)
    expected: dict[bytes, bytes | None] = {}
    for key in KEYS:
        story.written(story.wait_for_primary(), key, NEW)
        expected[key] = NEW
    story.wait(lambda: not {*leavers} & {*story.row.owners}, "both are replaced")
    _end(story, expected)


def test_a_copy_more_of_everything_is_made_beside_those_there_are() -> None:
    story = Scenario(agents=4, replicas=2)
    written_long_ago(story)
    cluster = story.cluster
    cluster.zones["zone"] = zone = msgspec.structs.replace(cluster.zones["zone"], replicas=4)
    master = cluster.masters[-1]
    master.run(lambda: master.declare(zone))
    story.wait(lambda: len(story.row.owners) == 3, "one more")
    story.crash(story.backups()[0])
    story.written(story.wait_for_primary(), KEYS[0], NEW)
    for name in sorted(cluster.agents):
        if not story.agent(name).alive:
            story.start(name)
    story.wait(lambda: len(story.row.owners) == 4, "all of them")
    _end(story, dict.fromkeys(KEYS[1:], OLD) | {KEYS[0]: NEW})


# --- transactions of one partition ----------------------------------------------------------------


def _transact(story: Scenario, name: str) -> None:
    """Two keys in one update, by a client that hears nothing of it any more."""
    role, agent = story.role(name), story.agent(name)
    assert role is not None

    def write() -> None:
        role.write(((KEYS[0], NEW, 0), (KEYS[1], NEW, 0)))
        story.zone(name).commands_wrote(role)

    agent.run(write)


def _values(story: Scenario) -> set[tuple[bytes | None, ...]]:
    found = set()
    for owner in story.row.owners:
        rows = [story.copy(owner).get(key) for key in KEYS[:2]]
        found.add(tuple(None if row is None else row.value for row in rows))
    return found


@pytest.mark.parametrize("after_ms", [0, 1, 2, 3, 5, 8, 13, 30])
def test_a_transaction_whose_client_and_primary_die_is_everywhere_or_nowhere(
    after_ms: int,
) -> None:
    story = Scenario()
    first = story.primary
    _transact(story, first)
    story.run(after_ms)
    story.crash(first)
    story.wait_for_primary(first)
    story.start(first)
    story.come_to_rest()
    assert len(found := _values(story)) == 1
    assert found <= {(None, None), (NEW, NEW)}
    if after_ms >= 30:
        assert found == {(NEW, NEW)}


def _served_ms(story: Scenario) -> int:
    """How long the old primary still serves."""
    passed = 0
    while story.serves("a1"):
        story.run(1)
        passed += 1
    return passed


@pytest.mark.parametrize("before_ms", [1, 2, 3, 4, 5, 10, 50])
def test_a_transaction_under_way_at_a_hand_over_is_whole_at_the_new_primary(
    before_ms: int,
) -> None:
    story, chunks = primary_moves()
    chunks.release()
    last_ms = _served_ms(story)
    story, chunks = primary_moves()  # the same story again
    chunks.release()
    story.run(last_ms - before_ms)
    assert story.serves("a1")
    _transact(story, "a1")
    assert story.wait_for_primary("a1") == "a2"
    story.come_to_rest()
    assert _values(story) == {(NEW, NEW)}


def test_commands_of_every_moment_of_a_hand_over_happen_once() -> None:
    story = Scenario()
    first = story.primary
    story.written(first, b"x", b"1")
    agent = story.agent(first)
    agent.run(lambda: agent.core.leave(agent.now()))
    ops = []
    for _ in range(60):
        ops.append(story.cluster.clients.send(-1, "zone", "incr", b"n"))
        story.run(5)
    story.wait(lambda: story.wait_for_primary() != first, "another is primary")
    story.wait(lambda: all(op.outcome == "ok" for op in ops), "all are answered")
    assert story.read(story.wait_for_primary(), b"n") == b"%d" % len(ops)
    assert sorted(int(op.result or 0) for op in ops) == list(range(1, len(ops) + 1))
