"""Canned objects and the command that reads them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate_kubectl.canned import CannedApi, Kubectl, declare, served


@pytest.fixture
def api() -> CannedApi:
    """The objects of cluster `main`: three managed agents, zone `library` with three copies."""
    canned = CannedApi()
    declare(canned)
    return canned


@pytest.fixture
def kubectl(api: CannedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kubectl]:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(tmp_path)
    with served(api, tmp_path) as made:
        yield made
