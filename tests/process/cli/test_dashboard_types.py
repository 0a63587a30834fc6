"""The dashboards are what the types that Grafana publishes allow, in every version promised.

The compiler of TypeScript judges once, beside the dashboards also copies of them with defects."""

import copy
import json
from collections.abc import Mapping
from itertools import chain
from typing import Any, NamedTuple

import pytest

from quorate_dashboard_types.compiler import Refused, Typed, refused
from quorate_dashboard_types.installed import VERSIONS
from quorate_documented.dashboards import PAGES, Json

pytestmark = [pytest.mark.process, pytest.mark.timeout(180), pytest.mark.needs("dashboard-types")]

PAGE = "Page"
ABSENT = object()


class Defect(NamedTuple):
    """A change to the first value of this type that has the field `at`; it must be refused.

    The field is renamed to `name`, or gets `value`; where neither is given it is removed."""

    type: str
    at: str
    value: object = ABSENT
    name: str = ""

    def __str__(self) -> str:
        instead = "absent" if self.value is ABSENT else json.dumps(self.value)
        return f"{self.type}: {self.at} is {self.name or instead}"

    @property
    def field(self) -> str:
        """The name that the compiler must give."""
        return self.name or self.at.split(".")[-1]

    def has_place(self, value: Mapping[str, object]) -> bool:
        """Whether the value can have this defect."""
        try:
            self.planted(value)
        except (KeyError, IndexError, TypeError):  # also a text in the place of an object
            return False
        return True

    def planted(self, value: Mapping[str, object]) -> Json:
        """A copy of the value that has it."""
        changed = copy.deepcopy(dict(value))
        place: Any = changed
        *before, last = (int(word) if word.isdigit() else word for word in self.at.split("."))
        for step in before:
            place = place[step]
        was = place[last]
        if self.name:
            place[self.name] = was
        if self.value is ABSENT:
            del place[last]
        else:
            place[last] = self.value
        return changed


OVERRIDE = "fieldConfig.overrides.0.properties"
DEFECTS = (
    Defect(PAGE, "schemaVersion"),
    Defect(PAGE, "graphTooltip", 3),
    Defect(PAGE, "links.0.type", "dashboard"),
    Defect(PAGE, "links.0.targetBlank"),
    Defect(PAGE, "annotations.list.0.iconColor", name="iconColour"),
    Defect(PAGE, "annotations.list.0.expr"),
    Defect(PAGE, "templating.list.0.type", "data source"),
    Defect(PAGE, "templating.list.1.refresh", 7),
    Defect(PAGE, "templating.list.1.includeAll", name="includesAll"),
    Defect("row", "panels"),
    Defect("row", "collapsed", "no"),
    Defect("stat", "options.colorMode", "backgroud"),
    Defect("stat", "options.wideLayout"),
    Defect("stat", "options.graphMode", name="graphmode"),
    Defect("stat", "options.reduceOptions.calcs", "lastNotNull"),
    Defect("stat", "fieldConfig.defaults.unit", 1),
    Defect("stat", "fieldConfig.defaults.mappings.0.type", "values"),
    Defect("stat", "gridPos.w"),
    Defect("stat", "targets.0.refId"),
    Defect("stat", "targets.0.expr"),
    Defect("stat", "targets.0.datasource"),
    Defect("stat", "targets.0.legendFormat", name="legendFromat"),
    Defect("state-timeline", "options.rowHeight"),
    Defect("state-timeline", "options.showValue", "sometimes"),
    Defect("state-timeline", "fieldConfig.defaults.color.mode", "threshold"),
    Defect("table", "options.frameIndex"),
    Defect("table", "options.cellHeight", "small"),
    Defect("table", "targets.0.format", "tabel"),
    Defect("table", "transformations.0.id"),
    Defect("table", "fieldConfig.overrides.0.matcher.id", "byname"),
    Defect("table", f"{OVERRIDE}.0.id", "units"),
    Defect("table", f"{OVERRIDE}.0.value", 1),
    Defect("table", f"{OVERRIDE}.0.value.0.targetBlank", "no"),
    Defect("timeseries", "options.tooltip.mode", "many"),
    Defect("timeseries", "options.legend.placement"),
    Defect("timeseries", "fieldConfig.defaults.custom.showPoints", "seldom"),
    Defect("timeseries", "fieldConfig.defaults.custom.fillOpacity", name="opacity"),
    Defect("timeseries", "fieldConfig.defaults.custom.stacking.mode", "stacked"),
    Defect("timeseries", "fieldConfig.defaults.thresholds.mode", "relative"),
    Defect("timeseries", "fieldConfig.defaults.thresholds.steps.0.color"),
)


def _type_of(panel: Json) -> str:
    return f"Panels[{json.dumps(panel['type'])}]"


def _real() -> list[Typed]:
    """Each dashboard without its panels, and each of its panels."""
    found = []
    for file, page in PAGES.items():
        without = {key: value for key, value in page.items() if key != "panels"}
        found.append(Typed(file, PAGE, without))
        found += [
            Typed(f"{file}, panel {panel['id']}", _type_of(panel), panel)
            for panel in page["panels"]
        ]
    return found


REAL = _real()
MISSPELT = [
    Typed(
        f"{each.name}, misspelt", each.type, Defect("", "title", name="titel").planted(each.value)
    )
    for each in REAL
]


def _planted(defect: Defect) -> list[Typed]:
    """One value with it; none where the dashboards have no place for it, and its test fails."""
    wanted = PAGE if defect.type == PAGE else _type_of({"type": defect.type})
    fitting = [each for each in REAL if each.type == wanted and defect.has_place(each.value)]
    return [Typed(str(defect), wanted, defect.planted(each.value)) for each in fitting[:1]]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Refused:
    """The words of the compiler about everything."""
    values = [*REAL, *MISSPELT, *chain.from_iterable(map(_planted, DEFECTS))]
    return refused(values, tmp_path_factory.mktemp("types"))


def test_all_dashboards_conform_to_all_promised_versions(judged: Refused) -> None:
    assert [each.name for each in VERSIONS] == [f"grafana-{major}" for major in range(10, 14)]
    assert len(REAL) == sum(1 + len(page["panels"]) for page in PAGES.values())
    names = {each.name for each in REAL}
    assert {where: why for where, why in judged.items() if where[1] in names} == {}


def test_a_misspelt_field_is_found_in_each_panel_and_each_dashboard(judged: Refused) -> None:
    expected = {(version.name, each.name) for version in VERSIONS for each in MISSPELT}

    assert len(expected) == len(VERSIONS) * len(REAL)
    assert {where for where in expected if "titel" in judged.get(where, "")} == expected


@pytest.mark.parametrize("defect", DEFECTS, ids=str)
def test_a_defect_is_found(judged: Refused, defect: Defect) -> None:
    for version in VERSIONS:
        assert defect.field in judged[version.name, str(defect)]
