"""Level digest over scripted agents: which rows are read, what is damage, what cannot be told."""

import threading
from dataclasses import replace
from itertools import count
from types import EllipsisType

import msgspec
import pytest

from quorate.protocol.copies.totals import key_bucket
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.tools import AskBuckets, AskDigests, AskRows, Digests
from quorate_spark.passes.digest_scan import DigestScan
from quorate_spark.reading.watch_digests import watch_digests
from quorate_spark.report import report_json
from quorate_spark.settings import Settings
from quorate_spark.validate import Validation
from quorate_spark.verdict import DigestFigures, Level, Outcome, Verdict
from quorate_spark_fixtures.scripted_agent import Answer
from quorate_spark_fixtures.scripted_zone import QUICK, ScriptedZone, listening

KEYS = 40


def filled(replicas: int = 3, partitions: int = 1) -> ScriptedZone:
    zone = ScriptedZone(replicas, partitions)
    for partition in range(partitions):
        for index in range(KEYS):
            zone.write(b"key-%02d" % index, b"value-%d" % index, partition)
    return zone


def validate(zone: ScriptedZone, settings: Settings = QUICK) -> Verdict:
    scan, validation = DigestScan(zone.copies, settings), Validation(zone.copies, settings)
    verdict = validation.run(scan, Level.DIGEST)
    return scan.figures_added(verdict, validation.confirmed_partitions)


def figures(verdict: Verdict) -> DigestFigures:
    assert verdict.digests is not None
    return verdict.digests


def asked(zone: ScriptedZone, kind: type[Message]) -> list[Message]:
    return [m for agent in zone.agents for m in agent.asked if isinstance(m, kind)]


def rows_in(bucket: int) -> int:
    return sum(key_bucket(b"key-%02d" % index) == bucket for index in range(KEYS))


def test_equal_copies_agree_and_no_row_is_read() -> None:
    with listening(filled(partitions=2)) as zone:
        verdict = validate(zone)

        assert asked(zone, AskRows) == asked(zone, AskBuckets) == []
    assert (verdict.outcome, verdict.exit_code) == (Outcome.AGREE, 0)
    assert verdict.level is Level.DIGEST
    assert verdict.settled_keys == 2 * KEYS
    assert figures(verdict) == DigestFigures(2, 0, 2 * KEYS, 0, ())


def test_the_times_of_clients_while_it_ran_are_compared_with_those_of_before() -> None:
    zone = filled()
    for agent in zone.agents:
        agent.times = ((1000, 1000),), ()

    def more(message: Message) -> Answer | EllipsisType:
        if isinstance(message, AskDigests):
            zone.agents[0].times = ((1000, 1000), (5000, 500)), ()
        return ...

    zone.agents[0].on_ask = more
    with listening(zone):
        verdict = validate(zone)

    assert verdict.client_reads is not None
    assert (verdict.client_reads.commands, verdict.client_writes) == (500, None)
    assert verdict.client_reads.added_p99_ms > 3


def test_a_damaged_key_is_named_and_only_its_bucket_is_read() -> None:
    bucket = key_bucket(b"key-07")
    with listening(filled(partitions=2)) as zone:
        zone.copy(1, 1).rows[b"key-07"] = (8, 3, 0, b"damaged")
        verdict = validate(zone)

        first_reads = [m for m in asked(zone, AskRows) if isinstance(m, AskRows) and m.buckets]
        assert {(m.partition, m.buckets) for m in first_reads} == {(1, (bucket,))}
    assert (verdict.outcome, verdict.exit_code) == (Outcome.DIFFER, 1)
    [difference] = verdict.key_differences
    assert (difference.partition, difference.key, difference.what) == (1, "key-07", ("value",))
    told = figures(verdict)
    assert (told.partitions_compared, told.partitions_differing) == (2, 1)
    assert (told.rows_read, told.rows_unread) == (3 * rows_in(bucket), 2 * KEYS - rows_in(bucket))
    [differing] = told.differing
    assert (differing.partition, differing.counter) == (1, KEYS)
    assert (differing.buckets, differing.keys) == ((bucket,), ("key-07",))
    digests = {copy.node: copy.digest for copy in differing.copies}
    assert digests["agent-0"] == digests["agent-2"] != digests["agent-1"]
    assert b'"rows_unread": ' in report_json(verdict)


def test_copies_are_out_voted_in_partitions_of_which_no_key_is_listed() -> None:
    """The list of keys is full before the second partition, the one of partitions before the
    third."""
    with listening(filled(partitions=3)) as zone:
        for partition in range(3):
            for index in range(20):
                del zone.copy(2, partition).rows[b"key-%02d" % index]
        verdict = validate(zone, replace(QUICK, differences_max=2))

    assert {each.partition for each in verdict.key_differences} == {0}
    assert [(each.partition, each.node) for each in verdict.outvoted] == [
        (partition, "agent-2") for partition in range(3)
    ]
    told = figures(verdict)
    assert [(each.partition, each.confirmed, len(each.keys)) for each in told.differing] == [
        (0, True, 2),
        (1, True, 0),
    ]
    assert told.partitions_differing == 3


def test_a_missing_row_and_a_row_too_many_are_named() -> None:
    with listening(filled()) as zone:
        del zone.copy(2).rows[b"key-03"]
        zone.copy(0).rows[b"extra"] = (4, 3, 0, b"from nowhere")
        verdict = validate(zone)

    assert {d.key: d.what for d in verdict.key_differences} == {
        "extra": ("missing",),
        "key-03": ("missing",),
    }
    assert figures(verdict).differing[0].buckets == tuple(
        sorted({key_bucket(b"extra"), key_bucket(b"key-03")})
    )


@pytest.mark.parametrize("key", [b"key-03", b"extra"])
def test_a_row_with_a_counter_that_nobody_gave_out_is_named(key: bytes) -> None:
    with listening(filled()) as zone:
        zone.copy(2).rows[key] = (999, 3, 0, b"from nowhere")
        verdict = validate(zone)

    assert verdict.outcome is Outcome.DIFFER
    assert [(d.key, d.what) for d in verdict.key_differences] == [(key.decode(), ("hwm",))]


def test_a_purged_tombstone_is_no_damage() -> None:
    with listening(filled()) as zone:
        zone.write(b"key-04", None)
        zone.purge(1)
        verdict = validate(zone)

    assert verdict.outcome is Outcome.AGREE
    assert figures(verdict).rows_unread == KEYS - 1


@pytest.mark.parametrize("damaged", [False, True])
def test_where_no_two_copies_show_one_lwm_digests_are_compared_at_a_mark(damaged: bool) -> None:
    with listening(filled()) as zone:
        if damaged:
            zone.copy(2).rows[b"key-07"] = (8, 3, 0, b"damaged")
        write_before(zone, AskDigests)
        verdict = validate(zone)

        told = figures(verdict)
        lwms = zone.copy(0).lwm
    assert verdict.outcome is (Outcome.DIFFER if damaged else Outcome.AGREE), verdict
    assert [d.key for d in verdict.key_differences] == (["key-07"] if damaged else [])
    assert KEYS < (told.differing[0].counter if damaged else lwms) <= lwms


def test_buckets_that_differ_because_of_writes_are_not_read() -> None:
    with listening(filled()) as zone:
        zone.copy(2).rows[b"key-07"] = (8, 3, 0, b"damaged")
        left = [1]

        def write(message: Message) -> EllipsisType:
            if isinstance(message, AskBuckets) and left:
                left.pop()
                for index in range(20, 30):
                    zone.write(b"key-%02d" % index, b"new")
            return ...

        zone.agents[1].on_ask = write
        verdict = validate(zone)

    assert [d.key for d in verdict.key_differences] == ["key-07"]
    assert figures(verdict).differing[0].buckets == (key_bucket(b"key-07"),)


def test_a_row_that_is_overwritten_before_it_is_read_is_no_damage() -> None:
    with listening(filled()) as zone:
        zone.copy(2).rows[b"key-07"] = (8, 3, 0, b"damaged")
        left = [lambda: zone.write(b"key-07", b"new")]

        def heal(message: Message) -> Answer | EllipsisType:
            if isinstance(message, AskBuckets) and left:
                left.pop()()
            return ...

        zone.agents[0].on_ask = heal
        verdict = validate(zone)

    assert verdict.outcome is Outcome.AGREE
    assert figures(verdict) == DigestFigures(1, 0, KEYS, 0, ())


def test_digests_that_differ_over_equal_rows_leave_the_verdict_open() -> None:
    with listening(filled()) as zone:
        wrong = zone.agents[1]

        def lie(message: Message) -> Answer | EllipsisType:
            if not isinstance(message, AskDigests):
                return ...
            told = wrong.answer_digests(message)
            copies = tuple(msgspec.structs.replace(c, digest=b"x" * 16) for c in told.copies)
            return msgspec.structs.replace(told, copies=copies)

        wrong.on_ask = lie
        verdict = validate(zone)

    assert (verdict.outcome, verdict.exit_code) == (Outcome.UNKNOWN, 2)
    assert "digests differed at counter 40, and no row that differs was found" in verdict.reasons[0]
    assert "--level rows" in verdict.reasons[0]


def test_a_copy_that_never_reaches_the_mark_leaves_the_verdict_open() -> None:
    with listening(filled()) as zone:
        slow = zone.agents[2]

        def stand_still(message: Message) -> Answer | EllipsisType:
            if not isinstance(message, AskDigests):
                return ...
            told = slow.answer_digests(message)
            copies = tuple(msgspec.structs.replace(c, lwm=5, mark=0) for c in told.copies)
            return msgspec.structs.replace(told, copies=copies)

        write_before(zone, AskDigests)
        slow.on_ask = stand_still
        verdict = validate(zone)

    assert verdict.outcome is Outcome.UNKNOWN
    assert "partition 0: no counter at which every copy told its digest" in verdict.reasons[0]
    assert "agent-2 at 5; asked for " in verdict.reasons[0]


def test_an_agent_that_is_gone_half_way_leaves_the_verdict_open() -> None:
    with listening(filled()) as zone:
        agent = zone.agents[1]

        def leave(message: Message) -> Answer | EllipsisType:
            if isinstance(message, AskDigests):
                threading.Thread(target=agent.end).start()
                return None
            return ...

        agent.on_ask = leave
        verdict = validate(zone)

    assert verdict.outcome is Outcome.UNKNOWN
    assert "agent at" in verdict.reasons[0]
    assert "cannot be reached" in verdict.reasons[0]


def test_an_agent_that_refuses_buckets_leaves_only_its_partition_open() -> None:
    with listening(filled(partitions=2)) as zone:
        for partition in (0, 1):
            zone.copy(1, partition).rows[b"key-07"] = (8, 3, 0, b"damaged")

        def refuse(message: Message) -> Answer | EllipsisType:
            return None if isinstance(message, AskBuckets) and message.partition == 1 else ...

        zone.agents[2].on_ask = refuse
        verdict = validate(zone)

    assert verdict.outcome is Outcome.DIFFER
    assert [(d.partition, d.key) for d in verdict.key_differences] == [(0, "key-07")]
    assert "closed the connection during AskBuckets" in verdict.reasons[0]


def test_a_copy_that_is_given_up_leaves_the_verdict_open() -> None:
    with listening(filled()) as zone:
        agent = zone.agents[2]
        write_before(zone, AskDigests)
        told = [1]

        def give_up(message: Message) -> Answer | EllipsisType:
            if isinstance(message, AskDigests):
                if not told:
                    return Digests(message.zone_name, agent.name, ())
                told.pop()
                zone.write(b"hot", b"last")
            return ...

        agent.on_ask = give_up
        verdict = validate(zone, replace(QUICK, passes_max=1))

    assert verdict.outcome is Outcome.UNKNOWN
    assert verdict.reasons[0] == "partition 0: agent-2 told no digest"


def test_an_agent_that_is_another_process_meanwhile_is_read_anew() -> None:
    with listening(filled()) as zone:
        agent = zone.agents[1]
        owned = zone.copies.read(QUICK).owned
        agent.hello = msgspec.structs.replace(agent.hello, incarnation=2)
        reason = watch_digests(owned, "z", zone.cluster, QUICK)[0]
        left = [1]

        def restart(message: Message) -> Answer | EllipsisType:
            if isinstance(message, AskDigests) and left:
                left.pop()
                agent.hello = msgspec.structs.replace(agent.hello, incarnation=3)
                return None
            return ...

        agent.on_ask = restart
        verdict = validate(zone)

    assert "agent-1" in str(reason)
    assert "was restarted or replaced" in str(reason)
    assert verdict.outcome is Outcome.AGREE


def test_at_most_64_copies_are_asked_for_at_once() -> None:
    zone = ScriptedZone(2, 256)
    with listening(zone):
        verdict = validate(zone)

        sizes = [len(m.partitions) for m in asked(zone, AskDigests) if isinstance(m, AskDigests)]
    assert verdict.outcome is Outcome.AGREE
    assert sizes == [64] * 8


def test_counters_that_differ_are_told_and_the_other_partitions_compared() -> None:
    with listening(filled(partitions=2)) as zone:
        zone.write(b"key-05", b"new", 1, on=(0, 1))
        verdict = validate(zone)

    assert verdict.outcome is Outcome.DIFFER
    assert [d.partition for d in verdict.counter_differences] == [1]
    assert figures(verdict).partitions_compared == 1


def write_before(zone: ScriptedZone, kind: type[Message]) -> None:
    """Every question of this kind finds an update more than the one before: no two answers are of
    one LWM."""
    numbers = count()

    def answer(message: Message) -> EllipsisType:
        if isinstance(message, kind):
            number = next(numbers)
            zone.write(b"hot-%d" % (number % 3), b"%d" % number)
        return ...

    for agent in zone.agents:
        agent.on_ask = answer
