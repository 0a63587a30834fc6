"""When an agent's data may be set aside: only where the others have all that was answered."""

import functools
from pathlib import Path

import msgspec
import pytest

from quorate.protocol.status import NodeStatus
from quorate.wire.zone import Zone
from quorate_agent.folder.data_folder import DataFolder, put_folder_back
from quorate_cli.dev.set_aside import check_all_is_lost, check_can_be_filled, newest_set_aside
from quorate_cli.objects.cluster_state import ClusterState
from quorate_cli.terminal.problem import Problem
from quorate_lone_master.zone_status import status_of_zone

NODE = NodeStatus("agent-1", "s1", 3, False, "Offline", "127.0.0.1:1", "", 0, 0)


def _zone(replicas: int, storage: str = "Persistent") -> Zone:
    spec = {"clusterRef": {"name": "main"}, "replicas": replicas, "storage": storage}
    return Zone.model_validate({"metadata": {"name": "z"}, "spec": spec})


def _state(missing: dict[int, int], node: NodeStatus = NODE) -> ClusterState:
    zone = status_of_zone(name="z", missing_copies=missing)
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
        (1, {1: 8}, "no other agent has a copy of some partition of zone z, and 1 are"),
        (2, {1: 4, 2: 4}, "no other agent has a copy of some partition of zone z, and 1 are"),
        (3, {1: 7, 2: 1}, "only 1 other agents have a copy of some partition of zone z, and 2 are"),
        (3, {3: 8}, "no other agent has a copy of some partition of zone z, and 2 are"),
        (5, {3: 1}, "only 2 other agents have a copy of some partition of zone z, and 3 are"),
    ],
)
def test_it_may_not_where_they_are_none(replicas: int, missing: dict[int, int], said: str) -> None:
    with pytest.raises(Problem, match=rf"agent-1 was not set aside.*{said}.*`quorate dev up`"):
        check_can_be_filled("agent-1", _state(missing), [_zone(replicas)])


def test_a_zone_in_memory_has_nothing_in_the_folder() -> None:
    check_can_be_filled("agent-1", _state({1: 8}), [_zone(1, "InMemory")])


def test_an_agent_that_takes_part_is_stopped_first() -> None:
    online = msgspec.structs.replace(NODE, online=True)

    with pytest.raises(Problem, match="agent-1 is online: stop it first"):
        check_can_be_filled("agent-1", _state({}, online), [])


def test_a_zone_that_the_operator_does_not_lead_yet_is_waited_for() -> None:
    nothing = msgspec.structs.replace(_state({}), zones=())

    with pytest.raises(Problem, match="has no state of zone z yet"):
        check_can_be_filled("agent-1", nothing, [_zone(3)])


def _lost(lost: int, partitions: int) -> ClusterState:
    (zone,) = _state({}).zones
    changed = msgspec.structs.replace(zone, lost=lost, partitions=partitions)
    return msgspec.structs.replace(_state({}), zones=(changed,))


def test_folders_are_put_back_only_when_every_partition_is_lost() -> None:
    check_all_is_lost(_lost(8, 8), [_zone(3), _zone(1, "InMemory")])

    with pytest.raises(Problem, match=r"not all partitions of zone z are LOST \(7 of 8\)"):
        check_all_is_lost(_lost(7, 8), [_zone(3)])
    with pytest.raises(Problem, match=r"not all partitions of zone z are LOST \(unknown\)"):
        check_all_is_lost(msgspec.structs.replace(_lost(8, 8), zones=()), [_zone(3)])
    with pytest.raises(Problem, match="no Persistent zone is declared"):
        check_all_is_lost(_lost(8, 8), [_zone(3, "InMemory")])


def _keep(data: Path, number: int, reason: str, file: str = "folder.json") -> None:
    aside = data / f"set-aside-{number}"
    aside.mkdir()
    (aside / file).write_text("{}")
    (aside / "reason.txt").write_text(reason + "\n")


def test_the_newest_set_aside_is_found(tmp_path: Path) -> None:
    assert newest_set_aside(tmp_path) is None
    _keep(tmp_path, 2, "corrupt")
    _keep(tmp_path, 10, "corrupt")
    assert newest_set_aside(tmp_path) == (10, False)
    _keep(tmp_path, 11, "corrupt", "folder.json.put-back")
    assert newest_set_aside(tmp_path) == (11, True)
    _keep(tmp_path, 12, "corrupt")
    assert newest_set_aside(tmp_path) == (12, False)


@pytest.mark.parametrize("is_done", [True, False])
def test_what_was_displaced_is_not_put_back_by_a_second_call(tmp_path: Path, is_done: bool) -> None:
    path = tmp_path / "agent-1"
    folder = DataFolder.open(path, cluster="demo", node="agent-1", cluster_id="id")
    folder.set_aside("corrupt")
    folder.close()
    back = functools.partial(
        put_folder_back, path, cluster="demo", node="agent-1", number=1, last_start=lambda _: 7
    )
    back()
    if not is_done:  # killed before its last step
        aside = path / "set-aside-1"
        (aside / "folder.json.put-back").rename(aside / "folder.json")

    assert newest_set_aside(path) == (1, is_done)
