"""When /healthz of the operator on Kubernetes fails, and what its metrics tell of the same."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import generate_latest

from quorate.protocol.settings import DEFAULTS
from quorate.protocol.status import ClusterStatus
from quorate.wire.crds import KINDS
from quorate_lone_master.zone_status import status_of_zone
from quorate_operator import kubernetes
from quorate_operator.kube.access import KubeAccess
from quorate_operator.kube.api import ApiRefused, KubeApi
from quorate_operator.kube.scope import Scope
from quorate_operator.kube.traffic import Traffic
from quorate_operator.kubernetes import KubernetesOperator
from quorate_operator.mastership.election import ElectionSettings
from quorate_operator.process.health import add_health
from quorate_operator.process.loop_watch import LoopWatch
from quorate_operator.process.metrics import Led, Metrics

NOWHERE = KubeAccess("http://127.0.0.1:9", None)
SCOPE = Scope(("default",), "default")


class Leading:
    """An operator that leads, as far as health can tell."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.operator = KubernetesOperator(NOWHERE, SCOPE, DEFAULTS, ElectionSettings())
        self.operator._is_leading = True
        self.holds, self.lag_s = True, 0.0
        self.ages_s = {("", "zones"): 1.0, ("second", "zones"): 1.0}
        monkeypatch.setattr(self.operator._election, "holds", lambda: self.holds)
        monkeypatch.setattr(self.operator._watch, "lag_s", lambda: self.lag_s)
        monkeypatch.setattr(self.operator._traffic, "watch_ages_s", lambda: self.ages_s)


@pytest.fixture
async def leading(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Leading]:
    leading = Leading(monkeypatch)
    yield leading
    await leading.operator._ownership_api.close()
    await leading.operator._objects_api.close()
    await leading.operator._owned_api.close()


async def test_an_operator_that_leads_is_healthy_and_so_is_a_standby(leading: Leading) -> None:
    assert leading.operator.unhealthy() == ""

    leading.operator._is_leading, leading.holds = False, False

    assert leading.operator.unhealthy() == ""


async def test_one_that_leads_without_the_lease_is_not(leading: Leading) -> None:
    leading.holds = False

    assert "it has lapsed" in leading.operator.unhealthy()


async def test_one_whose_loop_is_late_is_not(leading: Leading) -> None:
    leading.lag_s = kubernetes.LAG_MAX_S + 1

    assert leading.operator.unhealthy() == "the event loop is 11 s late"


async def test_one_whose_watch_is_silent_is_not(leading: Leading) -> None:
    leading.ages_s["", "zones"] = kubernetes.WATCH_AGE_MAX_S + 1

    assert leading.operator.unhealthy() == (
        "the watch of zones has shown no sign of life for 181 s"
    )

    leading.ages_s = {("", "zones"): 1.0, ("second", "zones"): kubernetes.WATCH_AGE_MAX_S + 1}
    assert "watch of zones in namespace second" in leading.operator.unhealthy()


async def test_one_whose_own_watch_is_refused_is_healthy_and_not_ready(leading: Leading) -> None:
    leading.ages_s["", "pods"] = kubernetes.WATCH_AGE_MAX_S + 1
    assert leading.operator.unhealthy() == leading.operator.not_ready() == ""

    leading.operator._owned_watches._problems["", "pods"] = "/api/v1/pods is not watched: 403"
    leading.operator._ownership_watches._problems["one", "storagenodes"] = "nor are these"

    assert leading.operator.unhealthy() == ""
    assert leading.operator.not_ready() == (
        "namespace one: nor are these; all namespaces: /api/v1/pods is not watched: 403"
    )


async def test_the_probe_is_answered_with_the_sentence(leading: Leading) -> None:
    app = web.Application()
    add_health(app, leading.operator)
    async with TestClient(TestServer(app)) as client:
        async with client.get("/healthz") as well:
            assert (well.status, await well.text()) == (200, "ok\n")
        leading.holds = False
        async with client.get("/healthz") as ill:
            assert ill.status == 503
            assert "lapsed" in await ill.text()


async def test_what_a_cluster_lacks_is_told_to_people_and_does_not_make_the_pod_unready(
    leading: Leading,
) -> None:
    app = web.Application()
    add_health(app, leading.operator)
    leading.operator._owned_watches._problems["", "pods"] = "/api/v1/pods is not watched: 403"

    async with TestClient(TestServer(app)) as client:

        async def asked(path: str) -> tuple[int, str]:
            async with client.get(path) as answer:
                return answer.status, await answer.text()

        assert (await asked("/readyz"))[0] == 503
        assert await asked("/processz") == (200, "ok\n")

        leading.holds = False
        assert (await asked("/processz"))[0] == 503

        leading.holds, leading.operator._waits_for = True, "the API server does not know zones"
        assert await asked("/processz") == (503, "the API server does not know zones\n")


async def test_a_loop_that_leaves_no_marks_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = LoopWatch()
    assert watch.lag_s() == 0.0

    watch._beaten_s -= 12.5

    assert 11.5 < watch.lag_s() < 20


async def test_requests_are_counted_by_answer_and_watches_noted() -> None:
    async def answer(request: web.Request) -> web.Response:
        status = 200 if request.path.endswith("zones") else 404
        return web.json_response({"metadata": {}}, status=status)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    metrics = Metrics()
    traffic = Traffic(metrics.api_requests)
    async with TestServer(app) as server:
        api = KubeApi(KubeAccess(str(server.make_url("")).rstrip("/"), None), None, traffic)
        await api.get("/apis/quorate.io/zones")
        with pytest.raises(ApiRefused):
            await api.get("/apis/quorate.io/none")
        assert traffic.watch_ages_s() == {}
        for place in ("", "namespaces/second/"):
            path = f"{api.access.server}/apis/{place}zones?watch=true"
            await (await api.session.get(path)).release()
        await api.close()

    assert list(traffic.watch_ages_s()) == [("", "zones"), ("second", "zones")]
    told = generate_latest(metrics.registry).decode()
    assert 'quorate_operator_api_requests_total{code="200",method="GET"} 3.0' in told
    assert 'quorate_operator_api_requests_total{code="404",method="GET"} 1.0' in told


def test_unavailable_partitions_are_exported_by_what_is_left_of_them() -> None:
    metrics = Metrics()
    zone = status_of_zone(available=52, unavailable=12, read_only=7, lost=2)
    metrics.observe(lambda: [Led("ns", "main", ClusterStatus(1, (), (zone,)))])

    told = generate_latest(metrics.registry).decode()

    place = 'cluster="main",namespace="ns"'
    for state, count in {"read_only": 7, "lost": 2, "waiting": 3}.items():
        name = "quorate_operator_unavailable_partitions"
        assert f'{name}{{{place},state="{state}",zone="books"}} {count}.0' in told
    assert f'quorate_operator_partitions{{{place},state="unavailable",zone="books"}} 12.0' in told


@pytest.mark.parametrize(
    ("missing", "is_waited_for"),
    [("zonebackups", False), ("datavalidations", False), ("zones", True), ("masterterms", True)],
)
async def test_a_standby_waits_for_the_kinds_that_leading_needs_and_for_no_other(
    leading: Leading, missing: str, is_waited_for: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator that is newer than its CRDs must lead: there would be no failover."""

    async def known(api: KubeApi) -> set[str]:
        return {kind.plural for kind in KINDS} - {missing}

    monkeypatch.setattr(kubernetes, "known_kinds", known)

    waiting = asyncio.create_task(leading.operator._wait_for_kinds())
    await asyncio.wait([waiting], timeout=0.2)

    assert waiting.done() is not is_waited_for
    said = f"the API server does not know {missing} of quorate.io: kubectl apply"
    assert leading.operator.not_ready().startswith(said) is is_waited_for
    waiting.cancel()
