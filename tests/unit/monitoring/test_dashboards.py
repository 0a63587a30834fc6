"""The dashboards of the chart: Grafana reads them, Prometheus their expressions, links lead on."""

import itertools
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from quorate_documented.dashboards import PAGES, RATE_INTERVAL, Asked, Json, all_asked, panels
from write_dashboards import files, written
from write_metrics import agent_metrics, operator_metrics

ASKED = list(all_asked())
METRICS = {each.name: each for each in (*agent_metrics(), *operator_metrics())}
ALERTS = "ALERTS"
UNITS = {"short", "s", "bytes", "binBps", "reqps", "ops", "percentunit"}
TYPES = {"row", "stat", "table", "timeseries", "state-timeline"}
COLUMNS = 24
OF_GRAFANA_10 = 39
"""The highest schemaVersion that Grafana 10.4 knows; later versions bring lower ones up to date."""


def _variables(page: Json) -> dict[str, Json]:
    return {each["name"]: each for each in page["templating"]["list"]}


def _used(expr: str) -> set[str]:
    """Names of metrics in an expression, of histograms without what their series are called."""
    names = set(re.findall(r"\bquorate_\w+|\bALERTS\b", expr))
    return {name if name in METRICS else re.sub("_(bucket|sum|count)$", "", name) for name in names}


def test_they_are_up_to_date() -> None:
    assert written() == files(), "run make dashboards"


def test_every_metric_that_is_asked_for_is_served() -> None:
    for asked in ASKED:
        used = _used(asked.expr)

        assert used, asked
        assert used <= {*METRICS, ALERTS}, asked


def test_every_metric_is_on_a_panel() -> None:
    shown = {name for asked in ASKED for name in _used(asked.expr)}

    assert set(METRICS) - shown == set()


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_labels_are_those_of_the_metrics(asked: Asked) -> None:
    """Of matchers; besides, agents have the labels that whoever scrapes them gives them."""
    given = {"namespace", "cluster", "agent", "job", "instance", "le"}
    for name, matchers in re.findall(r"(\bquorate_\w+)\{([^}]*)\}", asked.expr):
        (metric,) = _used(name)
        labels = set(re.findall(r"(\w+)(?:=~?|!=|!~)", matchers))

        assert labels <= {*METRICS[metric].labels, *given}, asked


@pytest.mark.needs("promtool")
def test_prometheus_takes_every_expression(tmp_path: Path) -> None:
    values = {name: "x" for page in PAGES.values() for name in _variables(page)}
    values[RATE_INTERVAL] = "1m"
    rules = [
        {"record": f"panel_{number}", "expr": asked.with_values(values)}
        for number, asked in enumerate(ASKED)
    ]
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))  # it is YAML

    done = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ASKED)} rules found" in done.stdout


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_variables_that_are_used_are_declared(asked: Asked) -> None:
    assert asked.variables <= {*_variables(PAGES[asked.file]), RATE_INTERVAL}


def test_addresses_are_unique_and_those_of_the_files() -> None:
    uids = [page["uid"] for page in PAGES.values()]

    assert uids == [f"quorate-{Path(file).stem}" for file in PAGES]
    assert len({page["title"] for page in PAGES.values()}) == len(PAGES)


@pytest.mark.parametrize("file", PAGES)
def test_grafana_10_and_later_read_it(file: str) -> None:
    page = PAGES[file]

    assert page["schemaVersion"] <= OF_GRAFANA_10
    assert not {"apiVersion", "kind", "spec", "elements", "id"} & set(page)
    assert {panel["type"] for panel in page["panels"]} <= TYPES
    ids = [panel["id"] for panel in page["panels"]]
    assert sorted(ids) == [*range(1, len(ids) + 1)]


@pytest.mark.parametrize("file", PAGES)
def test_variables_ask_metrics_that_are_served_again_with_each_time_range(file: str) -> None:
    source, *others = _variables(PAGES[file]).values()

    assert (source["name"], source["type"], source["query"]) == (
        "datasource",
        "datasource",
        "prometheus",
    )
    for variable in others:
        assert variable["refresh"] == 2  # whenever the time range changes
        found = re.fullmatch(r"label_values\((\w+)(\{.*\})?, (\w+)\)", variable["query"])
        assert found is not None
        assert found[1] in METRICS
        assert found[3] == variable["name"]
        before = set(re.findall(r"\$(\w+)", found[2] or ""))
        assert before <= {each["name"] for each in others[: others.index(variable)]}


def _cells(panel: Json) -> set[tuple[int, int]]:
    at = panel["gridPos"]
    columns = range(at["x"], at["x"] + at["w"])
    return set(itertools.product(columns, range(at["y"], at["y"] + at["h"])))


@pytest.mark.parametrize("file", PAGES)
def test_panels_lie_side_by_side_on_the_grid(file: str) -> None:
    for panel in PAGES[file]["panels"]:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= COLUMNS, panel["title"]
    for one, other in itertools.combinations(PAGES[file]["panels"], 2):
        assert not _cells(one) & _cells(other), (one["title"], other["title"])


@pytest.mark.parametrize("file", PAGES)
def test_no_two_panels_of_a_row_have_one_title(file: str) -> None:
    titles: set[str] = set()
    for panel in PAGES[file]["panels"]:
        if panel["type"] == "row":
            titles = set()
        assert panel["title"] not in titles
        titles.add(panel["title"])


@pytest.mark.parametrize("file", PAGES)
def test_each_panel_answers_a_question_in_a_unit_from_the_chosen_source(file: str) -> None:
    for panel in panels(file):
        assert "?" in panel["description"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        for asking in (panel, *panel["targets"]):
            assert asking["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        letters = [target["refId"] for target in panel["targets"]]
        assert letters == [chr(ord("A") + number) for number in range(len(letters))]


@pytest.mark.parametrize("file", PAGES)
def test_stats_and_tables_show_the_present_only(file: str) -> None:
    """The last value of a time range would hide that nobody reports any more."""
    for panel in panels(file):
        of_now = {target["instant"] and not target["range"] for target in panel["targets"]}

        assert of_now == {panel["type"] in ("stat", "table")}, panel["title"]


@pytest.mark.parametrize("file", PAGES)
def test_columns_of_a_table_are_found_by_their_names(file: str) -> None:
    for table in (panel for panel in panels(file) if panel["type"] == "table"):
        merge, organize = table["transformations"]
        letters = [target["refId"] for target in table["targets"]]
        values = [f"Value #{letter}" for letter in letters] if len(letters) > 1 else ["Value"]
        titles = organize["options"]["renameByName"]
        places = organize["options"]["indexByName"]
        shown = sorted(places, key=places.__getitem__)

        assert merge["id"] == "merge"
        assert shown[-len(values) :] == values
        hidden = {*organize["options"]["excludeByName"]}
        assert {*titles} - {"Value"} == {*values} - {"Value"} - hidden
        labels = shown[: -len(values)]
        assert all(target["format"] == "table" for target in table["targets"])
        changed = {each["matcher"]["options"] for each in table["fieldConfig"]["overrides"]}
        assert changed <= {*labels, *titles.values()}


def _links(file: str) -> dict[str, list[dict[str, Any]]]:
    """Title of a table -> its links to other dashboards."""
    return {
        panel["title"]: [
            {"column": override["matcher"]["options"], **link}
            for override in panel["fieldConfig"]["overrides"]
            for each in override["properties"]
            if each["id"] == "links"
            for link in each["value"]
        ]
        for panel in panels(file)
        if panel["type"] == "table"
    }


def _leads_to(link: Json) -> str:
    return str(re.findall(r"^/d/([\w-]+)\?", link["url"])[0])


def test_a_link_gives_the_other_dashboard_all_its_variables_from_the_row() -> None:
    by_uid = {page["uid"]: page for page in PAGES.values()}
    for file in PAGES:
        for table in (panel for panel in panels(file) if panel["type"] == "table"):
            for link in _links(file)[table["title"]]:
                given = dict(re.findall(r"&var-(\w+)=\$\{__data\.fields\.(\w+)\}", link["url"]))
                wanted = {*_variables(by_uid[_leads_to(link)])} - {"datasource"}
                columns = table["transformations"][1]["options"]["indexByName"]

                assert given == {name: name for name in wanted}
                assert wanted <= {*columns}
                assert link["column"] in columns
                assert "${datasource:queryparam}" in link["url"]
                assert "${__url_time_range}" in link["url"]


SIGNS: dict[str, dict[str, str]] = {
    "gives no metrics, but did within the last hour": {
        "quorate_master_connected{%s}": "1x4 stale _x16"
    },
    "no master leads it": {"quorate_master_connected{%s}": "0x20"},
    "heartbeats take more than 1 s": {
        'quorate_heartbeat_seconds_bucket{%s, le="1.0"}': "0x20",
        'quorate_heartbeat_seconds_bucket{%s, le="1.5"}': "0+9x20",
        'quorate_heartbeat_seconds_bucket{%s, le="+Inf"}': "0+9x20",
    },
    "no room on its disk": {'quorate_storage_full{%s, zone="books"}': "1x20"},
    "cut off: does not serve a zone": {'quorate_isolated{%s, zone="books"}': "1x20"},
    "answers CLUSTERDOWN": {"quorate_commands_clusterdown_total{%s}": "0+1x20"},
    "answers UNKNOWN": {"quorate_commands_unknown_total{%s}": "0+1x20"},
    "memory for clients nearly used up": {
        "quorate_client_memory_bytes{%s}": "95x20",
        "quorate_client_memory_max_bytes{%s}": "100x20",
    },
    "refuses large commands: OOM": {"quorate_client_memory_refused_total{%s}": "0+1x20"},
}
"""Sign of trouble -> series of an agent that has it, every 15 s for five minutes."""
WELL = {
    "quorate_master_connected{%s}": "1x20",
    'quorate_heartbeat_seconds_bucket{%s, le="1.0"}': "0+9x20",
    'quorate_heartbeat_seconds_bucket{%s, le="+Inf"}': "0+9x20",
    'quorate_storage_full{%s, zone="books"}': "0x20",
    'quorate_isolated{%s, zone="books"}': "0x20",
    "quorate_commands_clusterdown_total{%s}": "7x20",
    "quorate_commands_unknown_total{%s}": "7x20",
    "quorate_client_memory_bytes{%s}": "5x20",
    "quorate_client_memory_max_bytes{%s}": "100x20",
    "quorate_client_memory_refused_total{%s}": "7x20",
}


def _of_agent(agent: str, series: dict[str, str]) -> list[Json]:
    labels = f'namespace="ns", cluster="main", agent="{agent}"'
    return [
        {"series": name.replace("%s", labels), "values": values} for name, values in series.items()
    ]


@pytest.mark.needs("promtool")
def test_each_sign_names_the_agent_that_has_it_and_none_that_is_well(tmp_path: Path) -> None:
    (asked,) = (each for each in ASKED if each.panel == "Agents in trouble")
    expr = asked.with_values({"namespace": "ns", "cluster": "main", RATE_INTERVAL: "1m"})
    assert len(re.findall("label_replace", expr)) == len(SIGNS)
    tests = [
        {
            "name": sign,
            "interval": "15s",
            "input_series": [*_of_agent("well", WELL), *_of_agent("sick", {**WELL, **series})],
            "promql_expr_test": [
                {
                    "expr": f"count by (namespace, cluster, agent, sign) ({expr})",
                    "eval_time": "5m",
                    "exp_samples": [
                        {
                            "labels": '{namespace="ns", cluster="main", agent="sick",'
                            f' sign="{sign}"}}',
                            "value": 1,
                        }
                    ],
                }
            ],
        }
        for sign, series in SIGNS.items()
    ]
    file = tmp_path / "tests.yaml"
    file.write_text(json.dumps({"evaluation_interval": "15s", "tests": tests}))  # it is YAML

    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr


def test_a_sick_agent_is_one_click_from_the_overview_and_two_by_its_zone() -> None:
    overview, zone = _links("overview.json"), _links("zone.json")

    assert {_leads_to(link) for link in overview["Agents in trouble"]} == {"quorate-agent"}
    assert {_leads_to(link) for link in overview["Agents"]} == {"quorate-agent"}
    assert {_leads_to(link) for link in overview["Zones"]} == {"quorate-zone"}
    assert {_leads_to(link) for link in zone["Agents of this zone in trouble"]} == {"quorate-agent"}
    assert {_leads_to(link) for link in zone["Agents of this zone"]} == {"quorate-agent"}
