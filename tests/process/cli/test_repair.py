"""Keys are repaired by commands as a person types them: a plan, a look at it, its execution."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from redis import RedisCluster

from quorate_spark.repairing.plan import read_plan

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

ZONE = """
apiVersion: quorate.io/v1alpha1
kind: Zone
metadata: {name: library}
spec: {clusterRef: {name: main}, partitions: 4, replicas: 3}
"""
AGENTS = ("agent-1", "agent-2", "agent-3")

Quorate = Callable[..., str]
Damageable = Callable[[str, int], AbstractContextManager[RedisCluster]]


@pytest.fixture
def quorate_environment(folder: Path) -> dict[str, str]:
    """A narrow terminal, which must not break the lines that are to be typed, and no Java."""
    return {"COLUMNS": "60", "JAVA_HOME": str(folder)}


@pytest.fixture
def client(damageable: Damageable) -> Iterator[RedisCluster]:
    """A client of zone `library`."""
    with damageable(ZONE, 100) as client:
        yield client


def test_a_plan_is_printed_kept_and_executed(
    quorate: Quorate, client: RedisCluster, tmp_path: Path
) -> None:
    """One key is damaged on each agent, so at least one key on a backup of its partition."""
    for number, agent in enumerate(AGENTS):
        quorate("debug", "damage", "library", f"key-{number}", "--agent", agent)
    plan = str(tmp_path / "plan.parquet")
    make = ("repair", "library", "--strategy", "RELATIVE_MAJORITY", "--level", "digest")

    found = quorate("validate", "library", "--level", "digest", code=1)
    assert "  quorate repair library --strategy RELATIVE_MAJORITY\n" in found
    said = quorate(*make, "--plan", plan, code=1)
    assert "3 keys differ: 3 to write" in " ".join(said.split())
    assert {key.key for key in read_plan(Path(plan))} == {"key-0", "key-1", "key-2"}
    quorate("validate", "library", "--level", "digest", code=1)
    assert "is there already" in quorate(*make, "--plan", plan, code=2)

    (execute,) = re.findall(r"^  quorate (repair library --execute .*)$", said, re.MULTILINE)
    done = " ".join(quorate(*execute.split()).split())

    assert "repaired 3 a quorum of the copies has the planned row" in done
    assert [client.get(f"key-{number}") for number in range(3)] == ["value-0", "value-1", "value-2"]
    quorate("validate", "library", "--level", "digest")
    assert "nothing to repair" in quorate(*make, "--plan", plan + "-2")


def test_where_no_majority_agrees_a_person_chooses_by_another_strategy(
    quorate: Quorate, client: RedisCluster, tmp_path: Path
) -> None:
    for agent in AGENTS[:2]:
        quorate("debug", "damage", "library", "key-7", "--agent", agent, "--value", f"of {agent}")
    first, second = str(tmp_path / "1.parquet"), str(tmp_path / "2.parquet")

    def plan(strategy: str, file: str) -> str:
        options = ("--strategy", strategy, "--level", "digest", "--plan", file)
        return " ".join(quorate("repair", "library", *options, code=1).split())

    assert "0 to write, 0 to remove, 1 irreparable" in plan("RELATIVE_MAJORITY", first)
    said = " ".join(quorate("repair", "library", "--execute", first, code=1).split())
    assert "irreparable: key-7" in said
    assert "3 different rows are on 1 of 3 copies" in said
    assert "1 to remove" in plan("REMOVE", second)
    quorate("repair", "library", "--execute", second)

    assert client.get("key-7") is None
    quorate("validate", "library", "--level", "digest")
