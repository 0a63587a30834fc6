"""Agents are changed one by one under clients; an image that is not there stops after the first."""

import json
import time
from typing import Any

import pytest

from quorate_cluster.fixtures import Measured
from quorate_cluster.outage import Pulses
from quorate_cluster.served import NotServed
from quorate_nodes.release.installed import CLUSTER, NAMESPACE, ZONE, Installed, is_ready
from quorate_nodes.release.sizes import scale, three_in_the_end, wait_size
from quorate_nodes.watching.pod_watch import PodWatch
from quorate_nodes.watching.primary_watch import PrimaryWatch

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


def _change(installed: Installed, **managed: Any) -> None:
    patch = json.dumps({"spec": {"managed": managed}})
    installed.kubectl("patch", "storagecluster", CLUSTER, "--type=merge", f"--patch={patch}")


def _uids(installed: Installed) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in installed.pods()}


def _has_changed(installed: Installed, agents: int = 3) -> bool:
    """Whether the operator has seen the spec and replaced every pod by it."""
    found = installed.get("storagecluster", CLUSTER)
    seen = found["status"].get("observedGeneration") == found["metadata"]["generation"]
    return seen and installed.is_whole(agents)


def _spread(counts: list[int]) -> int:
    return max(counts) - min(counts)


def test_changed_resources_reach_every_agent_without_a_failed_command(
    first_day: Installed, measured: Measured
) -> None:
    _change_memory(first_day, "96Mi", 3, measured)


@pytest.mark.deep
@pytest.mark.timeout(700)
def test_changed_resources_reach_six_agents_without_a_failed_command(
    first_day: Installed, measured: Measured
) -> None:
    with three_in_the_end(first_day):
        scale(first_day, 6)
        wait_size(first_day, 6)
        _change_memory(first_day, "112Mi", 6, measured)


def _change_memory(installed: Installed, memory: str, agents: int, measured: Measured) -> None:
    """Change what each of so many agents requests, under clients.

    Nobody notices: an agent that is told to end has handed over before it does."""
    before, copied = _uids(installed), installed.full_copies()
    installed.wait(lambda: min(installed.primaries()) > 0, "primaries everywhere")
    with (
        Pulses(installed, ZONE, keys_max=8) as pulses,
        PodWatch(installed) as watch,
        PrimaryWatch(installed.nodes.plane.kubectl_command, NAMESPACE) as primaries,
    ):
        began = time.monotonic()
        _change(installed, resources={"requests": {"memory": memory}})
        installed.wait(
            lambda: (
                set(before.values()).isdisjoint(_uids(installed).values())
                and _has_changed(installed, agents)
            ),
            f"{agents} changed agents",
            50 * agents,
        )
        took = time.monotonic() - began
        pulses.wait_all_written_since(time.monotonic())
    measured(
        f"changed resources of {agents} agents",
        f"{took:.1f} s; keys not writable for at most {max(pulses.longest_gaps_s(began)):.2f} s;"
        f" failed commands {len(pulses.failed)}; primaries handed over"
        f" {primaries.handed_over.total()}, taken over {len(primaries.taken_over)}",
    )
    assert len(installed.pods()) == agents
    for pod in installed.pods():
        (container,) = pod["spec"]["containers"]
        assert container["resources"]["requests"]["memory"] == memory
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
    assert installed.full_copies() - copied == {}
    installed.wait(lambda: _spread(installed.primaries()) <= 1, "even primaries")
    assert watch.away_max == 1, watch.seen
    assert watch.exit_codes == {name: {"0"} for name in before}, "each ended within its grace"
    assert pulses.lost() == []
    assert installed.unexpected(pulses) == []
    assert len(primaries.handed_over) == agents, "each was the primary of something"
    if pulses.failed or primaries.taken_over:
        raise NotServed(f"nobody was hurt, and yet: {pulses.failed}, {primaries.taken_over}")


def test_an_image_that_is_not_there_stops_after_the_first_and_goes_back(
    first_day: Installed, measured: Measured
) -> None:
    image = first_day.get("storagecluster", CLUSTER)["spec"]["managed"]["image"]
    before = _uids(first_day)
    with (
        Pulses(first_day, ZONE, keys_max=8) as pulses,
        PodWatch(first_day) as watch,
        PrimaryWatch(first_day.nodes.plane.kubectl_command, NAMESPACE) as primaries,
    ):
        began = time.monotonic()
        _change(first_day, image="localhost/quorate-agent:not-there")

        def failing() -> list[dict[str, str]]:
            told = first_day.get("storagecluster", CLUSTER)["status"].get("pods", [])
            return [each for each in told if each["reason"] in ("ErrImagePull", "ImagePullBackOff")]

        first_day.wait(failing, "the reason in the status")
        told_s = time.monotonic() - began
        (bad,) = {each["name"] for each in failing()}

        def condition() -> str:
            told = first_day.condition("storagecluster", CLUSTER, "Ready")
            return f"{told['status']} {told['reason']}: {told['message']}"

        first_day.wait(lambda: condition().startswith("False PodsFailing"), "condition Ready")
        assert bad in condition()
        assert "ImagePull" in condition()
        updated = first_day.condition("storagecluster", CLUSTER, "AgentsUpdated")
        assert updated["status"] == "False"
        assert bad in updated["message"]
        kept = {name: uid for name, uid in before.items() if name != bad}
        assert kept.items() <= _uids(first_day).items()
        assert [is_ready(pod) for pod in first_day.pods()].count(True) == 2

        began = time.monotonic()
        _change(first_day, image=image)
        first_day.wait(lambda: _has_changed(first_day), "a whole cluster again", 90)
        back_s = time.monotonic() - began
        assert kept.items() <= _uids(first_day).items(), "only the one that failed was replaced"
        pulses.wait_all_written_since(time.monotonic())
    measured("an image that is not there", f"told after {told_s:.1f} s, back in {back_s:.1f} s")
    assert watch.away_max == 1, watch.seen
    assert pulses.lost() == []
    assert first_day.unexpected(pulses) == []
    if pulses.failed or primaries.taken_over:
        raise NotServed(f"nobody was hurt, and yet: {pulses.failed}, {primaries.taken_over}")
