"""A plan is executed against agents that answer as real ones do, or as they may in bad moments."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import EllipsisType

import msgspec
import pytest

from quorate.protocol.messages.formats import Formats
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.tools import HandedOver, HandOver, KeyRepaired, RepairKey
from quorate_spark.repairing.decide import Strategy
from quorate_spark.repairing.execute import Done, KeyDone, execute
from quorate_spark.repairing.plan import Planned, PlannedKey, plan_keys
from quorate_spark.validate import Validation
from quorate_spark.verdict import Outcome, Verdict
from quorate_spark_fixtures.repaired_zone import RepairedZone, damage
from quorate_spark_fixtures.scripted_zone import QUICK, PlainRowScan, ScriptedZone, listening

KEYS = [b"key-%02d" % number for number in range(8)]
WAIT_S = 1.0


@pytest.fixture
def zone() -> Iterator[RepairedZone]:
    zone = RepairedZone()
    for key in KEYS:
        zone.write(key, b"right")
    with listening(zone) as listens:
        assert isinstance(listens, RepairedZone)
        yield listens


def validated(zone: ScriptedZone) -> Verdict:
    copies = replace(zone.copies, partitions=1, replicas=3)
    return Validation(copies, QUICK).run(PlainRowScan(copies))


def planned(zone: ScriptedZone, strategy: Strategy) -> list[PlannedKey]:
    common = Planned("z", "", "c", strategy, "now")
    return plan_keys(validated(zone).key_differences, common)


def executed(zone: ScriptedZone, plan: list[PlannedKey]) -> dict[str, KeyDone]:
    return {done.key: done for done in execute(plan, zone.copies, QUICK, WAIT_S)}


@pytest.mark.parametrize("strategy", [Strategy.RELATIVE_MAJORITY, Strategy.REMOVE])
def test_the_next_validation_is_clean(zone: RepairedZone, strategy: Strategy) -> None:
    damage(zone, 1, KEYS[3])
    damage(zone, 2, KEYS[5], None)
    zone.waits[KEYS[3]] = 5
    assert validated(zone).outcome is Outcome.DIFFER

    done = executed(zone, planned(zone, strategy))

    assert {key: each.done for key, each in done.items()} == {
        "key-03": Done.REPAIRED,
        "key-05": Done.REPAIRED,
    }
    after = validated(zone)
    assert (after.outcome, after.settled_keys) == (Outcome.AGREE, len(KEYS))
    wanted = b"right" if strategy is Strategy.RELATIVE_MAJORITY else None
    assert {zone.copy(n).rows[KEYS[at]][3] for n in range(3) for at in (3, 5)} == {wanted}
    assert not zone.asked(HandOver)


def test_a_wrong_primary_hands_over_after_the_keys_that_it_may_write(zone: RepairedZone) -> None:
    damage(zone, 0, KEYS[1])
    damage(zone, 2, KEYS[6])

    done = executed(zone, planned(zone, Strategy.RELATIVE_MAJORITY))

    assert [each.done for each in done.values()] == [Done.REPAIRED, Done.REPAIRED]
    assert validated(zone).outcome is Outcome.AGREE
    assert {name for name, _ in zone.asked(HandOver)} == {"agent-0"}
    wrote = {(name, m.key) for name, m in zone.asked(RepairKey) if isinstance(m, RepairKey)}
    assert wrote == {("agent-0", KEYS[6]), ("agent-1", KEYS[1])}


def test_primary_takes_the_primarys_row_although_others_outvote_it(zone: RepairedZone) -> None:
    damage(zone, 0, KEYS[1])

    executed(zone, planned(zone, Strategy.PRIMARY))

    assert {zone.copy(agent).rows[KEYS[1]][3] for agent in range(3)} == {b"wrong"}
    assert not zone.asked(HandOver)


def test_a_primary_with_the_planned_value_under_an_older_version_writes_it_itself(
    zone: RepairedZone,
) -> None:
    """What clients see is right; only the versions differ."""
    counter, *rest = zone.copy(2).rows[KEYS[1]]
    zone.copy(2).rows[KEYS[1]] = (counter + 1, *rest)

    (done,) = executed(zone, planned(zone, Strategy.LWW)).values()

    assert done.done is Done.REPAIRED
    assert not zone.asked(HandOver)
    assert validated(zone).outcome is Outcome.AGREE


def test_a_key_that_was_written_since_the_plan_is_left_alone(zone: RepairedZone) -> None:
    damage(zone, 1, KEYS[3])
    damage(zone, 1, KEYS[4])
    plan = planned(zone, Strategy.RELATIVE_MAJORITY)
    zone.write(KEYS[3], b"newer")

    done = executed(zone, plan)

    assert done["key-03"].done is Done.CHANGED
    assert "not on none" not in done["key-03"].detail
    assert done["key-04"].done is Done.REPAIRED
    assert {zone.copy(agent).rows[KEYS[3]][3] for agent in range(3)} == {b"newer"}


def test_agents_are_told_which_zone_of_this_name_is_meant(zone: RepairedZone) -> None:
    damage(zone, 1, KEYS[3])
    plan = planned(zone, Strategy.RELATIVE_MAJORITY)
    copies = replace(zone.copies, uid="uid-7")

    (done,) = execute(plan, copies, QUICK, WAIT_S)

    assert done.done is Done.REPAIRED
    assert {m.uid for _, m in zone.asked(RepairKey) if isinstance(m, RepairKey)} == {"uid-7"}


def test_no_primary_of_a_later_zone_of_this_name_hands_over(zone: RepairedZone) -> None:
    damage(zone, 0, KEYS[1])
    plan = planned(zone, Strategy.RELATIVE_MAJORITY)
    for agent in zone.agents:
        agent.uid = "uid-8"

    (done,) = execute(plan, replace(zone.copies, uid="uid-7"), QUICK, 0.1)

    assert done.done is Done.FAILED
    assert not zone.asked(HandOver)
    assert not zone.asked(RepairKey)


def test_the_planned_row_must_be_there_still(zone: RepairedZone) -> None:
    damage(zone, 1, KEYS[3])
    plan = planned(zone, Strategy.RELATIVE_MAJORITY)
    damage(zone, 0, KEYS[3], b"other")
    damage(zone, 2, KEYS[3], b"other")

    (done,) = executed(zone, plan).values()

    assert (done.done, zone.asked(RepairKey)) == (Done.CHANGED, [])
    assert "on none of agent-0, agent-2 any more" in done.detail


def test_irreparable_keys_are_said_and_nothing_is_asked(zone: RepairedZone) -> None:
    damage(zone, 1, KEYS[3])

    (done,) = executed(zone, planned(zone, Strategy.CHECK_ONLY)).values()

    assert done == KeyDone(0, "key-03", KEYS[3].hex(), Done.IRREPARABLE, "CHECK_ONLY only reports")
    assert not zone.asked(RepairKey)


def test_a_second_execution_of_a_plan_writes_nothing(zone: RepairedZone) -> None:
    damage(zone, 1, KEYS[3])
    plan = planned(zone, Strategy.RELATIVE_MAJORITY)
    executed(zone, plan)
    lwm = zone.copy(0).lwm

    (done,) = executed(zone, plan).values()

    assert (done.done, zone.copy(0).lwm) == (Done.REPAIRED, lwm)


def test_a_primary_that_stays_is_named_when_the_time_is_over(zone: RepairedZone) -> None:
    damage(zone, 0, KEYS[1])
    plan = planned(zone, Strategy.RELATIVE_MAJORITY)
    zone.agents[0].on_ask = lambda m: HandedOver() if isinstance(m, HandOver) else ...

    (done,) = executed(zone, plan).values()

    assert done.done is Done.FAILED
    assert done.detail == "not within 1 s: it waits for another primary than agent-0"


def test_keys_of_a_partition_wait_for_its_primary_once(zone: RepairedZone) -> None:
    """Else one such partition has the time of all others."""
    for key in KEYS[1:4]:
        damage(zone, 0, key)
    plan = planned(zone, Strategy.RELATIVE_MAJORITY)
    zone.agents[0].on_ask = lambda m: HandedOver() if isinstance(m, HandOver) else ...

    first, second, third = execute(plan, zone.copies, QUICK, WAIT_S)

    assert first.detail == "not within 1 s: it waits for another primary than agent-0"
    later = "it waits for another primary than agent-0; a key before it waited 1 s"
    assert (second.detail, third.detail) == (later, later)


def test_a_partition_that_is_served_again_has_its_keys_repaired(zone: RepairedZone) -> None:
    for key in KEYS[1:4]:
        damage(zone, 0, key)
    plan = planned(zone, Strategy.RELATIVE_MAJORITY)
    answer = zone.agents[0].on_ask
    zone.agents[0].on_ask = lambda m: HandedOver() if isinstance(m, HandOver) else ...
    done = []
    for each in execute(plan, zone.copies, QUICK, WAIT_S):
        done.append(each.done)
        if len(done) == 2:  # it hands over at last
            other = zone.copy(1)
            other.replica_index, zone.copy(0).replica_index = 0, other.replica_index
            zone.agents[0].on_ask = answer

    assert done == [Done.FAILED, Done.FAILED, Done.REPAIRED]


def test_an_agent_that_does_not_answer_is_left_out_for_a_while(zone: RepairedZone) -> None:
    damage(zone, 0, KEYS[1])
    plan = planned(zone, Strategy.RELATIVE_MAJORITY)
    zone.agents[0].on_ask = lambda m: HandedOver() if isinstance(m, HandOver) else ...
    zone.agents[2].on_ask = lambda m: None  # hangs up
    before = len(zone.agents[2].asked)

    (done,) = executed(zone, plan).values()

    assert done.done is Done.FAILED
    assert len(zone.agents[2].asked) == before + 2, "one greeting and one question"


def test_what_the_primary_refuses_is_said(zone: RepairedZone) -> None:
    damage(zone, 1, KEYS[1])
    plan = planned(zone, Strategy.RELATIVE_MAJORITY)
    zone.agents[0].on_ask = lambda m: (
        KeyRepaired(problem="no room on agent-0") if isinstance(m, RepairKey) else ...
    )

    (done,) = executed(zone, plan).values()

    assert (done.done, done.detail) == (Done.FAILED, "agent-0: no room on agent-0")


def test_an_agent_of_an_earlier_format_is_to_be_upgraded(zone: RepairedZone) -> None:
    damage(zone, 1, KEYS[1])
    plan = planned(zone, Strategy.RELATIVE_MAJORITY)
    zone.agents[0].formats = zone.agents[0].formats._replace(highest=4)

    (done,) = executed(zone, plan).values()

    assert done.done is Done.FAILED
    assert "format version 4, which has no RepairKey: upgrade the agent" in done.detail


def test_a_limited_repair_says_which_agent_cannot_hold_the_limit(zone: RepairedZone) -> None:
    damage(zone, 1, KEYS[1])
    plan = planned(zone, Strategy.RELATIVE_MAJORITY)
    limited = replace(QUICK, max_mib_per_second_per_agent=8)
    zone.agents[1].formats = Formats(2, 7)
    (done,) = execute(plan, zone.copies, limited, WAIT_S)
    assert done.done is Done.REPAIRED, "the value is read of another agent"

    damage(zone, 1, KEYS[2])
    plan = planned(zone, Strategy.RELATIVE_MAJORITY)
    for agent in zone.agents:
        agent.formats = Formats(2, 7)
    (done,) = execute(plan, zone.copies, limited, WAIT_S)

    assert done.done is Done.FAILED
    assert "in which no reading is paced: upgrade the agent" in done.detail


def test_an_answer_that_is_lost_is_asked_for_again_and_nothing_is_written_twice(
    zone: RepairedZone,
) -> None:
    damage(zone, 1, KEYS[1])
    plan = planned(zone, Strategy.RELATIVE_MAJORITY)
    answer, lost = zone.agents[0].on_ask, []
    assert answer is not None

    def once_lost(message: Message) -> Message | bytes | EllipsisType | None:
        told = answer(message)
        if isinstance(message, RepairKey) and not lost:
            lost.append(message)
            return None  # hangs up
        return told

    zone.agents[0].on_ask = once_lost
    lwm = zone.copy(0).lwm

    (done,) = executed(zone, plan).values()

    assert (done.done, zone.copy(0).lwm) == (Done.REPAIRED, lwm + 1)


def test_a_primary_without_a_copy_in_the_plan_needs_another_plan(zone: RepairedZone) -> None:
    damage(zone, 1, KEYS[1])
    (plan,) = planned(zone, Strategy.REMOVE)
    kept = tuple(copy for copy in plan.copies if copy.node != "agent-0")

    (done,) = executed(zone, [msgspec.structs.replace(plan, copies=kept)]).values()

    assert done.done is Done.FAILED
    assert "make another plan" in done.detail


def test_a_key_that_was_perhaps_written_is_not_called_unwritten(zone: RepairedZone) -> None:
    """Its primary was asked, and answers nothing any more."""
    damage(zone, 1, KEYS[1])
    plan = planned(zone, Strategy.RELATIVE_MAJORITY)
    zone.agents[0].on_ask = lambda m: None if isinstance(m, RepairKey) else ...

    (done,) = executed(zone, plan).values()

    assert done.done is Done.UNKNOWN
    assert "it waits for an answer of agent-0" in done.detail


def lost_once(zone: RepairedZone, then: Callable[[], None]) -> None:
    """The first answer to a write is lost; `then` is called in that moment."""
    answer = zone.agents[0].on_ask
    assert answer is not None

    def on_ask(message: Message) -> Message | bytes | EllipsisType | None:
        told = answer(message)
        if isinstance(message, RepairKey):
            zone.agents[0].on_ask = answer
            then()
            return None  # hangs up
        return told

    zone.agents[0].on_ask = on_ask


def test_a_key_is_perhaps_written_also_if_the_next_primary_has_no_copy_in_the_plan(
    zone: RepairedZone,
) -> None:
    damage(zone, 2, KEYS[1])
    (plan,) = planned(zone, Strategy.REMOVE)
    kept = tuple(copy for copy in plan.copies if copy.node != "agent-1")

    def hand_over() -> None:
        zone.copy(0).replica_index, zone.copy(1).replica_index = 1, 0

    lost_once(zone, hand_over)

    (done,) = executed(zone, [msgspec.structs.replace(plan, copies=kept)]).values()

    assert done.done is Done.UNKNOWN
    assert "its primary is agent-1 now" in done.detail


def test_a_key_is_perhaps_written_also_if_its_agent_is_replaced_by_an_earlier_one(
    zone: RepairedZone,
) -> None:
    damage(zone, 1, KEYS[1])
    plan = planned(zone, Strategy.RELATIVE_MAJORITY)

    def downgrade() -> None:
        zone.agents[0].formats = zone.agents[0].formats._replace(highest=4)

    lost_once(zone, downgrade)

    (done,) = executed(zone, plan).values()

    assert done.done is Done.UNKNOWN
    assert "upgrade the agent" in done.detail


def test_a_key_is_perhaps_written_also_if_the_next_primary_cannot_hand_over(
    zone: RepairedZone,
) -> None:
    """The next primary has the wrong row: the lost write was never replicated to it."""
    damage(zone, 1, KEYS[1])
    plan = planned(zone, Strategy.RELATIVE_MAJORITY)

    def hand_over() -> None:
        zone.copy(0).replica_index, zone.copy(1).replica_index = 1, 0

    lost_once(zone, hand_over)
    zone.agents[1].on_ask = lambda m: (
        HandedOver(problem="it is being drained") if isinstance(m, HandOver) else ...
    )

    (done,) = executed(zone, plan).values()

    assert (done.done, done.detail) == (Done.UNKNOWN, "agent-1: it is being drained")
