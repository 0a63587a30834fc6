"""The pytest fixtures by which tests reach the run's one control plane."""

import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from quorate_control_plane.binaries import find_binaries
from quorate_control_plane.control_plane import ControlPlane

CRDS = Path(__file__).parents[2] / "crds"


class Kubectl(Protocol):
    """`kubectl("get", "zones")`: runs as administrator; raises with kubectl's own words."""

    def __call__(
        self, *arguments: str, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture(scope="session")
def control_plane(needs: Callable[..., None]) -> Iterator[ControlPlane]:
    """One control plane for the whole run, with the project's CRDs."""
    yield from started_control_plane(needs)


def started_control_plane(needs: Callable[..., None]) -> Iterator[ControlPlane]:
    """For fixtures: a control plane with the project's CRDs, as long as the fixture lasts."""
    needs("control-plane", "openssl")
    binaries = find_binaries()
    assert binaries is not None
    with ControlPlane(binaries, crds=CRDS) as started:
        yield started


@pytest.fixture
def kubectl(control_plane: ControlPlane) -> Kubectl:
    return control_plane.kubectl


@pytest.fixture
def namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own; its removal is asked for at the end, not waited for."""
    name = f"test-{zlib.crc32(request.node.nodeid.encode()):08x}"
    control_plane.kubectl("create", "namespace", name)
    yield name
    control_plane.drop_namespace(name)
