"""All agents' pods are deleted at the same moment; every address is another one afterwards."""

import time

import pytest

from quorate_cluster.fixtures import Measured
from quorate_cluster.outage import Pulses
from quorate_nodes.cluster import Json
from quorate_nodes.release.installed import AGENTS, ZONE, Installed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SERVES_AGAIN_S_MAX = 60


def test_all_pods_come_back_with_other_addresses_and_all_data(
    first_day: Installed, measured: Measured
) -> None:
    before = first_day.pods()
    with Pulses(first_day, ZONE, keys_max=8) as pulses:
        began = time.monotonic()
        first_day.kubectl("delete", "pods", AGENTS, "--wait=false")

        def are_new() -> bool:
            now = first_day.pods()
            return len(now) == 3 and _uids(now).isdisjoint(_uids(before)) and all(_addresses(now))

        first_day.wait(are_new, "three new pods", SERVES_AGAIN_S_MAX)
        pulses.wait_all_written_since(
            time.monotonic(), SERVES_AGAIN_S_MAX - (time.monotonic() - began)
        )
        measured(
            "all pods deleted at once",
            f"every key written again after {time.monotonic() - began:.1f} s, not writable for at"
            f" most {max(pulses.longest_gaps_s(began)):.1f} s",
        )
    first_day.wait_whole()
    now = first_day.pods()
    assert set(_addresses(now)).isdisjoint(_addresses(before))
    assert pulses.lost() == []
    assert first_day.unexpected(pulses) == []


def _uids(pods: list[Json]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


def _addresses(pods: list[Json]) -> list[str]:
    return [pod["status"].get("podIP", "") for pod in pods]
