"""The whole validation over scripted agents, without Spark: what is damage and what is not."""

from collections.abc import Callable
from dataclasses import replace
from types import EllipsisType

import pytest

from quorate.facts.lineage import Entry, Lineage
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.tools import AskRows
from quorate_spark.copies import CopySeen
from quorate_spark.settings import Settings
from quorate_spark.validate import Validation
from quorate_spark.verdict import Level, Outcome, Verdict
from quorate_spark_fixtures.scripted_agent import Answer
from quorate_spark_fixtures.scripted_zone import QUICK, PlainRowScan, ScriptedZone, listening


def filled(**fields: int) -> ScriptedZone:
    zone = ScriptedZone(**fields)
    for index in range(20):
        zone.write(b"key-%02d" % index, b"value-%d" % index)
    return zone


def after_first_copy(action: Callable[[], object]) -> Callable[[CopySeen], None]:
    """Run `action` once, when the first copy has been read."""
    left = [action]

    def between(copy: CopySeen) -> None:
        if left:
            left.pop()()

    return between


def no_change(copy: CopySeen) -> None:
    pass


def validate(
    zone: ScriptedZone,
    between: Callable[[CopySeen], None] = no_change,
    settings: Settings = QUICK,
) -> Verdict:
    scan = PlainRowScan(zone.copies, settings, between)
    return Validation(zone.copies, settings).run(scan)


def test_equal_copies_agree_and_every_key_is_counted() -> None:
    with listening(filled(partitions=2)) as zone:
        zone.write(b"other", b"x", partition=1)
        verdict = validate(zone)

    assert verdict.outcome is Outcome.AGREE
    assert (verdict.partitions, verdict.copies, verdict.settled_keys) == (2, 6, 21)
    assert (verdict.unsettled_keys, verdict.differing_keys) == (0, 0)


def test_a_damaged_row_is_reported_with_its_key_partition_and_nodes() -> None:
    with listening(filled()) as zone:
        zone.copy(1).rows[b"key-07"] = (8, 3, 0, b"damaged")
        verdict = validate(zone)

    assert verdict.outcome is Outcome.DIFFER
    [difference] = verdict.key_differences
    assert (difference.partition, difference.key, difference.what) == (0, "key-07", ("value",))
    assert [copy.node for copy in difference.copies] == ["agent-0", "agent-1", "agent-2"]
    assert [copy.value_bytes for copy in difference.copies] == [7, 7, 7]
    assert len({copy.value_sha256 for copy in difference.copies}) == 2
    assert verdict.settled_keys == 19


@pytest.mark.parametrize("is_damaged", [False, True])
def test_rows_of_two_zones_of_one_name_prove_nothing(is_damaged: bool) -> None:
    def again() -> None:
        for agent in zone.agents:
            agent.uid = "second"

    with listening(filled()) as zone:
        for agent in zone.agents:
            agent.uid = "first"
        if is_damaged:
            zone.copy(1).rows[b"key-07"] = (8, 3, 0, b"damaged")
        verdict = validate(zone, after_first_copy(again))

    assert verdict.outcome is Outcome.UNKNOWN
    assert verdict.reasons == ("zone z: was created again while it ran",)
    assert verdict.zone_uid == "second"


def test_an_agent_that_begins_to_tell_the_uid_is_of_the_same_zone() -> None:
    def upgrade() -> None:
        zone.agents[0].uid = "first"

    with listening(filled()) as zone:
        zone.agents[0].uid, zone.agents[1].uid, zone.agents[2].uid = "", "first", "first"
        verdict = validate(zone, after_first_copy(upgrade))

    assert verdict.outcome is Outcome.AGREE


def test_a_lost_row_and_a_lost_delete_are_damage() -> None:
    with listening(filled()) as zone:
        del zone.copy(2).rows[b"key-03"]
        zone.write(b"key-04", None)
        zone.copy(1).rows[b"key-04"] = (5, 3, 0, b"value-4")
        zone.purge(0)
        verdict = validate(zone)

    assert {d.key: d.what for d in verdict.key_differences} == {
        "key-03": ("missing",),
        "key-04": ("missing", "tombstone", "counter"),
    }


def test_a_row_with_a_counter_that_nobody_gave_out_is_damage() -> None:
    with listening(filled()) as zone:
        zone.copy(2).rows[b"key-03"] = (999, 3, 0, b"from nowhere")
        verdict = validate(zone)

    assert verdict.outcome is Outcome.DIFFER
    assert [(d.key, d.what) for d in verdict.key_differences] == [("key-03", ("hwm",))]
    assert (verdict.settled_keys, verdict.unsettled_keys, verdict.differing_keys) == (19, 0, 1)


def test_a_purged_tombstone_is_no_damage() -> None:
    with listening(filled()) as zone:
        zone.write(b"key-04", None)
        zone.purge(1)
        verdict = validate(zone)

    assert verdict.outcome is Outcome.AGREE


def test_a_key_overwritten_between_two_copies_is_unsettled() -> None:
    with listening(filled()) as zone:
        verdict = validate(zone, after_first_copy(lambda: zone.write(b"key-05", b"new")))

    assert verdict.outcome is Outcome.AGREE
    assert (verdict.settled_keys, verdict.unsettled_keys) == (19, 1)


def test_a_key_deleted_and_purged_between_two_copies_is_no_damage() -> None:
    def delete_for_good() -> None:
        zone.write(b"key-05", None)
        for agent in range(3):
            zone.purge(agent)

    with listening(filled()) as zone:
        verdict = validate(zone, after_first_copy(delete_for_good))

    assert verdict.outcome is Outcome.AGREE
    assert "1 keys differed when they were first read and no more" in verdict.notes[0]


def test_a_flush_between_two_copies_is_no_damage() -> None:
    with listening(filled()) as zone:
        verdict = validate(zone, after_first_copy(lambda: zone.flush()))

    assert verdict.outcome is Outcome.AGREE
    assert verdict.differing_keys == 0


def test_a_flush_of_more_keys_than_can_be_read_again_is_read_anew() -> None:
    settings = Settings(2.0, 2.0, 0.3, 0.01, 64, rechecks_max=5, differences_max=5)
    with listening(filled()) as zone:
        scan = PlainRowScan(zone.copies, settings, after_first_copy(lambda: zone.flush()))
        verdict = Validation(zone.copies, settings).run(scan)

    assert verdict.outcome is Outcome.AGREE
    assert scan.calls == [(0,), (0,)]


def test_a_flush_that_one_copy_lost_is_damage() -> None:
    with listening(filled()) as zone:
        counter = zone.flush(on=(0, 1))
        zone.copy(2).lwm = counter
        verdict = validate(zone)

    assert verdict.outcome is Outcome.DIFFER
    assert verdict.differing_keys == 20


def test_a_copy_that_is_behind_while_its_lwm_advances_is_waited_for() -> None:
    with listening(filled()) as zone:
        counter = zone.write(b"key-05", b"new", on=(0, 1))
        asked: list[Message] = []

        def catch_up(message: Message) -> Answer | EllipsisType:
            asked.append(message)
            if len(asked) == 6:
                zone.apply(2, counter, b"key-05", b"new")
            return ...

        zone.agents[2].on_ask = catch_up
        verdict = validate(zone)

    assert verdict.outcome is Outcome.AGREE
    assert verdict.settled_keys == 20


def test_a_copy_that_stays_behind_differs_in_its_counters() -> None:
    with listening(filled()) as zone:
        zone.write(b"key-05", b"new", on=(0, 1))
        verdict = validate(zone)

    assert verdict.outcome is Outcome.DIFFER
    [difference] = verdict.counter_differences
    assert difference.detail == "agent-2 stays at LWM 20 of 21 and lacks 21"


def test_an_agent_that_cannot_be_reached_leaves_the_verdict_open() -> None:
    with listening(filled()) as zone:
        zone.agents[1].end()
        verdict = validate(zone)

    assert verdict.outcome is Outcome.UNKNOWN
    assert "cannot be reached" in verdict.reasons[0]


def test_a_copy_that_changes_its_owner_once_is_read_again() -> None:
    def new_version() -> None:
        for agent in range(3):
            zone.copy(agent).version += 1

    with listening(filled()) as zone:
        scan = PlainRowScan(zone.copies, QUICK, after_first_copy(new_version))
        verdict = Validation(zone.copies, QUICK).run(scan)

    assert verdict.outcome is Outcome.AGREE
    assert len(scan.calls) == 2


def test_a_copy_that_keeps_changing_its_owner_leaves_the_verdict_open() -> None:
    def new_version(copy: CopySeen) -> None:
        for agent in range(3):
            zone.copy(agent).version += 1

    with listening(filled()) as zone:
        verdict = validate(zone, new_version)

    assert verdict.outcome is Outcome.UNKNOWN
    assert verdict.reasons[0].startswith("partition 0: ")
    assert "changed its owner or term" in verdict.reasons[0]


def test_damage_is_reported_although_another_partition_cannot_be_told() -> None:
    def refuse(message: Message) -> Answer | EllipsisType:
        if isinstance(message, AskRows) and message.partition == 1:
            return None
        return ...

    with listening(filled(partitions=2)) as zone:
        zone.copy(1).rows[b"key-07"] = (8, 3, 0, b"damaged")
        zone.agents[2].on_ask = refuse
        verdict = validate(zone)

    assert verdict.outcome is Outcome.DIFFER
    assert len(verdict.key_differences) == 1
    assert "closed the connection during AskRows" in verdict.reasons[0]


def test_differences_are_listed_up_to_a_bound_and_counted_beyond() -> None:
    settings = Settings(2.0, 2.0, 0.3, 0.01, 64, rechecks_max=4, differences_max=3)
    with listening(filled()) as zone:
        zone.copy(1).rows.clear()
        verdict = validate(zone, settings=settings)

    assert verdict.outcome is Outcome.DIFFER
    assert len(verdict.key_differences) == 3
    assert (verdict.differing_keys, verdict.confirmed_keys) == (20, 4)


def test_a_single_copy_is_not_called_compared() -> None:
    with listening(filled(replicas=1)) as zone:
        verdict = validate(zone)

    assert verdict.outcome is Outcome.AGREE
    assert ["one copy only" in note for note in verdict.notes] == [True]


def test_a_copy_fewer_than_the_zone_declares_leaves_the_verdict_open() -> None:
    with listening(filled(replicas=2)) as zone:
        declared = replace(zone.copies, replicas=3)
        verdict = Validation(declared, QUICK).run(PlainRowScan(declared))

    assert verdict.outcome is Outcome.UNKNOWN
    assert "fewer than 3 copies" in verdict.reasons[0]
    assert verdict.settled_keys == 20


def test_level_counters_reads_no_rows() -> None:
    with listening(filled()) as zone:
        zone.copy(1).rows.clear()
        verdict = Validation(zone.copies, QUICK).run(None)

        assert verdict.outcome is Outcome.AGREE
        assert verdict.level is Level.COUNTERS
        assert not any(isinstance(asked, AskRows) for agent in zone.agents for asked in agent.asked)


def test_counters_of_a_copy_that_appears_while_the_wait_goes_on_are_compared() -> None:
    """The first readings have two copies of three; the third one has another history."""
    zone = filled()
    late, readings = zone.agents[2], []
    zone.copy(2).lineage = Lineage(0, 0, (Entry(2, 1), Entry(3, 5)))
    zone.copy(2).replica_index = -1

    def on_ask(message: Message) -> EllipsisType:
        readings.append(message)
        if len(readings) == 4:
            for index, agent in enumerate(zone.agents):
                agent.copies[0].version += 1
                agent.copies[0].replica_index = index
        return ...

    late.on_ask = on_ask
    with listening(zone):
        copies = replace(zone.copies, partitions=1, replicas=3)
        verdict = Validation(copies, replace(QUICK, settle_timeout_s=30.0)).run(None)

    assert verdict.outcome is Outcome.DIFFER
    assert [each.what for each in verdict.counter_differences] == ["lineage"]
