"""Why no pod may be evicted: by the rows, and by pods that are not ready."""

from quorate.planning.absence.disruption import Disruption, EvictionBlock, NoEviction
from quorate_operator.owned.budget import no_eviction_now
from quorate_owned.facts import Json, pod

AGENTS = ("agent-1", "agent-2", "agent-3")
READY: dict[str, Json | None] = {agent: pod(f"main-{agent}-0") for agent in AGENTS}
PENDING = pod(
    "main-agent-2-0",
    phase="Pending",
    conditions=[
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "1 node(s) were unschedulable",
        }
    ],
)


def allowing(count: int, none: NoEviction | None = None) -> Disruption:
    return Disruption((), AGENTS, count, none)


def test_a_pod_may_go_while_all_are_ready_and_the_rows_allow_it() -> None:
    assert no_eviction_now("main", allowing(1), READY, {}) is None
    assert no_eviction_now("main", Disruption((), (), 3), {}, {}) is None, "nothing is protected"


def test_who_is_waited_for_is_told_with_what_is_wrong_with_the_pod() -> None:
    away = NoEviction(EvictionBlock.AGENTS_AWAY, "offline: agent-2; partitions …", ("agent-2",))

    found = no_eviction_now("main", allowing(0, away), {**READY, "agent-2": PENDING}, {})

    assert found == (
        "AgentsAway",
        f"{away.message}; pod main-agent-2-0: Unschedulable: 1 node(s) were unschedulable",
    )
    found = no_eviction_now("main", allowing(0, away), READY, {})
    assert found == ("AgentsAway", "offline: agent-2; partitions …"), (
        "its pod is ready, and said so"
    )


def test_pods_that_are_not_ready_use_up_what_the_rows_allow() -> None:
    one_less: dict[str, Json | None] = {**READY, "agent-2": None}

    found = no_eviction_now("main", allowing(1), one_less, {})

    assert found is not None
    assert found.reason == "PodsNotReady"
    assert found.message.startswith("not ready: 1; at most 1 may be away at once; pod main-agent-2")
    assert no_eviction_now("main", allowing(2), one_less, {}) is None
    found = no_eviction_now("main", allowing(1), {a: READY[a] for a in AGENTS[:2]}, {})
    assert found is not None, "the budget counts an agent without a pod as away"
    lost = Disruption((), AGENTS, 1, away=("agent-2",))
    assert no_eviction_now("main", lost, one_less, {}) is None, "the rows have counted it"
    strangers: dict[str, Json | None] = {**READY, "agent-4": None}
    assert no_eviction_now("main", allowing(1), strangers, {}) is None, "no row names it"


def test_a_pod_that_is_being_deleted_counts_as_not_ready() -> None:
    """Its agent serves for some seconds more; the API server allows no other eviction meanwhile."""
    ending = pod("main-agent-2-0")
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    found = no_eviction_now("main", allowing(1), {**READY, "agent-2": ending}, {})

    assert found is not None
    assert found.reason == "PodsNotReady"
    assert found.message == (
        "not ready: 1; at most 1 may be away at once; "
        "pod main-agent-2-0: Terminating: it is being deleted"
    )
