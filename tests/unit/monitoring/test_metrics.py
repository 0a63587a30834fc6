"""docs/metrics.md, and what agents and operators serve: the same metrics, in valid text."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from quorate.facts.time import Now
from quorate.facts.topology import Holder
from quorate.facts.zone import StorageKind, ZoneRecord
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.messages.events import Reason
from quorate.protocol.status import ClusterStatus
from quorate_agent.clients.memory import ClientMemory
from quorate_agent.folder.disk_room import DiskRoom
from quorate_agent.metrics import AgentMetrics, Engine
from quorate_agent.process.admin import start_admin
from quorate_agent.process.probes import Probes
from quorate_documented.metrics import families
from quorate_link import LinkCounters
from quorate_lone_agent.agent import Agent, replicas_in_memory
from quorate_lone_master.zone_status import status_of_zone
from quorate_operator.process.health import add_health
from quorate_operator.process.metrics import Led, Metrics
from write_metrics import (
    ALERTS,
    LABELS,
    PAGE,
    Described,
    agent_metrics,
    alerts,
    described,
    operator_metrics,
    page,
)

EVERY = [*agent_metrics(), *operator_metrics()]
OTHER_UNITS = {"ms", "us", "milliseconds", "minutes", "hours", "kb", "mb", "mib", "percent"}


def test_the_pages_are_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run make metrics"
    assert ALERTS.read_text() == alerts(), "run make metrics"


@pytest.mark.parametrize("metric", EVERY, ids=lambda metric: metric.name)
def test_each_metric_has_our_prefix_a_base_unit_a_meaning_and_bounded_labels(
    metric: Described,
) -> None:
    words = metric.name.split("_")

    assert words[0] == "quorate"
    assert not OTHER_UNITS & set(words)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.meaning
    assert set(metric.labels) <= set(LABELS), "say in LABELS what bounds the number of its values"


def test_no_name_is_used_twice() -> None:
    assert len({each.name for each in EVERY}) == len(EVERY)


class _Agent:
    """Metrics of an agent that has copies of these zones."""

    def __init__(self, folder: Path) -> None:
        self.zones: list[Replicas] = [Agent().replicas]
        self.metrics = AgentMetrics()
        self.links, memory = LinkCounters(bytes_in=7), ClientMemory()
        disk = DiskRoom(folder)
        self.engines: dict[str, Engine] = {}
        self.metrics.observe(
            lambda: self.zones, self.engines, lambda: True, self.links, disk, memory
        )
        self.metrics.transactions.labels("committed").inc()
        self.metrics.heartbeat_seconds.observe(0.02)

    def series(self) -> set[tuple[str, str]]:
        return {
            (sample.name, str(sample.labels))
            for family in self.metrics.registry.collect()
            for sample in family.samples
        }


def _zone(partitions: int) -> Replicas:
    record = ZoneRecord(f"uid-{partitions}", "books", partitions, 1, StorageKind.IN_MEMORY)
    return replicas_in_memory(record, Holder("a", "s-a.1", 1), Now(0, 0))


async def test_an_agent_serves_what_the_page_has(tmp_path: Path) -> None:
    agent = _Agent(tmp_path)
    agent.zones[0].full_reasons["Divergent"] = 2
    probes = Probes()
    probes.starts(agent.metrics.registry)
    server = await start_admin("127.0.0.1", 0, probes)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    head, _, text = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    await server.close()

    assert "Content-Type: text/plain; version=0.0.4; charset=utf-8" in head
    assert families(text) == {each.name for each in agent_metrics()}
    assert 'quorate_full_copies_total{reason="Divergent",zone="books"} 2.0\n' in text
    assert 'quorate_primaries{zone="books"} 4.0\n' in text
    assert "quorate_peer_received_bytes_total 7.0\n" in text


def test_the_number_of_series_does_not_depend_on_the_number_of_partitions(tmp_path: Path) -> None:
    agent = _Agent(tmp_path)
    agent.zones = [_zone(partitions=4)]
    few = agent.series()

    agent.zones = [_zone(partitions=256)]

    assert agent.series() == few


def test_a_zone_that_is_gone_has_no_series(tmp_path: Path) -> None:
    agent = _Agent(tmp_path)
    assert [labels for _, labels in agent.series() if "books" in labels]

    agent.zones = []

    assert [labels for _, labels in agent.series() if "books" in labels] == []


def test_times_of_commands_stay_counted_when_their_zone_is_gone(tmp_path: Path) -> None:
    agent = _Agent(tmp_path)
    (zone,) = agent.zones
    meter = agent.metrics.meter(zone.record.uid, lambda: 10.0)
    meter.answered("read", b"$-1\r\n")
    meter.answered("read", b"-WRONGTYPE no\r\n")
    meter.end(arrived=9.91)

    def values(name: str) -> dict[tuple[str, ...], float]:
        found = (each for family in agent.metrics.registry.collect() for each in family.samples)
        return {
            tuple(value for _, value in sorted(each.labels.items())): each.value
            for each in found
            if each.name == name
        }

    assert values("quorate_commands_total") == {
        ("read", "ok", "books"): 1,
        ("read", "error", "books"): 1,
    }
    buckets = values("quorate_command_seconds_bucket")
    assert (buckets["read", "0.1"], buckets["read", "0.25"]) == (2, 2)

    agent.zones = []

    assert values("quorate_commands_total") == {}
    assert values("quorate_command_seconds_bucket") == buckets
    assert values("quorate_command_seconds_sum")["read",] == pytest.approx(0.18)


class _Operator:
    """An operator, as far as its metrics are concerned."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.metrics.observe_queue(lambda: 3)
        self.metrics.observe_verdicts(list)
        self.metrics.observe_exports(list)
        ages_s = {("ns", "zones"): 5.0, ("", "nodes"): 50.0}
        self.metrics.observe_vitals(lambda: 1.0, lambda: 0.1, lambda: ages_s, lambda: 40)
        self.zone = status_of_zone(data_loss="8 partitions", refusals=(("agent-1", "no port"),))

    def clusters(self) -> list[Led]:
        return [Led("ns", "main", ClusterStatus(4, (), (self.zone,)))]

    def unhealthy(self) -> str:
        return ""

    def process_not_ready(self) -> str:
        return ""

    def not_ready(self) -> str:
        return ""


async def _served_by(operator: _Operator) -> str:
    app = web.Application()
    add_health(app, operator)
    async with TestClient(TestServer(app)) as client, client.get("/metrics") as answer:
        return await answer.text()


async def test_an_operator_serves_what_the_page_has() -> None:
    operator = _Operator()
    text = await _served_by(operator)

    assert families(text) == {each.name for each in operator_metrics()}
    in_zone = '{cluster="main",namespace="ns",zone="books"}'
    assert f"quorate_operator_data_loss_accepted{in_zone} 1.0\n" in text
    assert f"quorate_operator_refusing_agents{in_zone} 1.0\n" in text
    assert f"quorate_operator_stuck_migrations{in_zone} 0.0\n" in text


async def test_losses_are_counted_from_0_on_so_that_the_first_one_is_an_increase() -> None:
    operator = _Operator()
    operator.metrics.begin_losses("ns", "books", "uid-1")
    before = await _served_by(operator)
    operator.metrics.count_events("ns", "books", Reason.STARTED_EMPTY, 64)
    after = await _served_by(operator)

    series = 'quorate_events_total{namespace="ns",reason="StartedEmpty",zone="books"}'
    assert f"{series} 0.0\n" in before
    assert f"{series} 64.0\n" in after


def _registries(folder: Path) -> list[CollectorRegistry]:
    operator = _Operator()
    add_health(web.Application(), operator)
    return [_Agent(folder).metrics.registry, operator.metrics.registry]


def test_the_metrics_are_valid_open_metrics_too(tmp_path: Path) -> None:
    """That format is stricter: about names of counters and units, among others."""
    for registry in _registries(tmp_path):
        text = generate_latest(registry).decode()

        found = {each.name: each.type for each in text_string_to_metric_families(text)}

        wanted = {each.name.removesuffix("_total"): each.kind for each in described(registry)}
        assert found == wanted
