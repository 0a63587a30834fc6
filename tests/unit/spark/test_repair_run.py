"""The command of a ZoneRepair's pod: it plans, executes exactly that plan, and goes on with it."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quorate.protocol.messages.tools import HandOver, RepairKey
from quorate.wire.jobs.repair_result import (
    RepairOutcome,
    RepairResult,
    decode_repair_result,
)
from quorate_spark import __main__ as command
from quorate_spark import repair_run
from quorate_spark.exports.target import TargetUnreadable
from quorate_spark.reading.agent_link import Unreadable
from quorate_spark_fixtures.repaired_zone import RepairedZone, damage
from quorate_spark_fixtures.scripted_zone import listening

KEYS = [b"key-%02d" % number for number in range(30)]
STRATEGY = ("--strategy", "RELATIVE_MAJORITY")


@pytest.fixture
def zone() -> Iterator[RepairedZone]:
    zone = RepairedZone()
    for key in KEYS:
        zone.write(key, b"right")
    with listening(zone):
        yield zone


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "repairs" / "one"


def run(zone: RepairedZone, target: Path, *options: str, run: str = "u1") -> int:
    words = ["repair-run", "z", "--target", str(target), "--run", run, "--level", "digest"]
    words += ["--agents", ",".join(zone.copies.agents), "--settle-seconds", "0.3"]
    words += ["--cluster", "c", "--secret-file", zone.secret_file, "--replicas", "3"]
    words += ["--partitions", "1", "--zone-uid", "uid", "--json"]
    words += ["--termination-message", str(target.parent / "message")]
    target.parent.mkdir(exist_ok=True)
    return command.main([*words, *options])


def told(target: Path) -> RepairResult:
    return decode_repair_result((target.parent / "message").read_text())


def values(zone: RepairedZone, key: bytes) -> set[bytes | None]:
    return {zone.copy(agent).rows[key][3] for agent in range(3)}


def test_a_plan_is_made_then_executed_as_it_was_read(
    zone: RepairedZone, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(zone, 1, KEYS[3])
    damage(zone, 0, KEYS[4])

    assert run(zone, target, *STRATEGY) == 0
    planned = told(target)
    file = target / repair_run.PLAN
    assert planned.outcome is RepairOutcome.PLANNED
    assert planned.digest == hashlib.sha256(file.read_bytes()).hexdigest()
    assert (planned.planned, planned.keys) == ({"write": 2}, {})
    log: Any = json.loads(capsys.readouterr().out)
    assert [each["key"] for each in log["plan_keys"]] == ["key-03", "key-04"]
    assert not zone.asked(RepairKey)
    assert not zone.asked(HandOver)

    assert run(zone, target, "--execute", "--digest", planned.digest, run="u2") == 0
    done = told(target)
    assert (done.outcome, done.keys) == (RepairOutcome.REPAIRED, {"repaired": 2})
    assert done.digest == planned.digest
    assert values(zone, KEYS[3]) == values(zone, KEYS[4]) == {b"right"}
    assert run(zone, target / "again", *STRATEGY) == 0
    assert told(target / "again").outcome is RepairOutcome.NOTHING_TO_REPAIR
    assert list((target / "again").iterdir()) == []


def test_another_file_than_the_one_that_was_read_is_refused(
    zone: RepairedZone, target: Path
) -> None:
    damage(zone, 1, KEYS[3])
    run(zone, target, *STRATEGY)
    read = told(target).digest
    (target / repair_run.PLAN).unlink()
    damage(zone, 1, KEYS[4])
    run(zone, target, *STRATEGY)

    assert run(zone, target, "--execute", "--digest", read) == 1
    refused = told(target)
    assert refused.outcome is RepairOutcome.FAILED
    assert "is another file than the plan that was read" in refused.reasons[0]
    assert not zone.asked(RepairKey)


def test_a_place_with_a_plan_of_another_run_is_refused_and_its_own_is_taken(
    zone: RepairedZone, target: Path
) -> None:
    damage(zone, 1, KEYS[3])
    run(zone, target, *STRATEGY)
    first = told(target)
    damage(zone, 1, KEYS[4])

    assert run(zone, target, *STRATEGY, run="u2") == 1
    assert "has a plan already" in told(target).reasons[0]
    assert run(zone, target, *STRATEGY) == 0
    assert told(target) == first, "a pod after the first one goes on with its plan"


def test_a_plan_of_another_zone_is_refused(zone: RepairedZone, target: Path) -> None:
    damage(zone, 1, KEYS[3])
    run(zone, target, *STRATEGY, "--zone-uid", "an-earlier-one")

    assert run(zone, target, "--execute", "--digest", told(target).digest) == 1
    assert "deleted and created again" in told(target).reasons[0]
    assert not zone.asked(RepairKey)


def test_without_review_the_plan_is_written_before_it_is_executed(
    zone: RepairedZone, target: Path
) -> None:
    damage(zone, 1, KEYS[3])

    assert run(zone, target, *STRATEGY, "--execute") == 0
    done = told(target)
    assert (done.outcome, done.keys) == (RepairOutcome.REPAIRED, {"repaired": 1})
    assert done.digest == hashlib.sha256((target / repair_run.PLAN).read_bytes()).hexdigest()


def test_a_pod_that_is_lost_in_the_middle_is_followed_by_one_that_ends_it(
    zone: RepairedZone, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in KEYS[:4]:
        damage(zone, 1, key)
    execute = repair_run.execute_keys

    def half(*arguments: Any, **more: Any) -> Iterator[Any]:
        for number, key in enumerate(execute(*arguments, **more)):
            if number == 2:
                raise KeyboardInterrupt
            yield key

    monkeypatch.setattr(repair_run, "execute_keys", half)
    assert run(zone, target, *STRATEGY, "--execute") == 130
    assert not (target.parent / "message").exists(), "it has told nothing"
    monkeypatch.undo()

    assert run(zone, target, *STRATEGY, "--execute") == 0
    done = told(target)
    assert (done.outcome, done.keys) == (RepairOutcome.REPAIRED, {"repaired": 4})
    assert all(values(zone, key) == {b"right"} for key in KEYS)


def test_keys_that_clients_wrote_since_are_left_alone_and_counted(
    zone: RepairedZone, target: Path
) -> None:
    for key in KEYS[:3]:
        damage(zone, 1, key)
    run(zone, target, *STRATEGY)
    zone.write(KEYS[0], b"newer")

    assert run(zone, target, "--execute", "--digest", told(target).digest) == 1
    done = told(target)
    assert done.outcome is RepairOutcome.INCOMPLETE
    assert done.keys == {"changed": 1, "repaired": 2}
    assert values(zone, KEYS[0]) == {b"newer"}


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(Unreadable("agent-1 is gone"), "Unknown"), (ValueError("a defect"), "Unknown")],
)
def test_what_ends_an_execution_leaves_its_end_unknown(
    zone: RepairedZone,
    target: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    outcome: str,
) -> None:
    damage(zone, 1, KEYS[3])

    def broken(*arguments: Any, **more: Any) -> Iterator[Any]:
        yield from ()
        raise error

    monkeypatch.setattr(repair_run, "execute_keys", broken)
    assert run(zone, target, *STRATEGY, "--execute") == 2
    assert told(target).outcome == outcome
    assert str(error) in told(target).reasons[0]


def test_nothing_is_told_as_unchanged_if_an_earlier_pod_may_have_changed_keys(
    zone: RepairedZone, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pod meets an error before it changes a key; the second one began to."""
    damage(zone, 1, KEYS[3])
    run(zone, target, *STRATEGY)
    quoted = ("--execute", "--digest", told(target).digest)

    def refused(*arguments: Any) -> None:
        raise Unreadable("agent-1 is gone")

    monkeypatch.setattr(repair_run, "check_plan", refused)
    assert run(zone, target, *quoted) == 2
    assert (told(target).outcome, told(target).untouched) == (RepairOutcome.FAILED, True)
    monkeypatch.undo()

    def killed(*arguments: Any, **more: Any) -> Iterator[Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(repair_run, "execute_keys", killed)
    assert run(zone, target, *quoted) == 130
    monkeypatch.setattr(repair_run, "check_plan", refused)
    assert run(zone, target, *quoted) == 2
    assert (told(target).outcome, told(target).untouched) == (RepairOutcome.FAILED, False)
    assert run(zone, target, *quoted, run="u2") == 2
    assert told(target).untouched, "another run has its own note"


@pytest.mark.parametrize("error", [Unreadable("agent-1 is gone"), ValueError("a defect")])
def test_an_error_before_the_first_key_keeps_what_is_known_of_the_plan(
    zone: RepairedZone, target: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    damage(zone, 1, KEYS[3])

    def refused(*arguments: Any) -> None:
        raise error

    monkeypatch.setattr(repair_run, "check_plan", refused)
    assert run(zone, target, *STRATEGY, "--execute") == 2
    failed = told(target)
    assert (failed.outcome, failed.planned) == (RepairOutcome.FAILED, {"write": 1})
    assert failed.digest == hashlib.sha256((target / repair_run.PLAN).read_bytes()).hexdigest()
    assert str(error) in failed.reasons[0]


def test_a_place_that_cannot_be_read_now_is_tried_by_another_pod(
    zone: RepairedZone, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(self: object, name: str) -> None:
        raise TargetUnreadable("s3://b/c: no connection")

    monkeypatch.setattr("quorate_spark.exports.target.Target.read", lost)
    assert run(zone, target, "--execute", "--digest", "0" * 64) == 2
    assert told(target) == RepairResult(RepairOutcome.FAILED, reasons=("s3://b/c: no connection",))


def test_copies_that_cannot_be_judged_are_not_called_equal(
    zone: RepairedZone, target: Path
) -> None:
    zone.agents[1].end()

    assert run(zone, target, *STRATEGY) == 2
    assert told(target).outcome is RepairOutcome.FAILED
    assert "cannot be reached" in " ".join(told(target).reasons)


def test_a_result_that_cannot_be_printed_is_told_to_the_operator(
    zone: RepairedZone, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(zone, 1, KEYS[3])
    full = os.open("/dev/full", os.O_WRONLY)
    with os.fdopen(full, "w") as output, contextlib.redirect_stdout(output):
        code = run(zone, target, *STRATEGY, "--execute")

    assert (code, told(target).outcome) == (0, RepairOutcome.REPAIRED)
    assert "standard output cannot be written" in capsys.readouterr().err
