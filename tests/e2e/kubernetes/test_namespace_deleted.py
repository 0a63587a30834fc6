"""The namespace is deleted with operator, agents and all: it goes, and volumes are kept."""

import time

import pytest

from quorate_cluster.fixtures import Measured
from quorate_nodes.installed import AGENTS, CLUSTER, NAMESPACE, ZONE, Installed
from quorate_nodes.volumes import clean, phase_of, volume_of

pytestmark = [pytest.mark.e2e, pytest.mark.deep, pytest.mark.timeout(400)]

NAMES = ("agent-1", "agent-2", "agent-3")


def test_a_namespace_goes_with_everything_but_volumes(
    first_day: Installed, measured: Measured
) -> None:
    """The operator goes at the same time, with its rights, and nothing waits for it."""
    nodes = first_day.nodes
    client = first_day.client(ZONE)
    assert client.set("greeting", "hello")
    volumes = [volume_of(first_day, agent) for agent in NAMES]
    assert all(phase_of(first_day, volume) == "Bound" for volume in volumes)
    began = time.monotonic()
    nodes.kubectl("delete", "namespace", NAMESPACE, "--timeout=120s")
    measured("a namespace with a cluster is deleted", f"{time.monotonic() - began:.1f} s")
    for volume in volumes:
        clean(first_day, volume)  # they were released, with what they hold

    first_day.make_namespace()
    first_day.follow_manual("Install")
    first_day.follow_manual("A cluster and a zone")
    first_day.wait_whole(120)
    assert first_day.client(ZONE).get("greeting") is None, "another cluster, whose zone is empty"
    assert len(first_day.pods(AGENTS)) == 3
    assert first_day.get("secret", f"{CLUSTER}-quorate")
