"""An operator of this build takes over from one of the build before: agents' pods stay."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from quorate_cluster.names import Names
from quorate_cluster.processes import environment, python
from quorate_cluster.road import QUIET, Road
from quorate_cluster.waiting import wait_until
from quorate_control_plane.components import Component
from quorate_control_plane.control_plane import ControlPlane
from quorate_owned.pod_processes import PodProcesses
from quorate_owned.specs import LEAST, WHOLE
from quorate_versions.build_before import unpack_build_before

pytestmark = [
    pytest.mark.integration,
    pytest.mark.process,
    pytest.mark.needs("git", "build-before", "own-names"),
    pytest.mark.timeout(300),
]


class Upgraded:
    """A namespace with agents' pods as processes, and operators of two builds."""

    def __init__(self, road: Road, names: Names, before: Path) -> None:
        self.road = road
        self._names = names
        self._before = before

    def start(self, name: str, *, is_before: bool) -> Component:
        path = environment(self._before)["PYTHONPATH"] if is_before else ""
        setting = ["env", f"PYTHONPATH={path}"] if is_before else []
        return self.road.start_operator(
            name,
            program=lambda *words: [
                *self._names.prefix, *setting, *python("quorate_operator", *words)
            ],
        )  # fmt: skip

    def declare(self, spec: dict[str, Any], agents: int) -> None:
        self.road.apply("StorageCluster", "main", managed={**spec, "replicas": agents})

    def facts(self, kind: str, fact: str) -> dict[str, Any]:
        """Name -> this fact of the metadata."""
        return {each["metadata"]["name"]: each["metadata"][fact] for each in self.road.items(kind)}

    def wait_agents(self, count: int) -> None:
        """Until so many take part, all is as declared, and no copy is under way."""

        def is_so() -> bool:
            found = self.road.get("storagecluster", "main") or {}
            status = found.get("status", {})
            return (
                status.get("observedGeneration") == found["metadata"]["generation"]
                and status.get("online") == f"{count}/{count}"
                and self.road.conditions("storagecluster", "main")["AgentsUpdated"] == "True"
                and QUIET.items() <= self.road.conditions(name="carts").items()
            )

        self.wait(is_so, f"{count} agents")

    def wait(self, ask: Callable[[], bool], what: str) -> None:
        def facts() -> object:
            return self.road.status("storagecluster", "main"), self.road.logs()

        wait_until(ask, what, 90, facts)


@pytest.fixture
def upgraded(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Upgraded]:
    names = Names(tmp_path / "hosts", monkeypatch)
    road = Road(control_plane, namespace)
    pods = PodProcesses(road, names)
    try:
        road.use_example_role()
        pods.start()
        yield Upgraded(road, names, unpack_build_before(tmp_path / "sources"))
    finally:
        pods.close()
        road.close()
        pods.forget()


@pytest.mark.parametrize("spec", [LEAST, WHOLE], ids=["least", "whole"])
def test_every_pod_keeps_its_uid(upgraded: Upgraded, spec: dict[str, Any]) -> None:
    first = upgraded.start("operator-a", is_before=True)
    upgraded.declare(spec, 3)
    upgraded.road.apply("Zone", "carts", clusterRef={"name": "main"}, partitions=16)
    upgraded.wait_agents(3)
    pods = upgraded.facts("pods", "uid")
    generations = upgraded.facts("statefulsets", "generation")
    first.kill()

    second = upgraded.start("operator-b", is_before=False)
    upgraded.road.wait_led_by(second)
    upgraded.declare(spec, 4)  # what it makes the fourth by, it has looked at the others by
    upgraded.wait_agents(4)

    assert len(pods) == 3
    assert pods.items() < upgraded.facts("pods", "uid").items()
    assert generations.items() < upgraded.facts("statefulsets", "generation").items()
