"""Fixtures of all tests on a real API server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate_cluster.names import Names
from quorate_cluster.road import Road
from quorate_control_plane.control_plane import ControlPlane
from quorate_owned.sized import Sized


@pytest.fixture
def road(control_plane: ControlPlane, namespace: str) -> Iterator[Road]:
    """Operators and agents of one namespace, none of which runs yet."""
    road = Road(control_plane, namespace)
    try:
        yield road
    finally:
        road.close()


@pytest.fixture
def undeclared_sized(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Sized]:
    """A managed cluster that was not yet started."""
    made = Sized(control_plane, namespace, Names(tmp_path / "hosts", monkeypatch))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def sized(undeclared_sized: Sized) -> Sized:
    """Three agents that hold a zone with three copies."""
    undeclared_sized.start()
    return undeclared_sized
