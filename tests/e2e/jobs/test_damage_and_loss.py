"""One story on real nodes, by objects alone: a damaged copy is found and repaired, a zone that was
deleted comes back from a bucket.  Clients write all the time."""

import json
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from quorate.facts.keyspace import key_partition
from quorate_cluster.digests import are_equal
from quorate_cluster.fixtures import Measured
from quorate_cluster.outage import Pulses
from quorate_cluster.served import NotServed
from quorate_control_plane.ports import free_ports
from quorate_documented.prometheus import Prometheus, prometheus
from quorate_helm.build import helm_path
from quorate_helm.chart import find, objects, render
from quorate_network_policies.evaluator import Policies
from quorate_network_policies.in_pods import Connection, PodConnections
from quorate_network_policies.judged import Judged
from quorate_nodes.cluster import Json
from quorate_nodes.enforced import policies_enforced
from quorate_nodes.release.bucket import SECRET, bucket
from quorate_nodes.release.damage import damage_row, data_of, stopped
from quorate_nodes.release.digests import digests
from quorate_nodes.release.installed import CLUSTER, NAMESPACE, OPERATORS, ZONE, Installed
from quorate_nodes.release.jobs import Jobs
from quorate_operator.jobs.job import PROGRESS_PORT
from quorate_operator.owned.agent_names import PEER_PORT
from quorate_operator.owned.agent_pod import ADMIN_PORT

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.deep,
    pytest.mark.needs("s3-server", "prometheus"),
    pytest.mark.timeout(1800),
]

BOOKS = "books"
SPEC = {"clusterRef": {"name": CLUSTER}, "replicas": 3, "deletionPolicy": "Delete"}
PARTITIONS, OTHER_PARTITIONS = 16, 32
KEYS = [f"book-{number}" for number in range(400)]
DAMAGED = KEYS[7]
AGENT = "agent-2"
MACHINE = "this machine"
"""Clients, Prometheus and the bucket are there."""
HEALTH_PORT = 8080
KINDS = "scheduleddatavalidations,datavalidations,zonebackups,zonerestores,zonerecoveries"
SEEN_BY_USERS = "events,jobs,pods,zonebackups,zonerestores,datavalidations"
FIRING = 'ALERTS{alertname="QuorateCopiesDiffer",alertstate="firing"}'


def test_damage_is_found_and_repaired_and_a_deleted_zone_comes_back(
    first_day: Installed,
    jobs: Jobs,
    measured: Measured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = first_day.nodes.network
    machine, api_port = network.machine, int(first_day.nodes.plane.server.rpartition(":")[2])
    judged = Judged({machine: MACHINE}, network.services, api_port)
    values = (
        "networkPolicy.create=true",
        f"networkPolicy.apiServerPorts={{{api_port}}}",
        f"networkPolicy.prometheus[0].ipBlock.cidr={machine}/32",
        # By a Service they come with the address of the node that forwards them.
        f"networkPolicy.clients[0].ipBlock.cidr={network.nodes}",
    )
    with (
        jobs.upgraded(*values),
        ExitStack() as enforcing,
        first_day.zone_made(BOOKS, {**SPEC, "partitions": PARTITIONS}),
        Pulses(first_day, ZONE, keys_max=4) as library,
        jobs.deleted_in_the_end(KINDS),
        bucket(first_day, "books/monday", monkeypatch) as place,
        PodConnections(first_day.nodes.network.name) as connections,
    ):
        enforcing.enter_context(policies_enforced(first_day.nodes))
        judged.know(first_day.get("pods")["items"])
        client = first_day.client(BOOKS)
        for key in KEYS:
            client.set(key, f"text of {key}")
        with (
            Pulses(first_day, BOOKS, keys_max=4) as pulses,
            _watched(first_day, tmp_path) as watching,
        ):
            told = _damage_is_found_and_repaired(jobs, watching, measured)
            assert told["outvoted"][0]["node"] == AGENT
            exported = _run(jobs, "ZoneBackup", "monday", BOOKS, measured, destination=place)
            assert exported["outcome"] == "Complete", exported
        failed = [*pulses.failed]
        assert pulses.lost() == []

        first_day.kubectl("delete", "zone", BOOKS, "--timeout=120s")
        other = {**SPEC, "partitions": OTHER_PARTITIONS}
        jobs.declare("Zone", BOOKS, **other)
        first_day.wait(lambda: first_day.zone_is(BOOKS, "FullyReplicated"), "an empty zone")
        restored = _run(jobs, "ZoneRestore", "back", BOOKS, measured, source=place)
        assert restored["outcome"] == "Complete", restored
        assert (restored["rows"], restored["digest"]) == (exported["rows"], exported["digest"])
        first_day.wait(lambda: first_day.zone_is(BOOKS, "Available"), "the whole zone")
        client = first_day.client(BOOKS)
        assert [client.get(key) for key in KEYS] == [f"text of {key}".encode() for key in KEYS]
        seen = {*connections.seen}
        enforcing.close()  # the test itself asks agents at their peer ports now
        copies = digests(first_day, BOOKS)
        assert are_equal(copies)
        assert len(copies[AGENT]) == OTHER_PARTITIONS
        assert sum(rows for rows, _ in copies[AGENT].values()) == restored["rows"]
        _assert_allowed(first_day, judged, seen)
        assert SECRET not in first_day.kubectl("get", SEEN_BY_USERS, "--output=json")
    assert library.lost() == []
    failed += library.failed
    if failed:
        raise NotServed(f"nobody was hurt, and yet: {failed}")


def _damage_is_found_and_repaired(jobs: Jobs, watching: "Watching", measured: Measured) -> Json:
    """By a schedule; the status of the run that found it."""
    installed = jobs.installed
    run = {"zoneRef": {"name": BOOKS}, "level": "Rows", **jobs.place}
    jobs.declare("ScheduledDataValidation", "often", schedule="* * * * *", template={"spec": run})
    first = jobs.next_run("datavalidation", "often", "")
    assert first["verdict"] == "Agree", first
    assert (first["partitions"], first["copies"]) == (PARTITIONS, 3 * PARTITIONS)
    assert first["settledKeys"] >= len(KEYS), first
    _suspend(installed, True)
    assert installed.zone_is(BOOKS, "CopiesAgree")

    with stopped(installed, AGENT):
        uid = installed.zone(BOOKS)["metadata"]["uid"]
        damage_row(data_of(installed, AGENT), uid, PARTITIONS, DAMAGED.encode())
    assert not watching.running.now(FIRING)
    watching.look_again()
    _suspend(installed, False)
    second = jobs.next_run("datavalidation", "often", first["job"])

    _suspend(installed, True)
    partition = key_partition(DAMAGED.encode(), PARTITIONS)
    assert second["verdict"] == "Differ", second
    assert second["classes"] == {"value": 1}
    assert [(each["node"], each["partition"]) for each in second["outvoted"]] == [
        (AGENT, partition)
    ]
    report = jobs.report(second)
    assert DAMAGED in json.dumps(report)
    told = installed.condition("zone", BOOKS, "CopiesAgree")
    assert told["status"] == "False", told
    installed.wait(
        lambda: {"CopiesAgree", "CopiesDiffer"} <= _told_by_events(installed).keys(), "Events"
    )
    began = time.monotonic()
    installed.wait(lambda: watching.running.now(FIRING), "the alert")
    measured("alert of differing copies behind their verdict", f"{time.monotonic() - began:.1f} s")
    (firing,) = watching.running.now(FIRING)
    assert (firing.labels["zone"], firing.labels["cluster"]) == (BOOKS, CLUSTER)

    _repair(installed, partition)
    third = _run(jobs, "DataValidation", "after", BOOKS, measured, level="Rows")
    assert third["verdict"] == "Agree", third
    installed.wait(lambda: installed.zone_is(BOOKS, "CopiesAgree"), "the condition")
    return second


def _repair(installed: Installed, partition: int) -> None:
    """As the alert's page says."""
    command = (
        f"kubectl quorate recover restart {BOOKS} --partitions {partition} --node {AGENT} --erase"
        f" --namespace {NAMESPACE}"
    )
    said = installed.type(command)
    (does_it,) = (line.strip() for line in said.splitlines() if line.rstrip().endswith("--yes"))
    assert "are made anew" in installed.type(does_it)
    copied = f"partition {partition}: COPY {AGENT} "
    installed.wait(
        lambda: copied in _told_by_events(installed).get("MigrationFinished", ""),
        "the copy anew",
        90,
    )
    installed.wait(lambda: installed.zone_is(BOOKS, "FullyReplicated"), "all copies")


def _run(jobs: Jobs, kind: str, name: str, zone: str, measured: Measured, **spec: object) -> Json:
    began = time.monotonic()
    jobs.declare(kind, name, zoneRef={"name": zone}, **jobs.place, **spec)
    status = jobs.wait_end(kind, name)
    measured(f"{kind} as a pod", f"{time.monotonic() - began:.1f} s")
    return status


def _suspend(installed: Installed, suspended: bool) -> None:
    patch = json.dumps({"spec": {"suspend": suspended}})
    installed.kubectl(
        "patch", "scheduleddatavalidation", "often", "--type=merge", f"--patch={patch}"
    )


def _told_by_events(installed: Installed) -> dict[str, str]:
    """The messages of Events on the zone, by their reason."""
    told: dict[str, str] = {}
    events = installed.get("events", f"--field-selector=involvedObject.name={BOOKS}")["items"]
    for each in events:
        told[each["reason"]] = f"{told.get(each['reason'], '')}{each['message']}\n"
    return told


def _assert_allowed(installed: Installed, judged: Judged, seen: Collection[Connection]) -> None:
    """The chart's policies allow every connection of a pod, which the kernel has enforced."""
    judged.know(installed.get("pods")["items"])
    kinds = {(source, to, port) for source, to, port in judged.ends(seen)}
    assert {
        (MACHINE, "agent", ADMIN_PORT),
        (MACHINE, "operator", HEALTH_PORT),
        ("operator", "agent", PEER_PORT),
        *((job, "agent", PEER_PORT) for job in ("validation", "backup", "restore")),
        # A backup or a restore of so few rows may end before its progress is asked for.
        ("operator", "validation", PROGRESS_PORT),
    } <= kinds, kinds
    policies = installed.get("networkpolicies")["items"]
    assert len(policies) == 2
    assert judged.denied(seen, Policies(policies, {NAMESPACE: {}})) == set()


class Watching:
    """A Prometheus beside the nodes that scrapes operators and agents, with the chart's alerts."""

    def __init__(self, installed: Installed, running: Prometheus, rules: Path) -> None:
        self.running = running
        self._installed = installed
        self._rules = rules

    def look_again(self) -> None:
        """Scrape the pods that are there now."""
        self.running.scrape(_scraped(self._installed), self._rules)


@contextmanager
def _watched(installed: Installed, folder: Path) -> Iterator[Watching]:
    rendered = render(helm_path("helm4"), "--set", "monitoring.prometheusRule.enabled=true")
    rules = folder / "rules.yaml"
    rules.write_text(yaml.safe_dump(find(objects(rendered), "PrometheusRule")["spec"]))
    with prometheus(folder, next(free_ports()), _scraped(installed), rules) as running:
        installed.wait(lambda: len(running.now("up == 1")) == 5, "two operators and three agents")
        yield Watching(installed, running, rules)


def _scraped(installed: Installed) -> str:
    """As the chart's PodMonitors have it."""
    pods = {"quorate-operator": installed.pods(OPERATORS), "quorate-agents": installed.pods()}
    configs = [
        {
            "job_name": job,
            "honor_labels": job == "quorate-operator",
            "static_configs": [
                {
                    "targets": [f"{pod['status']['podIP']}:8080"],
                    "labels": _labels(pod),
                }
                for pod in found
            ],
        }
        for job, found in pods.items()
    ]
    return yaml.safe_dump({"global": {}, "scrape_configs": configs})


def _labels(pod: Json) -> dict[str, str]:
    told = pod["metadata"]["labels"]
    labels = {"namespace": NAMESPACE, "instance": pod["metadata"]["name"]}
    if agent := told.get("quorate.io/agent"):
        labels |= {"cluster": told["quorate.io/cluster"], "agent": agent}
    return labels
