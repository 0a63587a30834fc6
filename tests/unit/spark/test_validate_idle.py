"""Mode idle over scripted agents, at each level: nothing may change from first to last reading."""

import time
from collections.abc import Callable
from dataclasses import replace
from types import EllipsisType

import msgspec
import pytest

from quorate.facts.copy_state import State
from quorate.facts.lineage import Entry, Lineage
from quorate.protocol.messages.formats import Formats
from quorate.protocol.messages.handshake import Hello, Refused
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.tools import AskCopies, AskDigests, AskRows, Copies
from quorate.protocol.transactions.parts import INDEX_KEY
from quorate_spark.comparing.idle import change_of
from quorate_spark.copies import CopySeen
from quorate_spark.passes.digest_scan import DigestScan
from quorate_spark.settings import Settings
from quorate_spark.validate import Validation
from quorate_spark.verdict import Level, Mode, Outcome, Verdict
from quorate_spark_fixtures.scripted_agent import Answer, ScriptedCopy
from quorate_spark_fixtures.scripted_zone import QUICK, PlainRowScan, ScriptedZone, listening

SETTINGS = replace(QUICK, idle_s=0.05)
LEVELS = [Level.COUNTERS, Level.DIGEST, Level.ROWS]
WITH_ROWS = LEVELS[1:]
KEYS = 20
MOVED = "a copy moved or its agent was restarted"


def filled(partitions: int = 2) -> ScriptedZone:
    zone = ScriptedZone(partitions=partitions)
    for partition in range(partitions):
        for index in range(KEYS):
            zone.write(b"key-%02d" % index, b"value-%d" % index, partition)
    return zone


def validate(zone: ScriptedZone, level: Level, settings: Settings = SETTINGS) -> Verdict:
    copies = zone.copies
    validation = Validation(copies, settings, mode=Mode.IDLE)
    if level is Level.COUNTERS:
        return validation.run(None)
    if level is Level.ROWS:
        return validation.run(PlainRowScan(copies, settings))
    scan = DigestScan(copies, settings, mode=Mode.IDLE)
    verdict = validation.run(scan, Level.DIGEST)
    return scan.figures_added(verdict, validation.confirmed_partitions)


def after_the_first_reading(zone: ScriptedZone, change: Callable[[], object]) -> None:
    """Make the change when the last agent was asked for all its copies."""
    left = [change]

    def on_ask(message: Message) -> Answer | EllipsisType:
        agent = zone.agents[-1]
        if isinstance(message, AskCopies) and message.partition is None and left:
            states = tuple(copy.state(p) for p, copy in sorted(agent.copies.items()))
            left.pop()()
            return Copies(message.zone_name, agent.name, states)
        return ...

    zone.agents[-1].on_ask = on_ask


@pytest.mark.parametrize("level", LEVELS)
def test_equal_copies_agree(level: Level) -> None:
    with listening(filled()) as zone:
        zone.write(b"key-04", None)
        zone.purge(1)
        verdict = validate(zone, level)

    assert verdict.outcome is Outcome.AGREE, verdict.reasons
    assert (verdict.mode, verdict.level) == (Mode.IDLE, level)
    assert verdict.unsettled_keys == 0
    assert verdict.changes == ()


@pytest.mark.parametrize("level", LEVELS)
def test_an_update_while_it_runs_leaves_that_partition_open(level: Level) -> None:
    with listening(filled()) as zone:
        after_the_first_reading(zone, lambda: zone.write(b"key-05", b"new", partition=1))
        verdict = validate(zone, level)

    assert verdict.outcome is Outcome.UNKNOWN
    [reason] = verdict.reasons
    assert reason == (
        "partition 1 of zone z: updates came while it ran (agent-0: LWM 20 HWM 20, then LWM 21 HWM"
        " 21; agent-1: LWM 20 HWM 20, then LWM 21 HWM 21; agent-2: LWM 20 HWM 20, then LWM 21 HWM"
        " 21)"
    )
    assert verdict.classes == {"skipped": 1}
    assert verdict.changed_partitions == 1
    assert [(change.partition, change.node) for change in verdict.changes] == [
        (1, "agent-0"),
        (1, "agent-1"),
        (1, "agent-2"),
    ]
    for change in verdict.changes:
        assert change.before is not None
        assert change.after is not None
        assert (change.before.lwm, change.after.lwm) == (20, 21)
    assert "keys that have expired" in verdict.notes[-1]


def test_changes_are_listed_by_whole_partitions() -> None:
    """Four changes may be listed; a partition has three copies."""

    def write() -> None:
        for partition in range(4):
            zone.write(b"key-05", b"new", partition)

    with listening(filled(4)) as zone:
        after_the_first_reading(zone, write)
        found = [validate(zone, Level.COUNTERS, replace(SETTINGS, differences_max=4))]
        after_the_first_reading(zone, write)
        found.append(validate(zone, Level.COUNTERS, replace(SETTINGS, differences_max=1)))
        after_the_first_reading(zone, write)
        found.append(validate(zone, Level.COUNTERS, replace(SETTINGS, differences_max=6)))

    listed = [[change.partition for change in each.changes] for each in found]
    assert listed == [[0] * 3, [0] * 3, [0] * 3 + [1] * 3]
    assert [each.changed_partitions for each in found] == [4, 4, 4]


@pytest.mark.parametrize("level", LEVELS)
def test_counters_that_only_the_last_reading_shows_count(level: Level) -> None:
    """At each level there is a reading of counters after all else was read."""
    with listening(filled(1)) as zone:
        scanned = {Level.COUNTERS: AskCopies, Level.DIGEST: AskDigests, Level.ROWS: AskRows}[level]
        left = [lambda: zone.write(b"key-05", b"value-5")]

        def on_ask(message: Message) -> Answer | EllipsisType:
            if isinstance(message, scanned) and len(zone.agents[2].asked) > 3 and left:
                left.pop()()
            return ...

        zone.agents[2].on_ask = on_ask
        verdict = validate(zone, level)

    assert left == []
    assert verdict.outcome is Outcome.UNKNOWN
    assert "updates came while it ran" in verdict.reasons[0]


@pytest.mark.parametrize("level", LEVELS)
def test_an_update_that_damages_nothing_settled_is_no_difference(level: Level) -> None:
    """One copy has it and the others have not, as while it is on its way."""
    with listening(filled(1)) as zone:
        after_the_first_reading(zone, lambda: zone.write(b"key-05", b"new", on=(0,)))
        verdict = validate(zone, level)

    assert verdict.outcome is Outcome.UNKNOWN
    assert "(agent-0: LWM 20 HWM 20, then LWM 21 HWM 21)" in verdict.reasons[0]


@pytest.mark.parametrize("level", WITH_ROWS)
def test_a_damaged_row_is_found_without_a_mark_and_in_one_pass(level: Level) -> None:
    with listening(filled()) as zone:
        zone.copy(1, 1).rows[b"key-07"] = (8, 3, 0, b"damaged")
        verdict = validate(zone, level)

        digests = [m for a in zone.agents for m in a.asked if isinstance(m, AskDigests)]
    assert verdict.outcome is Outcome.DIFFER
    [difference] = verdict.key_differences
    assert (difference.partition, difference.key, difference.what) == (1, "key-07", ("value",))
    assert [copy.value_bytes for copy in difference.copies] == [7, 7, 7]
    assert verdict.reasons == ()
    assert not any(any(message.marks) for message in digests)


def test_digests_of_different_counters_are_not_told_again_by_a_mark() -> None:
    with listening(filled(1)) as zone:
        left = [lambda: zone.write(b"key-05", b"new")]

        def on_ask(message: Message) -> Answer | EllipsisType:
            if isinstance(message, AskDigests) and left:
                left.pop()()
            return ...

        zone.agents[1].on_ask = on_ask
        verdict = validate(zone, Level.DIGEST)

        digests = [m for a in zone.agents for m in a.asked if isinstance(m, AskDigests)]
    assert verdict.outcome is Outcome.UNKNOWN
    assert "updates came while it ran" in verdict.reasons[0]
    assert [message.marks for message in digests] == [(0,)] * 3


@pytest.mark.parametrize("level", LEVELS)
def test_the_time_between_the_readings_counts_from_the_first_that_was_answered(
    level: Level,
) -> None:
    """An agent that was restarting at first is asked again for longer than that time."""
    asked: list[float] = []
    answered: list[float] = []

    def on_ask(message: Message) -> Answer | EllipsisType:
        if not isinstance(message, AskCopies) or message.partition is not None:
            return ...
        asked.append(time.monotonic())
        if asked[-1] < asked[0] + 1.2:
            return None
        answered.append(asked[-1])
        return ...

    with listening(filled(1)) as zone:
        zone.agents[-1].on_ask = on_ask
        verdict = validate(zone, level, replace(SETTINGS, settle_timeout_s=30.0, idle_s=1.0))

    assert verdict.outcome is Outcome.AGREE, verdict.reasons
    assert len(asked) > len(answered)
    assert answered[-1] - answered[0] >= 1.0


@pytest.mark.parametrize("level", WITH_ROWS)
def test_damage_in_a_partition_that_was_written_to_is_not_proven(level: Level) -> None:
    with listening(filled(1)) as zone:
        zone.copy(1).rows[b"key-07"] = (8, 3, 0, b"damaged")
        after_the_first_reading(zone, lambda: zone.write(b"key-05", b"new"))
        verdict = validate(zone, level)

    assert verdict.outcome is Outcome.UNKNOWN
    assert verdict.key_differences == ()


@pytest.mark.parametrize("level", WITH_ROWS)
def test_rows_above_all_counters_are_not_left_out(level: Level) -> None:
    with listening(filled(1)) as zone:
        zone.copy(2).rows[b"key-03"] = (999, 3, 0, b"from nowhere")
        zone.copy(2).rows[b"key-04"] = (998, 3, 0, b"from nowhere")
        verdict = validate(zone, level)

    assert verdict.outcome is Outcome.DIFFER
    assert [(d.key, d.what) for d in verdict.key_differences] == [("key-03", ("hwm",))]
    assert (verdict.unsettled_keys, verdict.differing_keys) == (0, 2)


def test_an_update_while_rows_are_read_to_be_shown_counts() -> None:
    with listening(filled(1)) as zone:
        zone.copy(1).rows[b"key-07"] = (8, 3, 0, b"damaged")
        left = [lambda: zone.write(b"key-05", b"new")]

        def on_ask(message: Message) -> Answer | EllipsisType:
            if isinstance(message, AskRows) and message.bytes_max == 1 and left:
                left.pop()()
            return ...

        zone.agents[2].on_ask = on_ask
        verdict = validate(zone, Level.ROWS)

    assert left == []
    assert verdict.outcome is Outcome.UNKNOWN
    assert "updates came while it ran" in verdict.reasons[0]


def test_a_difference_that_is_gone_without_an_update_is_no_agreement() -> None:
    with listening(filled(1)) as zone:
        zone.copy(1).rows[b"key-07"] = (8, 3, 0, b"damaged")

        def heal(copy: CopySeen) -> None:
            if copy.node == "agent-2":
                zone.copy(1).rows[b"key-07"] = zone.copy(0).rows[b"key-07"]

        scan = PlainRowScan(zone.copies, SETTINGS, heal)
        verdict = Validation(zone.copies, SETTINGS, mode=Mode.IDLE).run(scan)

    assert verdict.outcome is Outcome.UNKNOWN
    assert "1 keys differed when they were first read and no more" in verdict.reasons[0]
    assert "no counter has changed" in verdict.reasons[0]


@pytest.mark.parametrize("level", LEVELS)
def test_a_copy_that_stays_behind_differs(level: Level) -> None:
    with listening(filled()) as zone:
        zone.write(b"key-05", b"new", on=(0, 1))
        verdict = validate(zone, level)

    assert verdict.outcome is Outcome.DIFFER
    [difference] = verdict.counter_differences
    assert difference.detail == "agent-2 stays at LWM 20 of 21 and lacks 21"


@pytest.mark.parametrize("level", LEVELS)
def test_a_counter_that_no_copy_has_differs(level: Level) -> None:
    with listening(filled(1)) as zone:
        zone.copy(0).hwm = 22
        verdict = validate(zone, level)

    assert verdict.outcome is Outcome.DIFFER
    assert verdict.counter_differences[0].what == "hwm"


@pytest.mark.parametrize("level", LEVELS)
def test_a_copy_that_catches_up_is_not_waited_for(level: Level) -> None:
    with listening(filled(1)) as zone:
        counter = zone.write(b"key-05", b"new", on=(0, 1))
        after_the_first_reading(zone, lambda: zone.apply(2, counter, b"key-05", b"new"))
        verdict = validate(zone, level)

    assert verdict.outcome is Outcome.UNKNOWN
    assert "(agent-2: LWM 20 HWM 20, then LWM 21 HWM 21)" in verdict.reasons[0]


@pytest.mark.parametrize("level", LEVELS)
def test_a_copy_that_moves_leaves_its_partition_open(level: Level) -> None:
    def next_version() -> None:
        for agent in range(3):
            zone.copy(agent, 1).version += 1

    with listening(filled()) as zone:
        after_the_first_reading(zone, next_version)
        verdict = validate(zone, level)

    assert verdict.outcome is Outcome.UNKNOWN
    [reason] = verdict.reasons
    assert reason.startswith(f"partition 1 of zone z: {MOVED} while it ran (agent-0: replica 0")
    assert "version 3 term 3, LWM 20 HWM 20, then replica 0 version 4 term 3" in reason


def test_copies_of_different_terms_are_not_waited_for() -> None:
    with listening(filled(1)) as zone:
        zone.copy(1).term = 4
        verdict = validate(zone, Level.COUNTERS)

    assert verdict.outcome is Outcome.UNKNOWN
    assert "its primary is being activated" in verdict.reasons[0]


@pytest.mark.parametrize(
    ("state", "outcome"), [(State.MOVING, Outcome.UNKNOWN), (State.RENTING, Outcome.AGREE)]
)
def test_a_copy_that_is_being_filled_is_not_settled(state: State, outcome: Outcome) -> None:
    """One that is about to be deleted is none any more."""
    with listening(filled(1)) as zone:
        stray = msgspec.structs.replace(ScriptedCopy(-1, lwm=3).state(0), state=state)
        last = zone.agents[2]

        def on_ask(message: Message) -> Answer | EllipsisType:
            if isinstance(message, AskCopies):
                return Copies(message.zone_name, last.name, (stray,))
            return ...

        last.on_ask = on_ask
        verdict = validate(zone, Level.COUNTERS)

    assert verdict.outcome is outcome
    said = "partition 0 of zone z: not settled: a copy on agent-2 is being filled"
    assert verdict.reasons == ((said,) if state is State.MOVING else ())


@pytest.mark.parametrize("level", LEVELS)
def test_an_open_transaction_is_not_settled(level: Level) -> None:
    with listening(filled()) as zone:
        zone.write(INDEX_KEY, msgspec.msgpack.encode((b"one", b"two")), partition=1)
        verdict = validate(zone, level)
        zone.write(INDEX_KEY, None, partition=1)
        after = validate(zone, level)

    assert verdict.outcome is Outcome.UNKNOWN
    [reason] = verdict.reasons
    assert reason.startswith("partition 1 of zone z: not settled: 2 transactions are not finished")
    assert after.outcome is Outcome.AGREE


UNTOLD = "partition {} of zone z: whether transactions are finished is not known: {}"


def with_damage() -> ScriptedZone:
    """Two partitions; the first one has a damaged row."""
    zone = filled()
    zone.copy(2).rows[b"key-07"] = (8, 3, 0, b"damaged")
    return zone


@pytest.mark.parametrize("level", LEVELS)
def test_a_damaged_list_of_transactions_leaves_its_partition_open_and_no_other(
    level: Level,
) -> None:
    with listening(with_damage()) as zone:
        zone.write(INDEX_KEY, b"damaged", partition=1)
        verdict = validate(zone, level)

    assert verdict.outcome is (Outcome.UNKNOWN if level is Level.COUNTERS else Outcome.DIFFER)
    said = "the row of agent-0 that lists them is damaged; mode live compares it"
    assert verdict.reasons == (UNTOLD.format(1, said),)
    assert [d.key for d in verdict.key_differences] == ["key-07"] * (level is not Level.COUNTERS)


@pytest.mark.parametrize("level", WITH_ROWS)
def test_a_list_of_transactions_that_cannot_be_read_leaves_its_partition_open_and_no_other(
    level: Level,
) -> None:
    left = [1]

    def on_ask(message: Message) -> Answer | EllipsisType:
        if isinstance(message, AskRows) and message.partition == 1 and left:
            left.pop()
            return None
        return ...

    with listening(with_damage()) as zone:
        zone.agents[0].on_ask = on_ask
        verdict = validate(zone, level)

    assert verdict.outcome is Outcome.DIFFER
    [reason] = verdict.reasons
    assert reason.startswith(UNTOLD.format(1, "agent agent-0"))
    assert [d.key for d in verdict.key_differences] == ["key-07"]


def test_an_agent_out_of_reach_is_asked_for_its_lists_of_transactions_once() -> None:
    was_read, refused = [], []

    def on_ask(message: Message) -> Answer | EllipsisType:
        was_read.append(isinstance(message, AskCopies))
        if isinstance(message, Hello) and any(was_read) and not refused:
            refused.append(message)
            return Refused("busy")
        return ...

    with listening(filled(2)) as zone:
        zone.agents[0].on_ask = on_ask
        verdict = validate(zone, Level.COUNTERS)

    assert verdict.outcome is Outcome.UNKNOWN
    assert len(verdict.reasons) == 2
    for partition, reason in enumerate(verdict.reasons):
        assert reason.startswith(UNTOLD.format(partition, ""))
        assert "busy" in reason


@pytest.mark.parametrize("level", [Level.COUNTERS, Level.DIGEST])
def test_with_a_limit_agents_that_hold_none_are_asked_for_transactions(level: Level) -> None:
    with listening(filled()) as zone:
        for agent in zone.agents:
            agent.formats = Formats(2, 7)
        verdict = validate(zone, level, replace(SETTINGS, max_mib_per_second_per_agent=8))

    assert verdict.outcome is Outcome.AGREE, verdict.reasons


@pytest.mark.parametrize("level", Level)
def test_a_zone_that_was_created_again_is_another_one(level: Level) -> None:
    def again() -> None:
        for agent in zone.agents:
            agent.uid = "second"

    with listening(filled(1)) as zone:
        for agent in zone.agents:
            agent.uid = "first"
        after_the_first_reading(zone, again)
        verdict = validate(zone, level)

    assert verdict.outcome is Outcome.UNKNOWN
    assert verdict.reasons[0] == "zone z: was created again while it ran"


def seen(copy: ScriptedCopy, incarnation: int = 1) -> CopySeen:
    return CopySeen("127.0.0.1:1", "agent-0", "s", incarnation, copy.state(0))


def test_what_is_no_change_and_what_is() -> None:
    before = seen(ScriptedCopy(lwm=9, lineage=Lineage(0, 0, (Entry(2, 1), Entry(3, 5)))))
    folded = seen(ScriptedCopy(lwm=9, lineage=Lineage(2, 4, (Entry(3, 5),))))
    other = seen(ScriptedCopy(lwm=9, lineage=Lineage(0, 0, (Entry(2, 1), Entry(3, 6)))))
    held = seen(ScriptedCopy(lwm=9, above=((11, 12),)))

    assert change_of("z", 0, (before,), (folded,)) is None
    for after in (other, held):
        found = change_of("z", 0, (before,), (after,))
        assert found is not None
        assert "updates came" in found.reason
    restarted = change_of("z", 0, (before,), (before._replace(incarnation=2),))
    assert restarted is not None
    assert f"{MOVED} while it ran (agent-0 was restarted or replaced" in restarted.reason
    gone = change_of("z", 0, (before,), ())
    assert gone is not None
    assert "(agent-0 has no copy now)" in gone.reason
    assert gone.changes[0].after is None
