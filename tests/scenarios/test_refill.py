"""A copy whose rows are damaged gets those of others, while clients write and agents are lost.

Whatever happens meanwhile, the copy is the voter that it was: the simulator checks after each step
that a quorum holds what was answered, and that acknowledgements are never taken back.
"""

from collections.abc import Callable
from typing import Any

import pytest

from quorate.protocol.messages.replication import Append
from quorate.protocol.messages.tools import ASKED_MS_MAX, Refill, Refilling
from quorate.protocol.storage import Row
from quorate_sim.network import Link, Process
from quorate_sim.scenario import Scenario
from quorate_sim.transfer_story import KEYS, NEW, OLD, HeldChunks, written_long_ago

pytestmark = pytest.mark.simulation

BAD = b"bad" + b"." * 100
LAST = KEYS[-1]


def damage(story: Scenario, name: str, key: bytes = LAST) -> None:
    """Change a row behind the protocol's back."""
    agent, copy = story.agent(name), story.copy(name)
    row = copy.get(key)
    assert row is not None

    def change() -> None:
        copy.space.put(key, Row(row.counter, row.term, row.expires_at, BAD))
        story.zone(name).touch(copy)

    agent.run(change)
    story.run(50)
    assert value(story, name, key) == BAD


def value(story: Scenario, name: str, key: bytes) -> bytes | None:
    row = story.copy(name).get(key)
    return None if row is None else row.value


def owners(story: Scenario, name: str) -> tuple[str, ...]:
    """Who owns copies, as far as this agent knows."""
    row = story.zone(name).table[0]
    return row.owners if row is not None else ()


class Asked:
    """Somebody who asks for a refill every 200 ms, and what was answered last."""

    def __init__(self, story: Scenario, name: str, *suppliers: str, token: str = "once") -> None:
        self.story = story
        self.name = name
        self.question = Refill("zone", 0, token, suppliers)
        self.answers: list[Refilling] = []

    def ask(self) -> Refilling:
        agent = self.story.agent(self.name)
        if agent.alive and "zone" in agent.core.zones:
            agent.run(
                lambda: self.answers.append(self.story.zone(self.name).refills.ask(self.question))
            )
        return self.answers[-1]

    def until(self, is_so: Callable[[], bool], what: str, ms: int = 20_000) -> None:
        for _ in range(ms // 200):
            self.ask()
            if is_so():
                return
            self.story.run(200)
        raise AssertionError(f"not within {ms} ms: {what}; {self.answers[-1]}")

    def until_done(self) -> None:
        self.until(lambda: self.answers[-1].done, "the refill is done")


def damaged_backup(settled: bool = True) -> tuple[Scenario, str, str]:
    """Three copies, that of a backup damaged; its name and the other backup's."""
    story = Scenario()
    if settled:
        written_long_ago(story)
    else:
        for key in KEYS:
            story.written(story.primary, key, OLD)
    bad, good = story.backups()
    damage(story, bad)
    return story, bad, good


def _end(story: Scenario, expected: dict[bytes, bytes | None]) -> None:
    story.cluster.network.judge = None
    story.come_to_rest()
    for key, wanted in expected.items():
        assert {value(story, owner, key) for owner in story.row.owners} == {wanted}, key
        assert story.read(story.wait_for_primary(), key) == wanted


@pytest.mark.parametrize("settled", [True, False], ids=["log is cut", "log is whole"])
def test_a_damaged_backup_is_refilled_while_clients_write_and_delete(settled: bool) -> None:
    story, bad, good = damaged_backup(settled)
    chunks = HeldChunks(story, bad, passed=2)
    asked = Asked(story, bad, good)
    asked.ask()
    chunks.wait()
    story.written(story.primary, KEYS[0], NEW)
    story.deleted(story.primary, KEYS[1])
    story.written(story.primary, b"zz", NEW)
    assert story.copy(bad).lwm == story.copy(story.primary).lwm, "it goes on taking updates"
    assert value(story, bad, LAST) == BAD, "its rows are the old ones until all is there"
    assert story.copy(bad).adopted
    lwm = story.copy(bad).durable_lwm
    chunks.release()
    asked.until_done()
    assert story.copy(bad).lwm >= lwm
    assert story.zone(bad).full_reasons == {"Refill": 1}
    _end(story, dict.fromkeys(KEYS[2:], OLD) | {KEYS[0]: NEW, KEYS[1]: None, b"zz": NEW})


def test_it_counts_for_the_majority_all_the_time() -> None:
    """The third copy is away: each write is answered on account of the one that is refilled, and
    when the primary dies afterwards it has all of them."""
    story, bad, good = damaged_backup()
    primary = story.primary
    chunks = HeldChunks(story, bad, passed=2)
    asked = Asked(story, bad, good)
    asked.ask()
    chunks.wait()
    story.cut(good)
    story.written(primary, KEYS[0], NEW)
    story.heal()
    asked.ask()
    chunks.release()
    asked.until_done()
    story.cut(good)
    story.written(primary, KEYS[1], NEW)
    story.heal()
    story.crash(primary, machine_too=True)
    story.wait_for_primary(primary)
    story.start(primary)
    _end(story, dict.fromkeys(KEYS[2:], OLD) | {KEYS[0]: NEW, KEYS[1]: NEW})


def test_what_was_acknowledged_is_kept_when_the_supplier_is_behind() -> None:
    """The supplier has none of the last updates and the log of the copy has been cut above what the
    supplier has: taking its rows alone would undo what was acknowledged."""
    story, bad, good = damaged_backup()

    def hold_back(link: Link, sender: Process, receiver: Process, message: object) -> int:
        return 0 if receiver.name == good and isinstance(message, Append) else 1

    story.cluster.network.judge = hold_back
    for number in range(5):
        story.written(story.primary, b"more-%d" % number, NEW)
    behind, copy = story.copy(good).lwm, story.copy(bad)
    agent = story.agent(bad)
    agent.run(lambda: (copy.cut_log(copy.lwm), story.zone(bad).touch(copy)))
    story.run(20)
    assert story.copy(good).lwm == behind < copy.log_from
    lwm = copy.durable_lwm
    asked = Asked(story, bad, good)
    for _ in range(20):
        asked.ask()
        story.run(50)
        assert copy.lwm >= lwm
        assert copy.durable_lwm >= lwm
    story.cluster.network.judge = None
    asked.until_done()
    _end(story, dict.fromkeys(KEYS, OLD) | {b"more-4": NEW})


def test_a_supplier_that_is_lost_half_way_is_followed_by_the_next() -> None:
    story, bad, good = damaged_backup()
    primary = story.primary
    chunks = HeldChunks(story, bad, passed=2)
    asked = Asked(story, bad, good, primary)
    asked.ask()
    chunks.wait()
    assert chunks.kept[0][0] == good
    story.crash(good)
    chunks.release()
    asked.until(lambda: asked.answers[-1].done, "the primary has supplied the rest")
    story.start(good)
    _end(story, dict.fromkeys(KEYS, OLD))


def test_the_only_supplier_comes_back() -> None:
    story, bad, good = damaged_backup()
    chunks = HeldChunks(story, bad, passed=2)
    asked = Asked(story, bad, good)
    asked.ask()
    chunks.wait()
    story.crash(good)
    chunks.release()
    story.wait(lambda: good not in owners(story, bad), "it has left")
    assert f"agent {good} cannot supply the rows" in asked.ask().problem
    assert story.zone(bad).refills.partitions == ()
    assert value(story, bad, LAST) == BAD
    story.start(good)
    story.wait(lambda: good in owners(story, bad), "it is back")
    asked.until_done()
    _end(story, dict.fromkeys(KEYS, OLD))


@pytest.mark.parametrize("machine_too", [True, False])
def test_an_agent_that_ends_half_way_has_the_copy_that_it_had(machine_too: bool) -> None:
    story, bad, good = damaged_backup()
    chunks = HeldChunks(story, bad, passed=3)
    asked = Asked(story, bad, good)
    asked.ask()
    chunks.wait()
    story.written(story.primary, KEYS[0], NEW)
    lwm = story.copy(bad).durable_lwm
    story.crash(bad, machine_too=machine_too)
    story.cluster.network.judge = None
    story.start(bad)
    story.wait(lambda: "zone" in story.agent(bad).core.zones, "it has begun")
    assert story.copy(bad).lwm >= lwm
    assert value(story, bad, LAST) == BAD
    asked.until_done()
    _end(story, dict.fromkeys(KEYS[1:], OLD) | {KEYS[0]: NEW})


def test_a_new_term_ends_the_filling_and_it_begins_again() -> None:
    story, bad, good = damaged_backup()
    primary = story.primary
    chunks = HeldChunks(story, bad, passed=2)
    asked = Asked(story, bad, good)
    asked.ask()
    chunks.wait()
    story.crash(primary)
    story.cluster.network.judge = None
    asked.until_done()
    story.start(primary)
    _end(story, dict.fromkeys(KEYS, OLD))


def damaged_primary() -> tuple[Scenario, str]:
    """The story, and the primary that was damaged."""
    story = Scenario()
    written_long_ago(story)
    bad = story.primary
    damage(story, bad)
    return story, bad


def test_a_damaged_primary_hands_over_first_and_gets_its_partition_back() -> None:
    story, bad = damaged_primary()
    asked = Asked(story, bad, *story.backups())
    assert asked.ask().waits_for == "the primary to be handed over"
    asked.until(lambda: story.primary not in ("", bad), "another serves")
    assert story.read(story.primary, LAST) == OLD
    asked.until_done()
    story.wait(lambda: story.primary == bad, "it is primary again")
    assert story.read(bad, LAST) == OLD
    _end(story, dict.fromkeys(KEYS, OLD))


def test_it_does_not_become_primary_before_it_is_refilled() -> None:
    story, bad = damaged_primary()
    chunks = HeldChunks(story, bad, passed=2)
    asked = Asked(story, bad, *story.backups())
    asked.until(lambda: bool(chunks.kept), "it is being filled")
    other = story.primary
    assert other != bad
    for _ in range(20):
        asked.ask()
        story.run(200)
        assert story.primary == other
    chunks.release()
    asked.until_done()
    _end(story, dict.fromkeys(KEYS, OLD))


def test_one_that_nobody_asks_for_any_more_is_given_up() -> None:
    story, bad, good = damaged_backup()
    chunks = HeldChunks(story, bad, passed=2)
    Asked(story, bad, good).ask()
    chunks.wait()
    story.run(ASKED_MS_MAX + 500)
    assert story.zone(bad).refills.partitions == ()
    assert story.zone(bad).fills == {}
    assert value(story, bad, LAST) == BAD
    chunks.release()
    story.written(story.primary, LAST, NEW)
    _end(story, {LAST: NEW})


def test_a_disk_without_room_keeps_the_copy_as_it_was_until_there_is_some() -> None:
    story, bad, good = damaged_backup()
    asked = Asked(story, bad, good)
    story.zone(bad).why_full = "/data: 0 bytes left"
    assert "no room on agent" in asked.ask().problem
    story.zone(bad).why_full = ""
    chunks = HeldChunks(story, bad, passed=2)
    asked.ask()
    chunks.wait()
    storage = story.agent(bad).store.storages["zone"]
    chunks.release()
    for _ in range(600):
        storage.refuse = True  # the next batch
        asked.ask()
        story.run(5)
    assert not asked.answers[-1].done
    assert value(story, bad, LAST) == BAD
    storage.refuse = False
    asked.until_done()
    _end(story, dict.fromkeys(KEYS, OLD))


@pytest.mark.parametrize("is_refused", [False, True])
def test_it_is_done_when_the_write_that_ends_it_is_durable(
    monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    story, bad, good = damaged_backup()
    storage, zone = story.agent(bad).store.storages["zone"], story.zone(bad)
    commit = storage.commit
    asked = Asked(story, bad, good)
    was_filling = False
    said: list[Refilling] = []

    def commit_and_ask(*set_aside: Any) -> None:
        nonlocal was_filling
        ends = was_filling and not zone.fills and not said
        was_filling = bool(zone.fills)
        if ends:
            said.append(zone.refills.ask(asked.question))  # in the same turn
            assert not zone.fills, "it does not begin again"
            storage.refuse = is_refused
        commit(*set_aside)

    monkeypatch.setattr(storage, "commit", commit_and_ask)
    asked.ask()
    story.wait(lambda: bool(said), "the write that ends it is made", step_ms=1)
    assert not said[0].done
    assert said[0].waits_for == "the new rows to be durable"
    asked.until_done()
    assert zone.full_reasons["Refill"] == 1 + is_refused
    assert zone.refills.partitions == ()
    _end(story, dict.fromkeys(KEYS, OLD))


def test_a_write_that_finds_no_room_later_does_not_undo_it() -> None:
    story, bad, good = damaged_backup()
    asked = Asked(story, bad, good)
    asked.until_done()
    story.agent(bad).store.storages["zone"].refuse = True
    story.written(story.primary, KEYS[0], NEW)
    story.run(100)
    assert not story.agent(bad).store.storages["zone"].refuse, "a batch was refused"
    assert asked.ask().done
    assert story.zone(bad).full_reasons == {"Refill": 1}
    _end(story, dict.fromkeys(KEYS[1:], OLD) | {KEYS[0]: NEW})


def test_no_room_for_the_very_write_that_ends_it_is_not_called_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story, bad, good = damaged_backup()
    storage, fills = story.agent(bad).store.storages["zone"], story.zone(bad).fills
    commit = storage.commit
    was_filling = refused = False

    def commit_but_the_end(*set_aside: Any) -> None:
        nonlocal was_filling, refused
        if was_filling and not fills and not refused:
            storage.refuse = refused = True
        was_filling = bool(fills)
        commit(*set_aside)

    monkeypatch.setattr(storage, "commit", commit_but_the_end)
    asked = Asked(story, bad, good)
    asked.ask()
    story.wait(lambda: refused, "the write that ends it is refused", step_ms=1)
    assert value(story, bad, LAST) == BAD
    assert not asked.ask().done
    asked.until_done()
    _end(story, dict.fromkeys(KEYS, OLD))


@pytest.mark.parametrize(
    ("suppliers", "problem"),
    [
        ((), "no supplier is named"),
        (("nobody",), "agent nobody cannot supply the rows"),
        (("self",), "cannot supply the rows"),
    ],
)
def test_without_a_copy_to_take_rows_from_it_is_refused(
    suppliers: tuple[str, ...], problem: str
) -> None:
    story, bad, _ = damaged_backup()
    names = tuple(bad if name == "self" else name for name in suppliers)
    answer = Asked(story, bad, *names).ask()
    assert problem in answer.problem
    assert "partition 0: " in answer.problem
    assert story.zone(bad).fills == {}


def test_an_agent_without_a_copy_says_so() -> None:
    story, _, good = damaged_backup()
    story.add("a4")
    assert "no copy on agent a4" in Asked(story, "a4", good).ask().problem
