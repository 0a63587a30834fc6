"""An operator whose master meets a defect ends and says so: it never only seems to lead."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.wire.schema.resource import API_VERSION
from quorate_cluster.defective_operator import defective_operator
from quorate_cluster.operator_api import OperatorApi
from quorate_cluster.processes import HOST, Listening
from quorate_cluster.waiting import wait_until
from quorate_control_plane.kept_folder import KeptFolder

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where a process and its data are; what runs in it is ended at last."""
    kept = KeptFolder("quorate-defect-")
    yield kept.path
    kept.close()


def test_an_embedded_operator_ends_with_the_defect_of_its_master(folder: Path) -> None:
    command = defective_operator("embedded", "--data", str(folder / "operator"))
    operator = Listening("operator", folder, "operator.json", command, ())
    operator.start()
    address = operator.address()
    assert address is not None

    api = OperatorApi(HOST, address["api_port"], folder / "operator" / "api-token")
    manifest = {
        "apiVersion": API_VERSION,
        "kind": "StorageCluster",
        "metadata": {"name": "main"},
        "spec": {"external": {"addresses": ["127.0.0.1:1"]}},
    }
    api.put("storageclusters", "main", manifest)

    wait_until(lambda: not operator.is_alive(), "its end", 30, operator.log_tail)
    assert operator.exit_status == 1
    said = "quorate-operator: cluster main: stopped by a defect: KeyError: 'planted'"
    assert said in operator.log_tail(3)
    operator.forget()
