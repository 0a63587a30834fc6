"""Who is complained of: clients that were not served, and processes that ended by themselves."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from quorate_cluster.served import NotServed, assert_served


def process(folder: Path, *, alive: bool = True, log: str = "") -> Any:
    file = folder / "log"
    file.write_text(log)
    return SimpleNamespace(name="a", log=file, is_alive=lambda: alive, log_tail=lambda _: log)


def cluster(*processes: Any) -> Any:
    return SimpleNamespace(processes=processes)


def test_who_was_served_is_not_complained_of(tmp_path: Path) -> None:
    assert_served(cluster(process(tmp_path)), [])
    assert_served(cluster(process(tmp_path, alive=False)), [], ended=["a"])


def test_who_was_not_is(tmp_path: Path) -> None:
    with pytest.raises(NotServed, match="CLUSTERDOWN"):
        assert_served(cluster(process(tmp_path)), ["CLUSTERDOWN"])


@pytest.mark.parametrize("problems", [[], ["CLUSTERDOWN"]])
@pytest.mark.parametrize(("alive", "log"), [(False, ""), (True, "Traceback (most recent …")])
def test_a_process_that_ended_or_failed_is_more_than_not_served(
    tmp_path: Path, alive: bool, log: str, problems: list[str]
) -> None:
    with pytest.raises(AssertionError) as failed:
        assert_served(cluster(process(tmp_path, alive=alive, log=log)), problems)
    assert not isinstance(failed.value, NotServed)
