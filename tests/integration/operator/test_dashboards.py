"""What the dashboards show of two operators on a real API server, of which one takes over.

Prometheus labels series as the chart's PodMonitors say.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from quorate_cluster.load import Load
from quorate_cluster.processes import HOST
from quorate_cluster.road import QUIET, Road
from quorate_cluster.waiting import wait_until
from quorate_control_plane.ports import free_ports
from quorate_documented.dashboards import Asked, all_asked
from quorate_documented.prometheus import Prometheus, prometheus
from write_metrics import RULES

pytestmark = [
    pytest.mark.integration,
    pytest.mark.process,
    pytest.mark.timeout(300),
    pytest.mark.needs("prometheus"),
]

JOB = "storage/quorate-operator"
ASKED = [each for each in all_asked() if each.file == "operator.json"]
MASTERS = next(each for each in ASKED if each.panel == "Which process leads")
ZONES = [
    each
    for each in all_asked()
    if (each.file, each.panel) == ("overview.json", "Zones") and "validation" not in each.expr
]
"""Without the column about validations: there is none here."""


def _configuration(road: Road) -> str:
    operators = [
        _target(road.health[name], namespace="storage", instance=f"pod-of-{name}")
        for name in road.operators
    ]
    here = {"namespace": road.namespace, "cluster": "main"}
    agents = [_target(agent.admin_port, **here, agent=name) for name, agent in road.agents.items()]
    jobs = [
        {"job_name": JOB, "honor_labels": True, "static_configs": operators},
        {"job_name": "storage/quorate-agents", "static_configs": agents},
    ]
    return yaml.safe_dump({"scrape_configs": jobs})


def _target(port: int, **labels: str) -> dict[str, Any]:
    return {"targets": [f"{HOST}:{port}"], "labels": labels}


def _empty(running: Prometheus, asked: list[Asked]) -> list[str]:
    """The expressions without data."""
    return [
        str(each)
        for each in asked
        if not any(series.values for series in running.answer(each, {"job": JOB}))
    ]


def test_the_operators_page_has_data_and_shows_that_another_one_leads(
    road: Road, tmp_path: Path
) -> None:
    road.start_agents()
    master = road.start_operator("operator-a")
    road.declare()
    road.wait_zone(**QUIET)
    road.start_operator("operator-b")

    with (
        prometheus(tmp_path, next(free_ports()), _configuration(road), RULES) as running,
        Load(road.client()),
    ):
        road.agents["agent-1"].kill()
        lost = 'quorate_operator_nodes{state="Offline"} == 1'
        wait_until(lambda: running.now(lost), "the loss of an agent")
        road.agents["agent-1"].start()
        wait_until(lambda: not _empty(running, ASKED), "data", say=lambda: _empty(running, ASKED))
        master.kill()
        led = f'quorate_operator_is_master{{job="{JOB}"}} == 1'
        by_the_other = [{"instance": "pod-of-operator-b", "job": JOB, "namespace": "storage"}]
        wait_until(
            lambda: [_without_name(each.labels) for each in running.now(led)] == by_the_other,
            "another master",
            60,
        )
        names = {each.labels["instance"] for each in running.answer(MASTERS, {"job": JOB})}
        assert names == {"pod-of-operator-a", "pod-of-operator-b"}
        everything = {"namespace": ".*", "cluster": ".*"}
        row = {"namespace": road.namespace, "cluster": "main", "zone": "sessions"}
        for each in ZONES:
            wait_until(
                lambda: [dict(found.labels) for found in running.answer(each, everything)] == [row],  # noqa: B023
                str(each),
            )


def _without_name(labels: Any) -> dict[str, str]:
    return {name: text for name, text in labels.items() if name != "__name__"}
