"""A zone without rows, which several tests import exports into."""

from collections.abc import Iterator

import pytest

from quorate_spark_fixtures.logged_zone import LoggedZone
from quorate_spark_fixtures.scripted_zone import listening


@pytest.fixture
def empty() -> Iterator[LoggedZone]:
    zone = LoggedZone(partitions=1)
    with listening(zone):
        yield zone
