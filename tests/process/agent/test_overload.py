"""Clients that send more than an agent can do: leases go on, nobody is taken for lost."""

import time

import pytest

from quorate_cluster.fixtures import Measured, StartCluster
from quorate_cluster.flood import Flood, Pour, commands
from quorate_cluster.outage import Pulses
from quorate_cluster.routing import keys_by_port
from quorate_cluster.steadiness import changes, standing

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

CONNECTIONS = 150
KEYS = 6000
FLOOD_S = 15.0


@pytest.mark.parametrize("kind", ["reads", "writes"])
def test_a_flood_of_pipelines_makes_no_agent_seem_lost(
    start_cluster: StartCluster, measured: Measured, kind: str
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=16, storage="InMemory")
    cluster.wait_quiet("z")
    victim = cluster.agent_with_most_primaries()
    port = cluster.port("z", victim.name)

    keys = keys_by_port(port, KEYS)[port]
    pour = Pour(port, commands(keys, b"x" * 50 if kind == "writes" else None), CONNECTIONS)
    memory = victim.rss_bytes()
    with Pulses(cluster, "z", keys_max=4) as pulses:
        before = standing(cluster, "z")
        began = time.monotonic()
        with Flood([pour]):
            while time.monotonic() - began < FLOOD_S:
                time.sleep(0.2)  # the flood is what is tested
            gaps = pulses.longest_gaps_s(began)
            memory = victim.rss_bytes() - memory
            pulses.wait_all_written_since(time.monotonic())

    measured(
        f"flood of {kind}",
        f"{pour.answered:,} commands answered in {FLOOD_S:g} s, {pour.refused:,} of them refused,"
        f" {pour.errors:,} given up;"
        f" others waited at most {max(gaps):.2f} s; memory +{memory // 1_000_000} MB",
    )
    assert changes(cluster, "z", before) == []
    assert pulses.failed == []
    assert pour.broken == 0
    assert memory < 500_000_000
