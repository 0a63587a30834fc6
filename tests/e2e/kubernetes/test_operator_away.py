"""The operator that leads is frozen, and the API server is away for a minute, beside clients."""

import time

import pytest

from quorate_cluster.fixtures import Measured
from quorate_cluster.outage import Pulses
from quorate_cluster.served import NotServed
from quorate_cluster.waiting import wait_until
from quorate_nodes.release.installed import CLUSTER, ZONE, Installed
from quorate_nodes.watching.pod_process import frozen, process_of

pytestmark = [pytest.mark.e2e, pytest.mark.deep, pytest.mark.timeout(400)]

AWAY_S = 60


def test_a_frozen_operator_is_followed_and_does_nothing_when_it_goes_on(
    first_day: Installed, measured: Measured
) -> None:
    first_day.wait(first_day.leader, "a leader")
    leader, term, pods = first_day.leader(), _term(first_day), _uids(first_day)
    process = process_of(leader, "quorate")
    with Pulses(first_day, ZONE, keys_max=8) as pulses:
        began = time.monotonic()
        with frozen(process):
            first_day.wait(lambda: first_day.leader() not in ("", leader), "another leader")
            followed_s = time.monotonic() - began
            first_day.wait(lambda: _term(first_day) > term, "its mastership")
            second = first_day.leader()
            pulses.wait_all_written_since(time.monotonic())
        # Its process ends, for its lease has lapsed; the kubelet starts it again, as a standby.
        first_day.wait(lambda: _restarts(first_day, leader) > 0, "the end of the frozen one", 90)
        first_day.wait_whole(120)
        pulses.wait_all_written_since(time.monotonic())
    measured("operator frozen, on nodes", f"another leads after {followed_s:.1f} s")
    assert first_day.leader() == second, "the one that was frozen has taken nothing back"
    _assert_served(first_day, pulses, pods)


def test_while_the_api_server_is_away_clients_notice_nothing(
    first_day: Installed, measured: Measured
) -> None:
    api_server, pods = first_day.nodes.plane.api_server, _uids(first_day)
    with Pulses(first_day, ZONE, keys_max=8) as pulses:
        api_server.pause()
        try:
            over_s = time.monotonic() + AWAY_S
            wait_until(lambda: time.monotonic() >= over_s, "time to pass", AWAY_S + 10)
            pulses.wait_all_written_since(time.monotonic())
        finally:
            api_server.resume()
            first_day.nodes.plane.wait_ready()
        began = time.monotonic()
        first_day.nodes.wait_nodes_ready()
        first_day.wait_whole(150)
        pulses.wait_all_written_since(time.monotonic())
    measured(
        f"API server away for {AWAY_S} s, on nodes",
        f"whole {time.monotonic() - began:.1f} s after it is back; failed {len(pulses.failed)}",
    )
    _assert_served(first_day, pulses, pods)


def _assert_served(installed: Installed, pulses: Pulses, pods: dict[str, str]) -> None:
    assert _uids(installed) == pods, "no agent was restarted"
    assert all(_restarts(installed, pod) == 0 for pod in pods)
    assert pulses.lost() == []
    assert installed.unexpected(pulses) == []
    if pulses.failed:
        raise NotServed(f"nobody was hurt, and yet: {pulses.failed}")


def _term(installed: Installed) -> int:
    master = installed.get("storagecluster", CLUSTER)["status"].get("master", {})
    return int(master.get("term", 0))


def _restarts(installed: Installed, pod: str) -> int:
    (container,) = installed.get("pod", pod)["status"]["containerStatuses"]
    return int(container["restartCount"])


def _uids(installed: Installed) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in installed.pods()}
