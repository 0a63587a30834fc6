"""A user with a name, executors to lead, and a zone without rows to import exports into."""

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.wire.jobs.executors import Executors
from quorate_spark.passes.executors import Led
from quorate_spark_fixtures.logged_zone import LoggedZone
from quorate_spark_fixtures.scripted_zone import listening


@pytest.fixture(autouse=True)
def named_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give whoever runs the tests a name: in a container, user 100000 has none."""
    own, getpwuid = os.getuid(), pwd.getpwuid
    monkeypatch.setattr("pwd.getpwuid", lambda user: getpwuid(0 if user == own else user))


@pytest.fixture
def led() -> Led:
    executors = Executors(1, 1, "1", 1 << 30, "i", {})
    return Led(executors, "a", "p", "n", "10.0.0.7", "https://a", Path())


@pytest.fixture
def empty() -> Iterator[LoggedZone]:
    zone = LoggedZone(partitions=1)
    with listening(zone):
        yield zone
