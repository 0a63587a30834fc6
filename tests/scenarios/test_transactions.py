"""Transactions across partitions: whoever is lost, at whatever step, all of one happens or nothing;
no lock stays, and nothing happens twice."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from quorate.facts.errors import InvariantError
from quorate.facts.keyspace import key_partition
from quorate.protocol.messages.transactions import (
    AskDecision,
    Decide,
    Decided,
    Decision,
    FinishPart,
    Part,
    PartFinished,
    PartPrepared,
    PreparePart,
    TransactionMessage,
)
from quorate.protocol.transactions.coordinator import Outcome
from quorate_sim import planted_transactions
from quorate_sim.transaction_story import PARTITIONS, TransactionStory
from quorate_sim.transactors import ZONE
from quorate_sim.world import MS

pytestmark = pytest.mark.timeout(120)


def test_both_parts_happen_and_nothing_of_the_exchange_is_left() -> None:
    story = TransactionStory()
    txn = story.begin(low=b"1", high=b"2")
    assert story.ended(txn) is Outcome.COMMITTED
    story.rest()
    assert (story.items(story.low), story.items(story.high)) == ((b"1",), (b"2",))
    kinds = [type(message) for _, _, message in story.said]
    assert kinds[:6] == [PreparePart, PartPrepared] * 2 + [Decide, Decided]
    assert AskDecision not in kinds


def test_what_is_locked_waits_for_the_decision_and_the_rest_does_not() -> None:
    story = TransactionStory()
    story.begin(low=b"1", high=b"2")
    story.wait(lambda: story.locks(story.low), "the first part is prepared")
    locked = story.cluster.clients.send_to(story.primary_of(story.low), "get", story.low)
    story.wait(lambda: locked.outcome != "open", "the command is answered")
    assert locked.outcome == "elsewhere"
    free = next(
        key
        for key in (b"k%d" % number for number in range(1000))
        if key_partition(key, PARTITIONS) == key_partition(story.low, PARTITIONS)
    )
    story.begin(low=b"3", high=b"4")
    story.wait(lambda: story.locks(story.low), "it is locked again")
    other = story.cluster.clients.send_to(story.primary_of(story.low), "set", free, b"v")
    story.wait(lambda: other.outcome == "ok", "a key beside it is written")
    story.rest()


def test_two_that_want_the_same_lists_follow_each_other() -> None:
    story = TransactionStory()
    several = [story.begin(low=b"a%d" % n, high=b"b%d" % n) for n in range(10)]
    assert {story.ended(txn) for txn in several} == {Outcome.COMMITTED}
    story.rest()
    low = [item[1:] for item in story.items(story.low)]
    assert low == [item[1:] for item in story.items(story.high)]
    assert len(low) == 10


def test_a_coordinator_that_the_home_has_not_heard_of_is_not_taken_for_ended() -> None:
    """Its new store counts its starts from one again; the home knew of two of the old one."""
    story = TransactionStory()
    cluster, name, home = story.cluster, story.coordinator.name, story.home.name
    cluster.stop_agent(name, machine_too=False, refused=True)
    cluster.start_agent(name)
    story.rest()
    cluster.network.cut(cluster.masters[-1].name, home)
    cluster.stop_agent(name, machine_too=True, refused=True)
    cluster.wipe(name)
    cluster.start_agent(name)
    story.coordinator = cluster.agents[name]
    story.wait(lambda: ZONE in story.coordinator.core.zones, "the coordinator takes part")

    txn = story.begin(low=b"1")
    story.run(300)
    assert txn.outcome is None or txn.outcome is Outcome.COMMITTED
    cluster.network.heal(cluster.masters[-1].name, home)

    assert story.ended(txn) is Outcome.COMMITTED
    story.rest()
    assert story.items(story.low) == (b"1",)


KINDS = (PreparePart, PartPrepared, Decide, Decided, FinishPart, PartFinished)
VICTIMS = ("coordinator", "home", "other", "master", "home's backup", "other's backup")


def _victim(story: TransactionStory, name: str) -> Callable[[], None]:
    if name == "master":

        def follow() -> None:
            story.cluster.masters[-1].die()
            story.cluster.add_master()

        return follow
    agents = {"coordinator": story.coordinator, "home": story.home, "other": story.other}
    if name in agents:
        return lambda: story.kill(agents[name])
    of, key = (story.home, story.low) if name.startswith("home") else (story.other, story.high)
    others = (of.name, story.coordinator.name)
    backup = next(node for node in story.role(key).row.owners if node not in others)
    return lambda: story.kill(story.cluster.agents[backup])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("nth", [1, 2])
def test_whoever_is_lost_at_whatever_step_all_of_it_happens_or_nothing(
    kind: type[TransactionMessage], victim: str, nth: int
) -> None:
    story = TransactionStory()
    strike = _victim(story, victim)
    count = 0

    def said(node: str, to: str, message: TransactionMessage) -> None:
        nonlocal count
        if isinstance(message, kind):
            count += 1
            if count == nth:
                story.world.after(0, strike)

    story.on_said = said
    txn = story.begin(low=b"1", high=b"2")
    outcome = story.ended(txn)
    story.on_said = lambda *_: None
    story.rest()
    happened = [story.items(story.low) == (b"1",), story.items(story.high) == (b"2",)]
    if outcome is Outcome.UNKNOWN:
        assert victim == "coordinator", "only who asked it may be left without an answer"
        assert happened in ([True, True], [False, False])
    else:
        assert happened == [outcome is Outcome.COMMITTED] * 2
    again = story.begin(low=b"3", high=b"4")
    if story.coordinator.alive:
        assert story.ended(again) is Outcome.COMMITTED
    story.rest()


def test_a_part_that_is_prepared_is_no_gap() -> None:
    """Prepared on a majority, committed and answered; its primary dies before it is told."""
    story = TransactionStory()
    story.when(Decided, lambda: story.kill(story.other))
    txn = story.begin(low=b"1", high=b"2")
    assert story.ended(txn) is Outcome.COMMITTED
    assert story.primary_of(story.high) is not story.other
    story.rest()
    assert story.items(story.high) == (b"2",)


def test_a_decision_is_told_when_a_majority_has_it_and_not_before() -> None:
    story = TransactionStory()

    def cut_off() -> None:
        """What the home decides reaches the coordinator, and no copy."""
        for owner in story.role(story.low).row.owners:
            if owner != story.home.name:
                story.cluster.network.cut(story.home.name, owner)

    story.when(Decide, cut_off)
    ended = story.outcomes()
    story.begin(low=b"1", high=b"2")
    story.run(600)
    assert not ended
    story.kill(story.home)
    story.heal(story.home.name)
    story.wait(lambda: bool(ended), "the transaction ends")
    story.rest()
    happened = [story.items(story.low) == (b"1",), story.items(story.high) == (b"2",)]
    assert happened == [ended == [Outcome.COMMITTED]] * 2


def test_a_part_prepared_by_a_late_duplicate_is_not_committed() -> None:
    story = TransactionStory()
    txn = story.begin(low=b"1", high=b"2")
    story.wait(
        lambda: len([m for _, _, m in story.said if isinstance(m, PreparePart)]) > 1, "asked"
    )
    late = [message for _, _, message in story.said if isinstance(message, PreparePart)]
    assert story.ended(txn) is Outcome.COMMITTED
    story.rest()
    for ask in late:
        story.hand_in(story.low if ask.partition == ask.home else story.high, ask)
    story.wait(lambda: story.locks(story.high), "it is prepared once more")
    story.rest()
    assert (story.items(story.low), story.items(story.high)) == ((b"1",), (b"2",))


def test_a_duplicate_beside_the_decision_is_not_the_part_that_was_decided() -> None:
    """Its first part was committed, its answer lost: the second of the same name must not be."""
    story = TransactionStory()
    txn = story.begin(low=b"1", high=b"2")
    story.wait(lambda: any(isinstance(m, FinishPart) for _, _, m in story.said), "decided")
    asked = next(
        m for _, _, m in story.said if isinstance(m, PreparePart) and m.partition != m.home
    )
    finish = next(m for _, _, m in story.said if isinstance(m, FinishPart))
    assert story.ended(txn) is Outcome.COMMITTED
    story.rest()
    other = story.primary_of(story.high)
    name = story.coordinator.name
    other.run(lambda: other.core.receive(name, asked, other.now()))
    story.wait(lambda: story.locks(story.high), "it is prepared once more")
    other.run(lambda: other.core.receive(story.home.name, finish, other.now()))
    story.rest()
    assert story.items(story.high) == (b"2",)


def test_a_coordinator_that_was_away_learns_what_was_decided() -> None:
    """The answer to its Decide was lost; everybody took it for lost too, but it has not ended."""
    story = TransactionStory()

    def isolate() -> None:
        story.coordinator.freeze()
        story.cut_off(story.coordinator.name)

    story.when(Decided, isolate)
    txn = story.begin(low=b"1", high=b"2")
    story.wait(lambda: story.coordinator.frozen, "it is decided")
    home = story.role(story.low)
    story.wait(lambda: story.coordinator.name not in story.zone(story.home).online, "it is missed")
    story.wait(lambda: story.items(story.high) == (b"2",), "it is committed")
    assert [type(part.state) for part in home.parts.values()] == [Decision]
    ended = story.outcomes()
    story.heal(story.coordinator.name)
    story.coordinator.thaw()
    story.wait(lambda: bool(ended), "the coordinator gives its answer")
    assert ended == [Outcome.COMMITTED]
    assert story.ended(txn) in (Outcome.COMMITTED, Outcome.UNKNOWN)  # its client may have left
    story.rest()
    assert (story.items(story.low), story.items(story.high)) == ((b"1",), (b"2",))


def test_a_home_that_has_forgotten_is_not_believed_when_it_was_asked_before() -> None:
    """Its node's record was removed and came back: nothing is done twice on that account."""
    story = TransactionStory()

    def isolate() -> None:
        story.coordinator.freeze()
        story.cut_off(story.coordinator.name)
        story.world.after(500 * MS, remove)

    def remove() -> None:
        members = story.home.core.members.values()
        others = [record for record in members if record.name != story.coordinator.name]
        story.zone(story.home).set_members(others)

    story.when(Decided, isolate)
    # None of those that were on their way arrives after all.
    story.cluster.network.judge = lambda link, sender, receiver, message: (
        0 if isinstance(message, Decided) else 1
    )
    story.begin(low=b"1", high=b"2")
    story.wait(lambda: story.coordinator.frozen, "it is decided")
    home = story.role(story.low)
    story.wait(lambda: not home.parts, "the decision is forgotten")
    ended = story.outcomes()
    story.zone(story.home).set_members(story.home.core.members.values())
    story.cluster.network.judge = None
    story.heal(story.coordinator.name)
    story.coordinator.thaw()
    story.wait(lambda: bool(ended), "the coordinator gives its answer")
    assert ended == [Outcome.UNKNOWN]
    story.rest()
    assert (story.items(story.low), story.items(story.high)) == ((b"1",), (b"2",))


def test_locks_of_a_lost_coordinator_are_given_back_as_soon_as_it_is_known_to_be_gone() -> None:
    story = TransactionStory()
    story.when(PartPrepared, lambda: story.kill(story.coordinator))
    story.begin(low=b"1", high=b"2")
    story.wait(lambda: not story.coordinator.alive, "the coordinator is gone")
    story.wait(lambda: not story.locks(story.low), "the locks are gone", 5000)
    assert isinstance(story.said[0][2], PreparePart)
    story.rest()


def test_who_asks_too_early_is_told_nothing() -> None:
    """A part that was not heard of for a while asks the home, which has not decided yet."""
    story = TransactionStory()
    story.when(Decide, lambda: story.cluster.network.cut(story.coordinator.name, story.home.name))
    story.begin(low=b"1", high=b"2")
    story.wait(lambda: story.count(AskDecision) > 0, "the other part asks")
    story.run(50)
    assert story.locks(story.low)
    assert story.locks(story.high)
    story.cluster.network.heal(story.coordinator.name, story.home.name)
    story.rest()


def test_a_new_primary_knows_what_was_prepared_before_it() -> None:
    story = TransactionStory()

    def strike() -> None:
        story.coordinator.freeze()
        story.kill(story.home)

    story.when(PartPrepared, strike)
    story.begin(low=b"1", high=b"2")
    story.wait(lambda: not story.home.alive, "the home is prepared, and its primary dies")
    role = story.role(story.low)
    assert [type(part.state) for part in role.parts.values()] == [Part]
    assert story.low in role.locks
    story.coordinator.thaw()
    story.rest()


@pytest.mark.parametrize(
    ("rule_off", "story"),
    [
        (
            planted_transactions.any_part_is_meant,
            test_a_duplicate_beside_the_decision_is_not_the_part_that_was_decided,
        ),
        (
            planted_transactions.asked_twice_and_believed,
            test_a_home_that_has_forgotten_is_not_believed_when_it_was_asked_before,
        ),
        (
            planted_transactions.decision_forgotten_early,
            test_both_parts_happen_and_nothing_of_the_exchange_is_left,
        ),
        (
            planted_transactions.locks_forgotten,
            test_a_new_primary_knows_what_was_prepared_before_it,
        ),
        (planted_transactions.locks_ignored, test_two_that_want_the_same_lists_follow_each_other),
        (planted_transactions.open_is_aborted, test_who_asks_too_early_is_told_nothing),
        (
            planted_transactions.told_before_durable,
            test_a_decision_is_told_when_a_majority_has_it_and_not_before,
        ),
    ],
    ids=lambda value: value.__name__,
)
def test_a_story_fails_without_its_rule(
    rule_off: Callable[[], AbstractContextManager[None]], story: Callable[[], None]
) -> None:
    with rule_off(), pytest.raises((AssertionError, InvariantError)):
        story()
