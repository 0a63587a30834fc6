"""Every alert of the chart fires when it should, resolves, and does not flap (promtool).

`alert_cases.yaml` says at which minutes. Rules are read from the file that the chart makes a
PrometheusRule of.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from quorate_cli.commands.every import app
from quorate_cli.kubectl.app import app as kubectl_app
from write_metrics import ROOT, RULES, agent_metrics, operator_metrics

CASES: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "alert_cases.yaml").read_text()
)
ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
}
PAGES = {path.name: path.read_text() for path in (ROOT / "docs" / "runbooks").glob("*.md")}
NEVER = (1, 0)

Json = dict[str, Any]


def _seconds(text: str) -> int:
    """The seconds of `1m30s`."""
    found = re.fullmatch(r"(?:(\d+)m)?(?:(\d+)s)?", text)
    assert found is not None, text
    return int(found[1] or 0) * 60 + int(found[2] or 0)


def _runs(text: str, step_s: int) -> Iterator[tuple[str, int]]:
    """Each value with the number of scrapes that have it: `0 5m, +3 1m30s`."""
    for run in text.split(","):
        value, lasts = run.split()
        yield value, _seconds(lasts) // step_s


def _values(text: str, step_s: int) -> str:
    """The same as promtool takes it."""
    last, values = 0.0, []
    for value, scrapes in _runs(text, step_s):
        for _ in range(scrapes):
            if value[0] in "+-":
                last += float(value)
            elif value not in ("_", "stale"):
                last = float(value)
            values.append(value if value in ("_", "stale") else f"{last:.0f}")
    return " ".join(values)


def _tests_of(alert: str, case: Json, step_s: int) -> Json:
    """The cases for promtool: the state at every minute, and the words of the alert."""
    said, rule = CASES[alert] | case, ALERTS[alert]
    series = {name: _values(text, step_s) for name, text in case["series"].items()}
    scrapes = max(len(values.split()) for values in series.values())
    first, last = case.get("firing", NEVER)
    told = {name: said[name] for name in ("summary", "description")}
    expected = {
        "exp_labels": {**rule["labels"], **said["labels"]},
        "exp_annotations": {**told, "runbook_url": rule["annotations"]["runbook_url"]},
    }
    return {
        "name": case["case"],
        "interval": f"{step_s}s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)',
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": "{}", "value": int(first <= minute <= last)}],
            }
            for minute in range(0, scrapes * step_s // 60, max(1, step_s // 60))
        ],
        "alert_rule_test": [
            {"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": [expected]}
            for minute in case.get("firing", ())
        ],
    }


@pytest.mark.needs("promtool")
@pytest.mark.parametrize("alert", list(ALERTS))
def test_it_fires_from_the_first_to_the_last_minute_and_at_no_other(
    alert: str, tmp_path: Path
) -> None:
    step_s = _seconds(CASES[alert].get("step", "15s"))
    tests = [_tests_of(alert, case, step_s) for case in CASES[alert]["cases"]]
    whole = {"rule_files": [str(RULES)], "evaluation_interval": f"{step_s}s", "tests": tests}
    file = tmp_path / "tests.yaml"
    file.write_text(json.dumps(whole))  # which is YAML

    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_cases_in_which_it_fires_and_in_which_it_does_not() -> None:
    assert set(CASES) == set(ALERTS)
    for each in CASES.values():
        assert {"firing" in case for case in each["cases"]} == {True, False}


@pytest.mark.parametrize("alert", list(ALERTS))
def test_each_alert_has_a_severity_and_a_page(alert: str) -> None:
    rule = ALERTS[alert]
    slug = re.sub(r"(?<!^)(?=[A-Z])", "-", alert.removeprefix("Quorate")).lower()

    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{slug}.md"
    page = PAGES[f"{slug}.md"]
    assert page.startswith(f"# {alert}\n")
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == [
        "What it means",
        "How to look",
        "What to do",
    ]


def test_each_page_belongs_to_an_alert() -> None:
    pages = set(PAGES) - {"README.md"}

    assert pages == {Path(rule["annotations"]["runbook_url"]).name for rule in ALERTS.values()}


@pytest.mark.parametrize("alert", list(ALERTS))
def test_each_alert_uses_metrics_that_are_served(alert: str) -> None:
    served = {each.name for each in (*agent_metrics(), *operator_metrics())}

    used = set(re.findall(r"quorate_\w+", ALERTS[alert]["expr"]))

    assert used
    assert used <= served


COMMANDS = {
    line
    for text in PAGES.values()
    for line in re.findall(r"(?:kubectl )?\bquorate (?!-)[a-z][^`\n]*", text)
}


def test_the_log_that_pages_read_is_that_of_all_processes_of_the_operator() -> None:
    """Otherwise kubectl reads that of one pod, which may be the one that stands by."""
    read = {
        (page, options)
        for page, text in PAGES.items()
        for options in re.findall(r"logs deployment/quorate-operator(.*)", text)
    }

    assert read
    assert not {each for each in read if " --all-pods --prefix" not in each[1]}


@pytest.mark.parametrize("line", sorted(COMMANDS))
def test_the_pages_name_commands_with_options_that_exist(line: str) -> None:
    words = line.partition(" | ")[0].split()
    of_kubectl = words.pop(0) == "kubectl"
    command: Any = typer.main.get_command(kubectl_app if of_kubectl else app)
    if of_kubectl:
        words.pop(0)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}

    assert {word for word in words if word.startswith("-")} <= known
