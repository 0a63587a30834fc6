"""Why a pod does not run: the reasons that users of Kubernetes know, with a sentence."""

import pytest

from quorate_operator.owned.pod_states import Trouble, ended_processes, is_running, trouble
from quorate_owned.facts import Json, pod, waiting

CLAIM = {"metadata": {"name": "main-agent-1"}, "status": {"phase": "Bound"}}
OOM = {"lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
FAILED = {"lastState": {"terminated": {"reason": "Error", "exitCode": 2}}}
UNSCHEDULED = {
    "phase": "Pending",
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available",
        }
    ],
}


@pytest.mark.parametrize(
    ("status", "reason", "part"),
    [
        (waiting("ImagePullBackOff", "no such image"), "ImagePullBackOff", "no such image"),
        (waiting("CrashLoopBackOff", "", **FAILED), "CrashLoopBackOff", "exit code 2"),
        (
            waiting("CrashLoopBackOff", "", **OOM),
            "OOMKilled",
            "more memory than its limit, 3 times",
        ),
        (waiting("ContainerCreating"), "Pending", "containers are being created"),
        (UNSCHEDULED, "Unschedulable", "0/3 nodes are available"),
        ({"phase": "Failed", "message": "evicted"}, "Failed", "evicted"),
    ],
)
def test_a_pod_that_does_not_run_says_why(status: Json, reason: str, part: str) -> None:
    found = trouble("main-agent-1-0", pod("main-agent-1-0", **status), CLAIM)

    assert found is not None
    assert (found.pod, found.reason) == ("main-agent-1-0", reason)
    assert part in found.message


def test_a_claim_that_is_not_bound_is_named() -> None:
    pending = {"metadata": {"name": "main-agent-1"}, "status": {"phase": "Pending"}}
    found = trouble("main-agent-1-0", pod("p", **UNSCHEDULED), pending)

    assert found == Trouble(
        "main-agent-1-0",
        "ClaimUnbound",
        "claim main-agent-1 is not bound: 0/3 nodes are available",
    )
    lost = {"metadata": {"name": "main-agent-1"}, "status": {"phase": "Lost"}}
    found = trouble("p", pod("p", **UNSCHEDULED), lost)
    assert found is not None
    assert found.reason == "ClaimLost"


def test_a_pod_that_is_ready_has_no_trouble_and_one_that_is_missing_has() -> None:
    assert trouble("p", pod("p"), CLAIM) is None
    found = trouble("p", None, None)
    assert found is not None
    assert found.reason == "NoPod"


def test_a_process_may_run_where_nobody_knows() -> None:
    """The kubelet of a node that is away says nothing: its pods may run on."""
    assert is_running(pod("p"))
    assert is_running(pod("p", phase="Unknown"))
    assert not is_running(pod("p", **waiting("ImagePullBackOff")))


def test_a_container_that_ended_tells_which_process_it_was() -> None:
    word = {"terminated": {"exitCode": 137, "message": "process 0a1b\n"}}
    again = pod("p", phase="Running", containerStatuses=[
        {"name": "agent", "state": {"running": {}}, "lastState": word},
        {"name": "beside", "state": {"terminated": {"message": "process ffff"}}},
    ])  # fmt: skip
    silent = pod("p", **waiting("CrashLoopBackOff", "", **FAILED))
    both = pod("p", phase="Failed", containerStatuses=[
        {"name": "agent", "state": {"terminated": {"message": "process 2c3d"}}, "lastState": word},
    ])  # fmt: skip

    found = ended_processes({"a": again, "b": silent, "c": None, "d": both, "e": pod("e")})

    assert found == {"a": ("0a1b",), "d": ("2c3d", "0a1b")}


def test_the_word_of_a_process_is_no_reason() -> None:
    word = {"lastState": {"terminated": {"exitCode": 2, "message": "process 0a1b\n"}}}
    found = trouble("p", pod("p", **waiting("CrashLoopBackOff", "", **word)), None)

    assert found is not None
    assert found.message == "it ended with exit code 2"
