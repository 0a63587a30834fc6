"""A release of an earlier version of the chart is upgraded with `--reuse-values`.

Helm then takes the defaults of that version, so values that were added later are absent.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from quorate_helm.build import VERSIONS, helm_path
from quorate_helm.chart import CHART, by_hand, render

pytestmark = pytest.mark.needs("helm")

HERE = Path(__file__).parent
OLDEST = yaml.safe_load((HERE / "oldest" / "values.yaml").read_text())
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
NETWORKS = ("--values", str(HERE / "values" / "networks.yaml"))
FREE = frozenset({"resources", "podLabels"})
"""Values whose keys are the user's."""

Json = dict[str, Any]


@pytest.fixture(params=VERSIONS)
def helm(request: pytest.FixtureRequest) -> Path:
    return helm_path(request.param)


def _rendered(helm: Path, values: Json, folder: Path, *options: str) -> str:
    """Render the chart with other defaults."""
    chart = folder / CHART.name
    shutil.copytree(CHART, chart, dirs_exist_ok=True)
    (chart / "values.yaml").write_text(yaml.safe_dump(values))
    return by_hand(render(helm, *options, chart=chart))


def test_values_of_the_oldest_release_give_the_same_objects(helm: Path, tmp_path: Path) -> None:
    assert _rendered(helm, OLDEST, tmp_path) == by_hand(render(helm))


def _added(values: Json, older: Json, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths of values that were added since, groups and what is in them."""
    for name, value in values.items():
        if name not in older:
            yield (*path, name)
        if isinstance(value, dict) and name not in FREE:
            yield from _added(value, older.get(name, {}), (*path, name))


def _without(values: Json, path: tuple[str, ...]) -> Json:
    first, *rest = path
    if not rest:
        return {name: each for name, each in values.items() if name != first}
    return {**values, first: _without(values[first], tuple(rest))}


@pytest.mark.parametrize("path", list(_added(DEFAULTS, OLDEST)), ids=".".join)
def test_each_value_that_was_added_may_be_absent(path: tuple[str, ...], tmp_path: Path) -> None:
    helm = helm_path("helm4")
    without = _without(DEFAULTS, path)

    assert _rendered(helm, without, tmp_path) == by_hand(render(helm))
    assert _rendered(helm, without, tmp_path, *NETWORKS) == by_hand(render(helm, *NETWORKS))
