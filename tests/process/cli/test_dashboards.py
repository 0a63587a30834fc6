"""A real Prometheus scrapes a cluster under load, of which an agent joins and others die: every
panel gets data, and the dashboards name the agents.

QUORATE_CONTACT_SHEET=file.html keeps a drawing of all panels.
"""

import contextlib
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis, RedisCluster
from redis.exceptions import RedisError

from quorate.facts.keyspace import key_partition
from quorate_cli.dev.dev_cluster import DevCluster
from quorate_cli.dev.monitoring import scrape_configuration
from quorate_cli.objects import resources
from quorate_cluster.load import Load
from quorate_cluster.waiting import wait_until
from quorate_control_plane.ports import free_ports
from quorate_documented.contact_sheet import draw
from quorate_documented.dashboards import PAGES, Asked, Json, asked_of, panels
from quorate_documented.prometheus import Prometheus, Series, prometheus
from write_metrics import RULES

pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(300),
    pytest.mark.needs("prometheus"),
]

Quorate = Callable[..., str]

EXAMPLE = Path(__file__).parents[3] / "examples" / "zone.yaml"
DIES, DIES_TOO, LIVES, JOINS = "agent-1", "agent-2", "agent-3", "agent-4"
KEY, PARTITIONS = "the-key", 64
EVERY = {"namespace": ".*", "cluster": ".*"}
IN_CLUSTER = {"namespace": "dev", "cluster": "main"}
VARIABLES: Mapping[str, Mapping[str, str]] = {
    "overview.json": EVERY,
    "zone.json": {**IN_CLUSTER, "zone": "library"},
    "agent.json": {**IN_CLUSTER, "agent": LIVES},
    "operator.json": {"job": "quorate-operator"},
}
ON_KUBERNETES = {
    "Age of the lease",
    "Age of the lease by process",
    "Age of watches",
    "Limit of concurrent requests",
    "Loop lag",
    "Loop lag by process",
    "Pass over all clusters",
    "Reconciliations",
    "Requests to the API server",
}
"""Panels about what an operator without Kubernetes has not; tests/integration has their data."""
RUNS = ("runs", "validation", "backup", "restore")
"""Runs by objects on Kubernetes, in names of metrics; tests/unit/operator has their data."""
OF_CUT_LOGS = {"Updates in the shortest log, by agent", "Bytes in the shortest log, by agent"}
"""Panels without data until a log is cut, which takes long; tests/unit/monitoring cuts one."""


def _ports(cluster: DevCluster) -> list[int]:
    (found,) = resources.fetch_all(cluster.api(), resources.ZONE)
    return [int(each.rpartition(":")[2]) for each in resources.zone(found).status.endpoints]


@contextmanager
def _strays(ports: list[int]) -> Iterator[None]:
    """Commands, and transactions of keys in several partitions, at each agent whoever is primary:
    some of them must be forwarded, or wait for a primary, for up to five seconds."""
    over = threading.Event()

    def run(port: int) -> None:
        client = Redis(port=port, socket_timeout=8)
        number = 0
        while not over.wait(0.005):
            number += 1
            with contextlib.suppress(RedisError):  # moved, refused, or the agent is dead
                pipe = client.pipeline(transaction=number % 7 > 0)
                for name in ("one", "other"):
                    pipe.set(f"{name}-{number}", number)
                pipe.execute()

    threads = [threading.Thread(target=run, args=(port,)) for port in ports]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        over.set()
        for each in threads:
            each.join()


def _panel(file: str, title: str) -> Json:
    (found,) = (each for each in panels(file) if each["title"] == title)
    return found


def _rows(running: Prometheus, title: str) -> list[dict[str, str]]:
    """The labels of the rows of a table of the overview."""
    (asked,) = asked_of("overview.json", _panel("overview.json", title))
    return [dict(each.labels) for each in running.answer(asked, EVERY)]


def _tile(running: Prometheus, title: str) -> float:
    """The number of a tile of the overview; not a number: the last scrape was missed, or there was
    none yet."""
    (asked,) = asked_of("overview.json", _panel("overview.json", title))
    found = running.answer(asked, EVERY)
    assert len(found) < 2, found
    return found[0].last if found else math.nan


def _answers(running: Prometheus) -> dict[str, dict[str, list[tuple[Asked, list[Series]]]]]:
    """File -> id of the panel -> what it gets."""
    return {
        file: {
            str(panel["id"]): [
                (asked, running.answer(asked, VARIABLES[file])) for asked in asked_of(file, panel)
            ]
            for panel in panels(file)
        }
        for file in ("overview.json", "zone.json", "agent.json", "operator.json")
    }


def _is_absent_here(asked: Asked) -> bool:
    """Whether this cluster does not have what it is about, runs by objects among it."""
    of_runs = any(f"quorate_operator_{each}_" in asked.expr for each in RUNS)
    of_kubernetes = asked.panel in ON_KUBERNETES or of_runs
    return of_kubernetes or asked.panel in OF_CUT_LOGS


def _empty(running: Prometheus) -> list[str]:
    """The expressions without data."""
    return [
        str(asked)
        for of_file in _answers(running).values()
        for answers in of_file.values()
        for asked, found in answers
        if not any(series.values for series in found) and not _is_absent_here(asked)
    ]


def test_every_panel_has_data_while_agents_die_and_the_overview_names_the_first(
    quorate: Quorate, cluster: DevCluster, tmp_path: Path
) -> None:
    assert set(VARIABLES) == set(PAGES)
    quorate("dev", "up", "--debug-commands")
    quorate("apply", "-f", str(EXAMPLE), "--wait", "60")
    ports = _ports(cluster)
    client = RedisCluster(host="127.0.0.1", port=ports[-1])
    client.set(KEY, "right")
    partition = str(key_partition(KEY.encode(), PARTITIONS))
    configuration = scrape_configuration(cluster.folder)
    with prometheus(tmp_path, next(free_ports()), configuration, RULES) as running, Load(client):
        quorate("debug", "damage", "library", KEY, "--agent", LIVES)
        quorate("debug", "refill", "library", partition, "--agent", LIVES)
        quorate("dev", "add")
        running.scrape(scrape_configuration(cluster.folder), RULES)
        with _strays(_ports(cluster)):
            wait_until(lambda: _tile(running, "Too few copies") == 0, "copies")
            wait_until(lambda: running.now(f'quorate_copies{{agent="{JOINS}"}} > 0'), "agent-4")
            wait_until(lambda: not _rows(running, "Agents in trouble"), "no trouble", 60)
            wait_until(lambda: not _rows(running, "Alerts"), "no alerts", 60)

            quorate("dev", "kill", DIES)

            wait_until(lambda: _tile(running, "Agents offline") == 1, "the loss")
            wait_until(lambda: _rows(running, "Alerts"), "an alert that is pending")
            wait_until(lambda: _rows(running, "Agents in trouble"), "a sign of it", 60)
            (row,) = _rows(running, "Agents in trouble")
            sign = "gives no metrics, but did within the last hour"
            assert row == {**IN_CLUSTER, "agent": DIES, "sign": sign}

            quorate("dev", "kill", DIES_TOO)  # some partitions have no quorum now

            wait_until(lambda: _tile(running, "Without a primary") > 0, "lack of a quorum")
            wait_until(lambda: _tile(running, "Commands refused") > 0, "refusals", 60)
            wait_until(lambda: not _empty(running), "data", 60, lambda: _empty(running))
            sheet = draw(_answers(running))
    assert sheet.count("class=panel") == sum(len(panels(file)) for file in PAGES)
    if kept := os.environ.get("QUORATE_CONTACT_SHEET"):
        Path(kept).write_text(sheet)
