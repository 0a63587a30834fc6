"""Two operators when the master, etcd or the API server is gone: how soon the next one leads, and
that clients notice nothing.

Operators, agents and the control plane are real processes.
"""

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from quorate_cluster.late_operator import late_operator
from quorate_cluster.load import Load
from quorate_cluster.road import LEASE_S, QUIET, Road
from quorate_cluster.waiting import wait_until
from quorate_control_plane.components import Component
from quorate_control_plane.control_plane import ControlPlane
from quorate_operator.kubernetes import EXIT_LOST
from write_metrics import operator_metrics

pytestmark = [pytest.mark.integration, pytest.mark.process, pytest.mark.timeout(400)]

CRASH_S_MAX = 15.0
GRACEFUL_S_MAX = 3.0


def two_operators(road: Road, **options: Any) -> tuple[Component, Component]:
    """The master, started with `options`, and one that stands by; a zone is quiet."""
    road.start_agents()
    master = road.start_operator("operator-a", **options)
    road.declare()
    road.wait_zone(**QUIET)
    road.wait_led_by(master)
    standby = road.start_operator("operator-b")
    wait_until(lambda: "is held by" in standby.log_tail(), "standby", 60, road.logs)
    return master, standby


def leads(operator: Component) -> bool:
    return "master in term" in operator.log_tail(1000)


def seconds_until_led(road: Road, operator: Component, limit_s: float) -> float:
    """How long it takes until `operator` decides; the machine's stand-stills are not its fault."""
    began_s = time.monotonic()
    wait_until(lambda: leads(operator), f"{operator.name} leads", limit_s, road.logs)
    return time.monotonic() - began_s


def test_after_a_crash_the_standby_leads_within_fifteen_seconds_and_no_command_fails(
    road: Road,
) -> None:
    master, standby = two_operators(road)
    with Load(road.client()) as load:
        master.kill()
        took_s = seconds_until_led(road, standby, CRASH_S_MAX)
    assert load.failed == []
    assert load.done > 100
    print(f"crash takeover: {took_s:.1f} s, {load.done} commands")


def test_after_an_orderly_end_the_standby_leads_within_three_seconds(road: Road) -> None:
    master, standby = two_operators(road)
    with Load(road.client()) as load:
        began_s = time.monotonic()
        master.terminate()
        ended_s = time.monotonic() - began_s
        took_s = ended_s + seconds_until_led(road, standby, GRACEFUL_S_MAX)
    assert master.exit_status == 0
    assert load.failed == []
    print(f"graceful takeover: {took_s:.1f} s, of which the end {ended_s:.1f} s")


def test_a_master_stopped_past_its_lease_writes_nothing_when_it_goes_on(road: Road) -> None:
    master, standby = two_operators(road)
    with Load(road.client()) as load:
        master.pause()
        seconds_until_led(road, standby, CRASH_S_MAX)
        term = road.wait_led_by(standby)
        standby.pause()  # from here on only the one that was stopped could write or be obeyed
        revisions = road.settled_revisions()
        master.resume()
        wait_until(lambda: not master.is_alive(), "its end", 30, road.logs)
        assert road.revisions() == revisions
        assert "lost: the lease was not renewed" in master.log_tail(100)
        standby.kill()
    assert load.failed == []
    third = road.start_operator("operator-c")
    assert road.wait_led_by(third) > term
    road.wait_zone(**QUIET)


def test_a_master_stopped_before_it_sends_is_refused_by_the_agents_when_it_goes_on(
    road: Road,
) -> None:
    master, standby = two_operators(road, program=late_operator)
    term = road.master()[1]
    road.write_keys("first")
    with Load(road.client()) as load:
        os.kill(master.pid, signal.SIGUSR1)
        os.waitid(os.P_PID, master.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        seconds_until_led(road, standby, CRASH_S_MAX)
        newer = road.wait_led_by(standby)
        road.wait_zone(**QUIET)
        standby.pause()  # from here on only the one that was stopped could write or be obeyed
        revisions, folders = road.settled_revisions(), road.zone_folders()
        master.resume()
        wait_until(lambda: not master.is_alive(), "its end", 30, road.logs)
        assert f"late words: 3 of term {term}" in master.log_tail(100)
        for agent in road.agents.values():
            refused = f"a master of term {term} is refused: term {newer} leads"
            wait_until(lambda: refused in agent.log_tail(100), refused, 30, agent.log_tail)  # noqa: B023
        assert master.exit_status == EXIT_LOST
        assert (road.revisions(), road.zone_folders()) == (revisions, folders)
        standby.kill()
    assert load.failed == []
    road.check_keys("first")
    third = road.start_operator("operator-c")
    assert road.wait_led_by(third) > newer
    road.wait_zone(**QUIET)
    road.check_keys("first")


@contextmanager
def frozen(*parts: Component) -> Iterator[None]:
    """Connections stay open, and nothing answers."""
    for each in parts:
        each.pause()
    try:
        yield
    finally:
        for each in reversed(parts):
            each.resume()


@contextmanager
def killed(*parts: Component) -> Iterator[None]:
    """Connections are refused; the processes of afterwards have the same data and ports."""
    for each in parts:
        each.kill()
    try:
        yield
    finally:
        for each in reversed(parts):
            each.start()


API = "kube-apiserver"


@pytest.mark.parametrize("seconds", [20, pytest.param(60, marks=pytest.mark.deep)])
@pytest.mark.parametrize(
    ("parts", "gone"),
    [(("etcd",), frozen), ((API,), frozen), ((API, "etcd"), killed)],
    ids=["etcd is frozen", "the API server is frozen", "both are killed"],
)
def test_while_etcd_or_the_api_server_is_gone_no_command_fails(
    control_plane: ControlPlane,
    road: Road,
    parts: tuple[str, ...],
    gone: Callable[..., AbstractContextManager[None]],
    seconds: int,
) -> None:
    operators = two_operators(road)
    zone = road.get("zone", "sessions")
    with Load(road.client()) as load:
        try:
            with gone(*(control_plane.components[each] for each in parts)):
                # Longer than the lease: the master has stopped, and nobody can follow it.
                wait_until(lambda: not operators[0].is_alive(), "its end", 30, road.logs)
                over_s = time.monotonic() + max(seconds - LEASE_S, 0)
                wait_until(lambda: time.monotonic() >= over_s, "time to pass", seconds + 10)
        finally:
            control_plane.wait_ready()
        operators[0].start()
        wait_until(lambda: any(map(leads_now, operators)), "one leads again", 60, road.logs)
        road.wait_zone(**QUIET)
    assert load.failed == []
    assert load.done > seconds * 10
    after = road.get("zone", "sessions")
    assert zone is not None
    assert after is not None
    assert after["metadata"]["uid"] == after["status"]["zoneId"] == zone["metadata"]["uid"]
    assert "Traceback" not in road.all_logs()
    print(f"{' and '.join(parts)} {gone.__name__}, {seconds} s: 0 of {load.done} commands failed")


def leads_now(operator: Component) -> bool:
    """Whether the present process has begun to lead."""
    if not operator.is_alive():
        return False
    return f"/{operator.pid}/" in operator.log_tail(1000) and leads(operator)


def test_health_and_metrics_tell_of_the_lease_and_the_watches(road: Road) -> None:
    two_operators(road)

    assert road.asked("operator-a", "healthz") == (200, "ok\n")
    assert road.asked("operator-b", "healthz") == (200, "ok\n")
    told = road.metrics("operator-a")
    assert told["quorate_operator_is_master"] == 1
    assert told["quorate_operator_lease_age_seconds"] < LEASE_S
    for kind in ("zones", "storageclusters"):
        labels = f'{{kind="{kind}",namespace="{road.namespace}"}}'
        assert told[f"quorate_operator_watch_age_seconds{labels}"] < 100
    done = 'quorate_operator_reconciles_total{kind="zone",result="done"}'
    assert told[done] >= 1
    assert told['quorate_operator_api_requests_total{code="200",method="PATCH"}'] >= 1
    assert told["quorate_operator_pass_seconds_count"] >= 1
    assert road.metrics("operator-b")["quorate_operator_is_master"] == 0

    # At rest the objects are not written.
    patches = 'quorate_operator_api_requests_total{code="200",method="PATCH"}'
    before = road.metrics("operator-a")
    looks = before["quorate_operator_pass_seconds_count"]
    wait_until(
        lambda: road.metrics("operator-a")["quorate_operator_pass_seconds_count"] > looks + 6,
        "looks",
    )
    after = road.metrics("operator-a")
    assert after[patches] == before[patches]
    assert after[done] == before[done]


def test_every_metric_of_the_operator_is_told_and_says_what_happens(road: Road) -> None:
    road.use_example_role()
    road.start_agents()
    road.start_operator()
    road.declare()
    road.wait_zone(**QUIET)

    told = road.metrics("operator-a")
    documented = {each.name for each in operator_metrics()}
    text = road.asked("operator-a", "metrics")[1]
    kinds = re.findall(r"^# TYPE (quorate_\w+)", text, re.MULTILINE)
    assert {name for name in kinds if not name.endswith("_created")} == documented
    series = {re.sub(r"_(bucket|count|sum)$", "", each.partition("{")[0]) for each in told}
    silent = {name for name in documented - series if "operator" in name}
    runs = ("_validation_", "_backup_", "_restore_")
    of_runs = {name for name in documented if any(each in name for each in runs)}
    assert silent == {"quorate_operator_master_defects_total", *of_runs}  # there were none
    assert told["quorate_operator_queue_length"] == 0
    assert told['quorate_operator_metastore_writes_total{outcome="written"}'] >= 1
    assert told["quorate_operator_loop_lag_seconds"] < LEASE_S

    # Statuses may not be written any more: looks at the zone fail, with the API's code.
    role = road.get("role", "quorate-operator")
    assert role is not None
    role["rules"] = [rule for rule in role["rules"] if "zones/status" not in rule["resources"]]
    road.kubectl("replace", "--filename=-", stdin=json.dumps(role))
    road.kubectl("annotate", "zone", "sessions", "quorate.io/paused=true")
    failed = 'quorate_operator_reconciles_total{kind="zone",result="failed"}'
    wait_until(lambda: road.metrics("operator-a").get(failed, 0) >= 1, "a look that failed", 30)
    refused = 'quorate_operator_api_requests_total{code="403",method="PATCH"}'
    assert road.metrics("operator-a")[refused] >= 1
