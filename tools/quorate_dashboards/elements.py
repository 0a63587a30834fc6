"""Panels and variables as all our dashboards have them.

`Page` numbers its panels and places them side by side on Grafana's grid of 24 columns.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from grafana_foundation_sdk.models.table import Options as TableOptions

TAG = "quorate"
DATASOURCE = dashboard.DataSourceRef("prometheus", "${datasource}")
WIDTH = 24

Steps = Sequence[tuple[float, str]]
"""From each value on: this colour.  Below the first one: green."""
Words = Mapping[int, tuple[str, str]]
"""A value -> what is shown instead of it, and its colour."""

NO_WORDS: Words = MappingProxyType({})
NOT_ZERO: Steps = [(1, "red")]
ABOVE_ZERO: Steps = [(1e-9, "red")]
"""For rates, which are fractions."""
WARN_ABOVE_ZERO: Steps = [(1e-9, "orange")]


class Query(NamedTuple):
    """One expression of a graph and the name of its lines."""

    expr: str
    legend: str


class Column(NamedTuple):
    """One expression of a table: a value for each of its rows."""

    title: str
    expr: str
    unit: str = "short"
    steps: Steps = ()
    words: Words = NO_WORDS


class Link(NamedTuple):
    """A column of labels that leads to another dashboard, with variables from labels of the row."""

    label: str
    uid: str
    variables: Sequence[str]

    def url(self) -> str:
        """The address, with the time range and the data source of this dashboard."""
        given = "".join(f"&var-{name}=${{__data.fields.{name}}}" for name in self.variables)
        return f"/d/{self.uid}?${{datasource:queryparam}}{given}&${{__url_time_range}}"


_Panel = TypeVar("_Panel", stat.Panel, table.Panel, timeseries.Panel, statetimeline.Panel)


class Page:
    """A dashboard under construction."""

    def __init__(self, uid: str, title: str, about: str) -> None:
        self.uid = uid
        self._panels = 0
        self._page = (
            builders.Dashboard(title)
            .uid(uid)
            .description(about)
            .tags([TAG])
            .timezone("browser")
            .time("now-1h", "now")
            .refresh("30s")
            .readonly()
            .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
            .link(
                builders.DashboardLink("Quorate")
                .type(dashboard.DashboardLinkType.DASHBOARDS)
                .tags([TAG])
                .keep_time(True)
            )
            .with_variable(
                builders.DatasourceVariable("datasource").label("Data source").type("prometheus")
            )
            .annotation(
                builders.AnnotationQuery()
                .name("Alerts")
                .datasource(DATASOURCE)
                .enable(True)
                .icon_color("red")
                .expr('ALERTS{alertname=~"Quorate.+", alertstate="firing"}')
            )
        )

    def variable(self, name: str, label: str, query: str, every: bool = False) -> None:
        """Add a variable with the values of `label_values`; `every`: several, or all of them."""
        variable = (
            builders.QueryVariable(name)
            .label(label)
            .query(f"label_values({query}, {name})")
            .datasource(DATASOURCE)
            .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(dashboard.VariableSort.ALPHABETICAL_ASC)
        )
        if every:
            everything = dashboard.VariableOption(text="All", value="$__all")
            variable = variable.multi(True).include_all(True).all_value(".*").current(everything)
        self._page.with_variable(variable)

    def row(self, title: str) -> None:
        """Begin a group of panels."""
        self._panels += 1
        self._page.with_row(builders.Row(title).id(self._panels))

    def stat(
        self,
        title: str,
        question: str,
        query: Query,
        unit: str = "short",
        steps: Steps = (),
        words: Words = NO_WORDS,
        width: int = 3,
    ) -> None:
        """Add the present value; `No data` where there is none, never an old one."""
        panel = (
            self._described(stat.Panel(), title, question, unit, steps, words)
            .height(4)
            .span(width)
            .with_target(_target(0, query.expr).instant().legend_format(query.legend))
            .color_mode(common.BigValueColorMode.BACKGROUND)
            .graph_mode(common.BigValueGraphMode.NONE)
            .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
        )
        self._page.with_panel(panel)

    def lines(
        self,
        title: str,
        question: str,
        *queries: Query,
        unit: str = "short",
        steps: Steps = (),
        stacked: bool = False,
        width: int = 8,
    ) -> None:
        """Add a graph over time.  `steps` are drawn as lines across it."""
        panel = (
            self._described(timeseries.Panel(), title, question, unit, steps)
            .height(7)
            .span(width)
            .min(0)
            .color_scheme(_colour("palette-classic"))
            .fill_opacity(30 if stacked else 10)
            .show_points(common.VisibilityMode.NEVER)
            .legend(
                common_builders.VizLegendOptions()
                .show_legend(True)
                .display_mode(common.LegendDisplayMode.LIST)
                .placement(common.LegendPlacement.BOTTOM)
            )
            .tooltip(common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI))
        )
        if stacked:
            stacking = common_builders.StackingConfig().mode(common.StackingMode.NORMAL)
            panel = panel.stacking(stacking)
        if steps:
            drawn = common_builders.GraphThresholdsStyleConfig()
            panel = panel.thresholds_style(drawn.mode(common.GraphThresholdsStyleMode.DASHED))
        for number, query in enumerate(queries):
            panel.with_target(_target(number, query.expr).range().legend_format(query.legend))
        self._page.with_panel(panel)

    def timeline(
        self, title: str, question: str, query: Query, words: Words, width: int = 8
    ) -> None:
        """Add a bar of states over time for each series."""
        panel = (
            self._described(statetimeline.Panel(), title, question, "short", (), words)
            .height(7)
            .span(width)
            .show_value(common.VisibilityMode.NEVER)
            .with_target(_target(0, query.expr).range().legend_format(query.legend))
        )
        self._page.with_panel(panel)

    def table(
        self,
        title: str,
        question: str,
        labels: Sequence[str],
        *columns: Column,
        link: Link | None = None,
        nothing: str = "",
        height: int = 8,
        width: int = WIDTH,
    ) -> None:
        """Add a row for each set of `labels`.  A column without a title is not shown."""
        panel = (
            self._described(table.Panel(), title, question, "short", ())
            .height(height)
            .span(width)
            .cell_height(common.TableCellHeight.SM)
        )
        if nothing:
            panel = panel.no_value(nothing)
        for number, column in enumerate(columns):
            panel.with_target(_target(number, column.expr).instant().format(PromQueryFormat.TABLE))
            if column.title:
                panel.override_by_name(column.title, _as_cell(column))
        if link is not None:
            to = {"title": "Open ${__value.text}", "url": link.url(), "targetBlank": False}
            panel.override_by_name(link.label, [dashboard.DynamicConfigValue("links", [to])])
        titles = dict(_value_titles(columns))
        organized = {
            "excludeByName": {"Time": True, **{name: True for name in titles if not titles[name]}},
            "indexByName": {name: place for place, name in enumerate((*labels, *titles))},
            "renameByName": {name: title for name, title in titles.items() if title},
        }
        for name, options in (("merge", {}), ("organize", organized)):
            panel.with_transformation(dashboard.DataTransformerConfig(name, options=options))
        self._page.with_panel(panel)

    def text(self) -> str:
        """The JSON, as a file has it."""
        page = self._page.build()
        _drop_unknown(page)
        return json.dumps(page, cls=JSONEncoder, indent=1, sort_keys=True) + "\n"

    def _described(
        self,
        panel: _Panel,
        title: str,
        question: str,
        unit: str,
        steps: Steps,
        words: Words = NO_WORDS,
    ) -> _Panel:
        """The panel with what each has."""
        self._panels += 1
        return (
            panel.id(self._panels)
            .title(title)
            .description(question)
            .datasource(DATASOURCE)
            .unit(unit)
            .color_scheme(_colour("thresholds"))
            .mappings([_mapping(words)] if words else [])
            .thresholds(
                builders.ThresholdsConfig()
                .mode(dashboard.ThresholdsMode.ABSOLUTE)
                .steps([dashboard.Threshold(None, "green"), *_thresholds(steps)])
            )
        )


def _drop_unknown(page: dashboard.Dashboard) -> None:
    """Drop what the builders always set although the types of Grafana 10 or 12 do not have it."""
    if page.templating is not None:
        for variable in page.templating.list_val or ():
            variable.auto = variable.auto_count = variable.auto_min = None  # of intervals only
    for panel in page.panels or ():
        if isinstance(panel, dashboard.Panel) and isinstance(panel.options, TableOptions):
            panel.options.footer = None  # Grafana 12 has it elsewhere


def _target(number: int, expr: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().ref_id(_letter(number)).expr(expr).datasource(DATASOURCE)


def _value_titles(columns: Sequence[Column]) -> Iterator[tuple[str, str]]:
    """What Grafana calls the values of each column -> its title.

    The values of a single query with a result are called otherwise: that is the first one, of which
    other columns are."""
    yield "Value", columns[0].title
    if len(columns) > 1:
        for number, column in enumerate(columns):
            yield f"Value #{_letter(number)}", column.title


def _letter(number: int) -> str:
    return chr(ord("A") + number)


def _colour(mode: str) -> builders.FieldColor:
    return builders.FieldColor().mode(dashboard.FieldColorModeId(mode))


def _thresholds(steps: Steps) -> list[dashboard.Threshold]:
    return [dashboard.Threshold(value, colour) for value, colour in steps]


def _mapping(words: Words) -> dashboard.ValueMap:
    return dashboard.ValueMap(
        {
            str(value): dashboard.ValueMappingResult(text, colour, index=place)
            for place, (value, (text, colour)) in enumerate(words.items())
        }
    )


def _as_cell(column: Column) -> list[dashboard.DynamicConfigValue]:
    """How a column differs from the others of its table."""
    properties = [dashboard.DynamicConfigValue("unit", column.unit)]
    if column.words:
        properties.append(dashboard.DynamicConfigValue("mappings", [_mapping(column.words)]))
    if column.steps:
        steps = [dashboard.Threshold(None, "transparent"), *_thresholds(column.steps)]
        value = {"mode": dashboard.ThresholdsMode.ABSOLUTE, "steps": steps}
        properties.append(dashboard.DynamicConfigValue("thresholds", value))
    if column.words or column.steps:
        shown = {"type": "color-background", "mode": "basic"}
        properties.append(dashboard.DynamicConfigValue("custom.cellOptions", shown))
    return properties
