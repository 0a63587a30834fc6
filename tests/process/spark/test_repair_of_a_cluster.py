"""Keys of which one copy is damaged are repaired on real agents, while clients write.

The key's partition has a damaged copy on each agent in turn, so once it is the primary's: that one
hands over first.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from quorate.protocol.messages.tools import AskValues, Damage, Damaged, Values
from quorate_cluster.client_errors import CLIENT_ERRORS
from quorate_cluster.cluster import Cluster
from quorate_cluster.meanwhile import meanwhile
from quorate_spark.passes.scan_rows import SparkRowScan
from quorate_spark.reading.agent_link import AgentLink
from quorate_spark.reading.settle import ZoneCopies
from quorate_spark.repairing.decide import Action, Strategy
from quorate_spark.repairing.execute import Done, KeyDone, execute
from quorate_spark.repairing.plan import Planned, PlannedKey, plan_keys
from quorate_spark.settings import Settings
from quorate_spark.validate import Validation
from quorate_spark.verdict import Outcome, Verdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(300)]

PARTITIONS = 4
KEY_COUNT = 200
SETTINGS = Settings()


def zone_of(cluster: Cluster, name: str) -> tuple[ZoneCopies, Any]:
    """A zone with some keys, and a client of it."""
    cluster.apply_zone(name, partitions=PARTITIONS)
    client = cluster.client(name)
    for index in range(KEY_COUNT):
        client.set(f"key-{index}", f"value-{index}", px=3_600_000 if index % 2 else None)
    agents = tuple(agent.peer_address for agent in cluster.agents.values())
    return ZoneCopies(name, agents, cluster.access, PARTITIONS, 3), client


def damage(copies: ZoneCopies, agent: int, key: bytes) -> None:
    with AgentLink(copies.agents[agent], copies.cluster, 5, 5) as link:
        assert link.ask(Damage(copies.zone, key, b"damaged"), Damaged).problem == ""


def validated(spark: "SparkSession", copies: ZoneCopies) -> Verdict:
    scan = SparkRowScan(spark, copies.zone, copies.agents, copies.cluster, SETTINGS)
    return Validation(copies, SETTINGS).run(scan)


def planned(spark: "SparkSession", copies: ZoneCopies, strategy: Strategy) -> list[PlannedKey]:
    verdict = validated(spark, copies)
    assert verdict.outcome is Outcome.DIFFER
    common = Planned(copies.zone, "", copies.cluster.name, strategy, "now")
    return plan_keys(verdict.key_differences, common)


def executed(copies: ZoneCopies, plan: list[PlannedKey]) -> dict[str, KeyDone]:
    return {done.key: done for done in execute(plan, copies, SETTINGS, 60)}


def copy_values(copies: ZoneCopies, key: bytes, partition: int) -> set[tuple[bytes, ...] | None]:
    """The value of a key on each copy."""
    found = set()
    for address in copies.agents:
        with AgentLink(address, copies.cluster, 5, 5) as link:
            question = AskValues(copies.zone, partition, None, None, key)
            answer = link.ask(question, Values)
        found.add(answer.values[0].items if answer.values else None)
    return found


@pytest.mark.parametrize("strategy", [Strategy.RELATIVE_MAJORITY, Strategy.REMOVE])
def test_the_next_validation_is_clean(
    spark: "SparkSession", cluster: Cluster, strategy: Strategy
) -> None:
    copies, client = zone_of(cluster, f"repaired-{strategy.lower().replace('_', '-')}")
    damaged = {b"key-%d" % (70 + agent): agent for agent in range(3)}
    for key, agent in damaged.items():
        damage(copies, agent, key)

    def write(number: int) -> None:
        # The outcome of a write may be unknown while a primary is handed over.
        with suppress(*CLIENT_ERRORS):
            client.set(f"hot-{number % 50}", f"{number}")

    with meanwhile(write):
        plan = planned(spark, copies, strategy)
        done = executed(copies, plan)

    wanted = Action.REMOVE if strategy is Strategy.REMOVE else Action.WRITE
    assert {key.key: key.action for key in plan} == {key.decode(): wanted for key in damaged}
    assert {key.key: sum(copy.value_bytes == 7 for copy in key.copies) for key in plan} == {
        key.decode(): 1 for key in damaged
    }
    assert {key: each.done for key, each in done.items()} == {
        key.decode(): Done.REPAIRED for key in damaged
    }
    after = validated(spark, copies)
    assert after.outcome is Outcome.AGREE, after
    for number in (70, 71, 72):
        value = None if strategy is Strategy.REMOVE else f"value-{number}"
        assert client.get(f"key-{number}") in (value, value and value.encode())
        lasts = client.pttl(f"key-{number}")
        assert lasts == -2 if value is None else (lasts > 0) == bool(number % 2)


def test_only_what_is_as_it_was_planned_is_written(spark: "SparkSession", cluster: Cluster) -> None:
    copies, client = zone_of(cluster, "changed")
    for key in (b"key-10", b"key-11"):
        damage(copies, 1, key)
    plan = planned(spark, copies, Strategy.PRIMARY)
    client.set("key-10", "newer")

    done = executed(copies, plan)

    assert done["key-10"].done is Done.CHANGED
    assert done["key-11"].done is Done.REPAIRED
    assert validated(spark, copies).outcome is Outcome.AGREE
    partitions = {key.key: key.partition for key in plan}
    assert copy_values(copies, b"key-10", partitions["key-10"]) == {(b"newer",)}
    again = executed(copies, plan)
    assert again["key-11"].done is Done.REPAIRED
