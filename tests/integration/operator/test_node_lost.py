"""A node goes for good, with the volume of an agent: a spare agent takes over, and in the end the
agent is replaced.

There is no kubelet: the agent of a pod is a process, and what a lost node does is played.
"""

import subprocess
import sys
import time

import pytest

from quorate_cluster.digests import differing
from quorate_cluster.fixtures import Measured
from quorate_cluster.outage import Pulses
from quorate_cluster.processes import environment
from quorate_cluster.road import QUIET, Json
from quorate_owned.sized import PARTITIONS, ZONE, Sized

pytestmark = [
    pytest.mark.integration,
    pytest.mark.process,
    pytest.mark.deep,
    pytest.mark.needs("own-names"),
    pytest.mark.timeout(400),
]

LOST = "agent-2"
POD = f"main-{LOST}-0"
CLAIM = f"main-{LOST}"
AGENTS = [f"agent-{number}" for number in (1, 2, 3, 4)]
SCALE_DOWN_S = 5


@pytest.fixture
def four(undeclared_sized: Sized) -> Sized:
    """Four agents that hold a zone with three copies."""
    sized = undeclared_sized
    sized.start(4, dataNodesAutoAdjustScaleDownSeconds=SCALE_DOWN_S)
    sized.wait(lambda: min(sized.primaries()) > 0, "primaries everywhere")
    assert [*_of_members(sized, "storeId")] == AGENTS
    return sized


def test_a_spare_takes_over_and_a_new_pod_takes_the_place(four: Sized, measured: Measured) -> None:
    pods, claims, stores = _uids(four), four.claims(), _of_members(four, "storeId")
    with Pulses(four, ZONE, keys_max=8) as pulses:
        moved_s = _lose(four, pulses)
        assert four.claims() == claims

        began = time.monotonic()
        said = _replace(four)
        assert f"pod {POD} (on no node) will be deleted at once" in said
        volume = f"{four.road.namespace}-{CLAIM}"
        assert f"claim {CLAIM} with its volume {volume} will be deleted" in said
        four.wait(lambda: _pods_told(four) == {}, "a pod that runs")
        four.wait(lambda: LOST in _owners(four), f"copies on {LOST} again", 90)
        four.wait_size(4)
        back_s = time.monotonic() - began
        pulses.wait_all_written_since(time.monotonic())
    measured(
        "a node gone for good, with a spare agent",
        f"three copies on the others after {moved_s:.1f} s, of which the zone waits"
        f" {SCALE_DOWN_S}; {back_s:.1f} s from replace to copies on the new pod",
    )
    again = _of_members(four, "storeId")
    assert {agent for agent in AGENTS if again[agent] != stores[agent]} == {LOST}
    assert _changed(claims, four.claims()) == {CLAIM}
    assert _changed(pods, _uids(four)) == {POD}, "no other pod was restarted"
    _assert_nothing_lost(four, pulses)


def test_a_spare_takes_over_and_the_agent_is_scaled_away(four: Sized) -> None:
    pods = _uids(four)
    with Pulses(four, ZONE, keys_max=8) as pulses:
        _lose(four, pulses)
        four.scale(3)
        four.wait_size(3)
        pulses.wait_all_written_since(time.monotonic())
    assert [*_of_members(four, "storeId")] == [each for each in AGENTS if each != LOST]
    assert _uids(four) == {name: uid for name, uid in pods.items() if name != POD}
    _assert_nothing_lost(four, pulses)


def _lose(four: Sized, pulses: Pulses) -> float:
    """Until the others have all copies, which nobody asked for; seconds that took."""
    began = time.monotonic()
    four.pods.lose(POD)
    pulses.wait_all_written_since(time.monotonic())
    four.wait(lambda: LOST not in _owners(four) and _is_quiet(four), "all on the others", 120)
    moved_s = time.monotonic() - began
    assert _of_members(four, "state")[LOST] == "Offline"
    four.wait(lambda: _pods_told(four) == {POD: "Unschedulable"}, "told of the pod")
    return moved_s


def _assert_nothing_lost(four: Sized, pulses: Pulses) -> None:
    assert pulses.lost() == []
    assert pulses.undocumented() == []
    found = four.digests()
    assert sum(map(len, found.values())) == 3 * PARTITIONS
    assert differing(found) == {}


def _replace(sized: Sized) -> str:
    """The command of docs/operations.md."""
    where = (f"--kubeconfig={sized.plane.kubeconfig}", f"--namespace={sized.road.namespace}")
    command = [sys.executable, "-m", "quorate_cli.kubectl", "replace", LOST, "--yes", *where]
    done = subprocess.run(
        command, env={**environment(), "COLUMNS": "160"}, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _is_quiet(sized: Sized) -> bool:
    return QUIET.items() <= sized.road.conditions(name=ZONE).items()


def _owners(sized: Sized) -> set[str]:
    """Agents that own any partition."""
    return {node for row in sized.rows() for node in row["replicas"]}


def _members(sized: Sized) -> list[Json]:
    return list(sized.road.status("storagecluster", "main")["members"])


def _of_members(sized: Sized, fact: str) -> dict[str, str]:
    return {each["name"]: str(each[fact]) for each in _members(sized)}


def _pods_told(sized: Sized) -> dict[str, str]:
    """Pods that do not run -> the reason, by the cluster's status."""
    told = sized.road.status("storagecluster", "main").get("pods", [])
    return {each["name"]: each["reason"] for each in told}


def _uids(sized: Sized) -> dict[str, str]:
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in sized.road.items("pods")}


def _changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    assert before.keys() == after.keys()
    return {name for name, uid in before.items() if after[name] != uid}
