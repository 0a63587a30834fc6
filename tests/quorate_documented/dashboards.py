"""The dashboards of the chart as Grafana reads them: panels, and what these ask Prometheus."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from write_dashboards import written

Json = dict[str, Any]

PAGES: dict[str, Json] = {name: json.loads(text) for name, text in sorted(written().items())}
"""File name -> dashboard."""
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")
RATE_INTERVAL = "__rate_interval"


class Asked(NamedTuple):
    """One expression of a panel."""

    file: str
    panel: str
    letter: str
    expr: str
    is_instant: bool

    def __str__(self) -> str:
        return f"{self.file}: {self.panel} {self.letter}"

    @property
    def variables(self) -> set[str]:
        """The names of Grafana's variables in it."""
        return set(_VARIABLE.findall(self.expr))

    def with_values(self, values: Mapping[str, str]) -> str:
        """The expression as Grafana sends it; KeyError for a variable without a value."""
        return _VARIABLE.sub(lambda found: values[found[1]], self.expr)


def panels(file: str) -> list[Json]:
    """All panels but the titles of rows."""
    return [each for each in PAGES[file]["panels"] if each["type"] != "row"]


def asked_of(file: str, panel: Json) -> list[Asked]:
    """The expressions of a panel."""
    return [
        Asked(file, panel["title"], target["refId"], target["expr"], target["instant"])
        for target in panel["targets"]
    ]


def all_asked() -> Iterator[Asked]:
    """Every expression of every dashboard."""
    for file in PAGES:
        for panel in panels(file):
            yield from asked_of(file, panel)
