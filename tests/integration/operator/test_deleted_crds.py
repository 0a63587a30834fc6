"""`kubectl delete crd` while an operator leads and a client writes: objects go, data stays.

The CRDs are of all namespaces, so the control plane is this file's own.
"""

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from quorate.wire.schema.resource import GROUP
from quorate_cluster.load import Load
from quorate_cluster.road import QUIET, Road
from quorate_cluster.waiting import wait_until
from quorate_control_plane.control_plane import ControlPlane
from quorate_control_plane.fixtures import CRDS, started_control_plane

pytestmark = [pytest.mark.integration, pytest.mark.process, pytest.mark.timeout(400)]

DECLARED = (f"storageclusters.{GROUP}", f"zones.{GROUP}")
WRITTEN = tuple(f"{each}.{GROUP}" for each in ("masterterms", "partitiontables", "storagenodes"))


@pytest.fixture
def plane(needs: Callable[..., None]) -> Iterator[ControlPlane]:
    yield from started_control_plane(needs)


@pytest.fixture
def served(plane: ControlPlane) -> Iterator[Road]:
    plane.kubectl("create", "namespace", "storage")
    with closing(Road(plane, "storage")) as road:
        yield road


def not_ready(road: Road) -> str:
    """Why the operator says that it is not ready; empty if it is."""
    code, said = road.asked("operator-a", "readyz")
    return said if code == 503 else ""


@pytest.mark.parametrize(
    "deleted", [DECLARED, WRITTEN + DECLARED], ids=["declared kinds", "all kinds"]
)
def test_kinds_that_are_deleted_and_made_again_take_no_data_with_them(
    plane: ControlPlane, served: Road, deleted: tuple[str, ...]
) -> None:
    served.use_example_role()
    served.start_agents()
    operator = served.start_operator()
    served.declare(deletionPolicy="Retain")
    served.wait_zone(**QUIET)
    served.write_keys("before")
    zone_id, pid = served.status("zone", "sessions")["zoneId"], operator.pid
    folders = served.zone_folders()
    with Load(served.client()) as load:
        plane.kubectl("delete", "crd", *deleted, "--timeout=60s")
        said = "the API server does not know storageclusters, zones of quorate.io"
        wait_until(lambda: said in not_ready(served), said, 60, served.logs)
        done = load.done
        wait_until(lambda: load.done > done + 100, "clients go on", 60, served.logs)
        assert served.zone_folders() == folders

        plane.kubectl("apply", "--filename", str(CRDS))
        plane.kubectl("wait", "--for=condition=Established", "crd", *deleted, "--timeout=30s")
        served.declare(deletionPolicy="Retain")
        served.wait_zone(**QUIET)
        wait_until(lambda: not not_ready(served), "ready again", 60, served.logs)
    assert load.failed == []
    served.check_keys("before")
    assert served.status("zone", "sessions")["zoneId"] == zone_id
    assert operator.is_alive()
    assert operator.pid == pid
    assert all(agent.is_alive() for agent in served.agents.values())
    assert "Traceback" not in served.all_logs()
