"""Fixtures of all tests on a real API server."""

from collections.abc import Iterator

import pytest

from quorate_cluster.road import Road
from quorate_control_plane.control_plane import ControlPlane


@pytest.fixture
def road(control_plane: ControlPlane, namespace: str) -> Iterator[Road]:
    """Operators and agents of one namespace, none of which runs yet."""
    road = Road(control_plane, namespace)
    try:
        yield road
    finally:
        road.close()
