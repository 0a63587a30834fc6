"""A cluster whose agents know a later mastership is led again, in one above it."""

import json

import pytest

from quorate_cluster.road import QUIET, Road
from quorate_cluster.waiting import wait_until
from quorate_control_plane.control_plane import ControlPlane
from quorate_operator.names import MASTER_TERM_OF_BEFORE

KNOWN = 40

pytestmark = [pytest.mark.integration, pytest.mark.process, pytest.mark.timeout(240)]


def counted(road: Road) -> int:
    return int((road.get("masterterm", "main") or {"spec": {"term": 0}})["spec"]["term"])


def test_a_lost_counter_beside_an_older_configmap_goes_on_above_what_agents_know(
    road: Road,
) -> None:
    road.start_agents()
    road.declare()
    operator = road.start_operator()
    road.wait_zone(**QUIET)
    road.write_keys("first")
    operator.terminate()
    patch = json.dumps({"spec": {"term": KNOWN}})
    road.kubectl("patch", "masterterm", "main", "--type=merge", f"--patch={patch}")
    operator = road.start_operator("operator-b")
    assert road.wait_led_by(operator) == KNOWN + 1
    operator.terminate()

    road.kubectl("delete", "masterterm", "main")
    road.kubectl("create", "configmap", MASTER_TERM_OF_BEFORE, "--from-literal=term=3")
    operator = road.start_operator("operator-c")

    wait_until(
        lambda: road.master()[1] > KNOWN + 1 and f"/{operator.pid}/" in road.master()[0],
        "led above what agents know",
        60,
        lambda: (road.master(), road.logs()),
    )
    road.wait_zone(**QUIET)
    road.check_keys("first")
    assert counted(road) == road.master()[1]
    assert operator.is_alive()


def test_a_cluster_that_another_operator_took_is_led_again_when_that_one_is_gone(
    road: Road, control_plane: ControlPlane
) -> None:
    """The two have different Leases, which nobody should do."""
    other = f"{road.namespace}-lease"
    control_plane.kubectl("create", "namespace", other)
    try:
        road.start_agents()
        road.declare()
        operator = road.start_operator()
        road.wait_zone(**QUIET)
        road.write_keys("first")
        first = road.wait_led_by(operator)

        serves = ["--namespace", road.namespace, "--lease-namespace", other]
        rival = road.start_operator("operator-b", serves=serves)
        wait_until(lambda: counted(road) > first + 1, "both count", 60, road.logs)
        rival.kill()
        taken = counted(road)

        wait_until(
            lambda: road.master()[1] >= taken and f"/{operator.pid}/" in road.master()[0],
            "led again",
            90,
            lambda: (road.master(), road.logs()),
        )
        road.agents["agent-2"].kill()
        road.wait_zone(Available="True", FullyReplicated="False")
        road.agents["agent-2"].start()
        road.wait_zone(**QUIET)
        road.check_keys("first")
        assert operator.is_alive()
    finally:
        control_plane.drop_namespace(other)
