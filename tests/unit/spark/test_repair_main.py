"""The command: a plan changes nothing, its execution repairs exactly what it names."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.protocol.messages.tools import HandOver, RepairKey
from quorate_spark import __main__ as command
from quorate_spark.repairing import tell
from quorate_spark_fixtures.repaired_zone import RepairedZone, damage
from quorate_spark_fixtures.scripted_zone import ScriptedZone, listening

KEYS = [b"key-%02d" % number for number in range(30)]


@pytest.fixture
def zone() -> Iterator[RepairedZone]:
    zone = RepairedZone()
    for key in KEYS:
        zone.write(key, b"right")
    with listening(zone):
        yield zone


def run(zone: ScriptedZone, *options: object) -> int:
    agents = ["--agents", ",".join(zone.copies.agents), "--settle-seconds", "0.3"]
    agents += ["--cluster", "c", "--secret-file", zone.secret_file, "--level", "digest"]
    return command.main(["repair", "z", *agents, "--replicas", "3", *map(str, options)])


def values(zone: ScriptedZone, key: bytes) -> set[bytes | None]:
    return {zone.copy(agent).rows[key][3] for agent in range(3)}


def test_a_plan_is_made_read_and_executed(
    zone: RepairedZone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.parquet"
    damage(zone, 1, KEYS[3])
    damage(zone, 0, KEYS[4])

    assert run(zone, "--strategy", "RELATIVE_MAJORITY", "--plan", plan) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "2 keys differ: 2 to write, 0 to remove, 0 irreparable by RELATIVE_MAJORITY" in told
    assert "Nothing is changed yet" in told
    assert f"quorate repair z --execute {plan}" in told
    assert not zone.asked(RepairKey)
    assert not zone.asked(HandOver)
    assert len(values(zone, KEYS[3])) == 2

    assert run(zone, "--execute", plan) == 0
    told, about = capsys.readouterr()
    assert "repaired 2 a quorum of the copies has the planned row" in " ".join(told.split())
    assert "partition 0: agent-0, whose row of key-04 is wrong, is to hand over" in about
    assert values(zone, KEYS[3]) == values(zone, KEYS[4]) == {b"right"}
    again = tmp_path / "again.parquet"
    assert run(zone, "--strategy", "RELATIVE_MAJORITY", "--plan", again) == 0
    assert "nothing to repair" in capsys.readouterr().out
    assert not again.exists()


def test_keys_that_are_not_repaired_are_named(
    zone: RepairedZone,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = tmp_path / "plan.parquet"
    for key in KEYS[:5]:
        damage(zone, 1, key)
    run(zone, "--strategy", "RELATIVE_MAJORITY", "--plan", plan)
    for key in KEYS[:3]:
        zone.write(key, b"newer")
    capsys.readouterr()

    monkeypatch.setattr(tell, "LISTED_MAX", 2)
    assert run(zone, "--execute", plan) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "repaired 2" in told
    assert "changed 3 written since the plan: left alone" in told
    assert "changed: key-00 (partition 0): the planned row is on none of agent-0, agent-2" in told
    assert "and 1 more: --json names them" in told
    assert run(zone, "--execute", plan, "--json") == 1
    keys = json.loads(capsys.readouterr().out)["keys"]
    assert [(key["key"], key["done"]) for key in keys] == [
        *((f"key-0{number}", "changed") for number in range(3)),
        *((f"key-0{number}", "repaired") for number in (3, 4)),
    ]


def test_more_keys_than_a_plan_takes_need_another_plan(
    zone: RepairedZone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for key in KEYS[:7]:
        damage(zone, 2, key)

    for number, left in enumerate((4, 1, 0)):
        plan = tmp_path / f"{number}.parquet"
        run(zone, "--strategy", "PRIMARY", "--plan", plan, "--keys-max", "3")
        told = " ".join(capsys.readouterr().out.split())
        assert (f"{left} more keys differ that were not confirmed" in told) == bool(left)
        assert run(zone, "--execute", plan) == 0
        capsys.readouterr()


def test_what_cannot_be_planned_or_executed_ends_with_2(
    zone: RepairedZone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.parquet"
    damage(zone, 1, KEYS[3])
    planned = ("--strategy", "LWW", "--zone-uid", "one", "--plan", plan)
    assert run(zone, *planned) == 1

    def refused(match: str, *options: object) -> None:
        capsys.readouterr()
        assert run(zone, *options) == 2
        assert match in capsys.readouterr().err

    refused("is there already", *planned)
    refused("write --strategy and one of LWW, PRIMARY", "--plan", tmp_path / "b")
    refused("does not exist", "--strategy", "LWW", "--plan", tmp_path / "none" / "plan")
    refused("leave out --strategy", "--strategy", "LWW", "--execute", plan)
    refused("cannot be read", "--execute", tmp_path / "none")
    refused("deleted and created again", "--execute", plan, "--zone-uid", "two")
    refused(
        "for zone z of cluster c, not for zone z of cluster d", "--execute", plan, "--cluster", "d"
    )


def test_keys_of_a_later_zone_of_this_name_are_not_planned(
    zone: RepairedZone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(zone, 1, KEYS[3])
    for agent in zone.agents:
        agent.uid = "two"
    plan = tmp_path / "plan.parquet"
    options = ("--strategy", "LWW", "--plan", plan)

    assert run(zone, *options, "--zone-uid", "one") == 2
    assert "zone z was deleted and created again" in capsys.readouterr().err
    assert not plan.exists()
    assert run(zone, *options, "--zone-uid", "two") == 1


def test_agents_that_do_not_answer_leave_a_plan_unmade(
    zone: RepairedZone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    zone.agents[1].end()
    plan = tmp_path / "plan.parquet"

    assert run(zone, "--strategy", "LWW", "--plan", plan) == 2
    told = capsys.readouterr().out
    assert "cannot be reached" in told
    assert not plan.exists()


@pytest.mark.parametrize("is_executed", [False, True])
def test_a_defect_says_neither_that_keys_differ_nor_that_nothing_began(
    zone: RepairedZone,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_executed: bool,
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("x")

    monkeypatch.setattr(command, "make_plan", fail)
    monkeypatch.setattr(command, "execute_plan", fail)
    plan = tmp_path / "plan.parquet"
    options = ("--execute", plan) if is_executed else ("--strategy", "LWW", "--plan", plan)

    assert run(zone, *options) == (1 if is_executed else 2)
    assert "repair failed by itself: ZeroDivisionError: x" in capsys.readouterr().err


def test_a_plan_that_cannot_be_printed_ends_with_2(zone: RepairedZone, tmp_path: Path) -> None:
    damage(zone, 1, KEYS[3])
    plan = tmp_path / "plan.parquet"
    planned = ("--strategy", "RELATIVE_MAJORITY", "--plan", plan)
    for code, options in ((2, planned), (1, ("--execute", plan))):
        full = os.open("/dev/full", os.O_WRONLY)
        with os.fdopen(full, "w") as output, contextlib.redirect_stdout(output):
            assert run(zone, *options) == code

    assert values(zone, KEYS[3]) == {b"right"}
