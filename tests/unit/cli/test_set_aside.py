"""When an agent's data may be set aside: only where the others have all that was answered."""

import msgspec
import pytest

from quorate.protocol.status import NodeStatus, ZoneStatus
from quorate.wire.zone import Zone
from quorate_cli.cluster_state import ClusterState
from quorate_cli.problem import Problem
from quorate_cli.set_aside import check_can_be_filled

NODE = NodeStatus("agent-1", "s1", 3, False, "Offline", "127.0.0.1:1", "", 0, 0)


def _zone(replicas: int, storage: str = "Persistent") -> Zone:
    spec = {"clusterRef": {"name": "main"}, "replicas": replicas, "storage": storage}
    return Zone.model_validate({"metadata": {"name": "z"}, "spec": spec})


def _state(missing: dict[int, int], node: NodeStatus = NODE) -> ClusterState:
    counts = dict.fromkeys(
        ("partitions", "available", "degraded", "unavailable", "migrations_running"), 0
    ) | dict.fromkeys(("migrations_queued", "migrations_done", "migrations_failed"), 0)
    zone = ZoneStatus(
        uid="u", name="z", phase="", sentence="", bytes_moved=0, full_copies=0, ports={},
        data_nodes=(), spread_violations=(), missing_copies=missing, **counts,
    )  # fmt: skip
    return ClusterState("main", "me", "", 1, (node,), (zone,))


@pytest.mark.parametrize(
    ("replicas", "missing"),
    [(2, {1: 8}), (3, {1: 8}), (3, {}), (4, {1: 3}), (5, {1: 8, 2: 4})],
)
def test_it_may_where_the_others_are_a_quorum(replicas: int, missing: dict[int, int]) -> None:
    check_can_be_filled("agent-1", _state(missing), [_zone(replicas)])


@pytest.mark.parametrize(
    ("replicas", "missing", "said"),
    [
        (1, {1: 8}, "of zone z no other agent has a copy, and 1 must"),
        (2, {1: 4, 2: 4}, "no other agent has a copy, and 1 must"),
        (3, {1: 7, 2: 1}, "only 1 other agents have one, and 2 must"),
        (3, {3: 8}, "no other agent has a copy, and 2 must"),
        (5, {3: 1}, "only 2 other agents have one, and 3 must"),
    ],
)
def test_it_may_not_where_they_are_none(replicas: int, missing: dict[int, int], said: str) -> None:
    with pytest.raises(Problem, match=rf"agent-1 is not set aside.*{said}.*`quorate dev up`"):
        check_can_be_filled("agent-1", _state(missing), [_zone(replicas)])


def test_a_zone_in_memory_has_nothing_in_the_folder() -> None:
    check_can_be_filled("agent-1", _state({1: 8}), [_zone(1, "InMemory")])


def test_an_agent_that_takes_part_is_stopped_first() -> None:
    online = msgspec.structs.replace(NODE, online=True)

    with pytest.raises(Problem, match="agent-1 takes part: stop it first"):
        check_can_be_filled("agent-1", _state({}, online), [])


def test_a_zone_that_the_operator_does_not_lead_yet_is_waited_for() -> None:
    nothing = msgspec.structs.replace(_state({}), zones=())

    with pytest.raises(Problem, match="says nothing of zone z yet"):
        check_can_be_filled("agent-1", nothing, [_zone(3)])
