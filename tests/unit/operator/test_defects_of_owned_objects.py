"""An exception that nobody foresaw in the care for managed clusters' objects."""

from typing import Any, cast

import pytest

from quorate.planning.absence.disruption import Disruption
from quorate_operator.mastership.runner import Runner
from quorate_operator.owned import owned_objects
from quorate_operator.owned.kube_nodes import KubeNodes
from quorate_operator.owned.owned_objects import OwnedObjects
from quorate_owned.facts import managed_cluster
from quorate_owned.managed import LoneRunner, Managed

PARTS = ["its disruption budget", "its objects", "looks at the rows"]


class DefectiveRunner(LoneRunner):
    has_defect = True

    def disruption(self, gone: Any = (), restarted: Any = ()) -> Disruption:
        if self.has_defect:
            raise ValueError("planted")
        return super().disruption(gone, restarted)


async def test_a_defect_in_one_cluster_leaves_the_others_cared_for_and_is_reported(
    undeclared: Managed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    managed, other = undeclared, managed_cluster("other", replicas=1)
    runner = DefectiveRunner(Managed().world)
    managed.owned.see(other, cast(Runner, runner))
    managed.declare(replicas=3)

    def reported() -> list[str]:
        return sorted(
            each.partition(" in ")[2].partition(":")[0] for each in managed.owned.problems()
        )

    await managed.until(lambda: reported() == PARTS, "every part of its care has the defect")
    await managed.until(lambda: len(managed.registered) == 3, "three agents")
    managed.place_zone()
    await managed.until(lambda: managed.may_be_away() == 1, "one may go")
    monkeypatch.setattr(managed.owned._queue, "add_in_turn", lambda name: None)
    managed.world.kill("agent-2")
    await managed.until(lambda: managed.may_be_away() == 0, "lowered beside the workers")

    assert managed.owned.problems()[0].startswith("storagecluster shop/other: a defect in ")
    for part in ("its disruption budget", "looks at the rows"):
        assert caplog.messages.count(f"cluster other: a defect in {part}") == 1
    runner.has_defect = False
    managed.owned._queue.add("other")
    await managed.until(lambda: not reported(), "nothing is reported any more")
    assert managed.failures == []


@pytest.mark.parametrize(
    ("owner", "name", "count"),
    [
        (OwnedObjects, "_work", owned_objects.WORKERS),
        (OwnedObjects, "_keep_looking", 1),
        (OwnedObjects, "_keep_budgets", 1),
        (KubeNodes, "follow", 1),
    ],
)
async def test_a_task_for_all_clusters_that_ends_is_told(
    undeclared: Managed, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, count: int
) -> None:
    async def fails(_: object) -> None:
        raise ValueError("planted")

    monkeypatch.setattr(owner, name, fails)
    undeclared.declare(replicas=3)

    failure = "stopped by a defect: ValueError: planted"
    await undeclared.until(lambda: undeclared.failures == [failure] * count, "each is told")
