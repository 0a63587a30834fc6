"""The watches of declared objects: when kopf is started, started again, and what is said of it."""

import asyncio
import getpass
from collections.abc import AsyncIterator
from typing import Any, cast

import kopf
import pytest
from aiohttp import web

from quorate.wire.schema.resource import API_VERSION, GROUP, VERSION
from quorate_loopback.waiting import until
from quorate_operator.declared import watching
from quorate_operator.declared.handlers import WATCHED, make_settings
from quorate_operator.declared.watching import Watches
from quorate_operator.kube.access import KubeAccess
from quorate_operator.kube.api import GROUP_PATH, KubeApi
from quorate_operator.kube.traffic import Traffic
from quorate_operator.process.metrics import Metrics

OUR_VERSION = {"groupVersion": API_VERSION, "version": VERSION}
OUR_GROUP = {"name": GROUP, "versions": [OUR_VERSION], "preferredVersion": OUR_VERSION}


def _kind(plural: str, is_namespaced: bool = True) -> dict[str, Any]:
    """One kind as the API server describes it."""
    verbs = ["get", "list", "watch", "patch"]
    names = {"name": plural, "singularName": plural[:-1], "kind": plural[:-1].title()}
    return {**names, "namespaced": is_namespaced, "verbs": verbs}


DISCOVERY: dict[str, dict[str, list[Any]]] = {
    "/api": {"versions": ["v1"]},
    "/api/v1": {"resources": [_kind("namespaces", is_namespaced=False)]},
    "/apis": {"groups": [OUR_GROUP]},
}
"""What kopf looks for before it watches anything."""


class Place:
    """Watches of one namespace of an API server that knows `kinds`, and has no object."""

    def __init__(self) -> None:
        self.kinds: tuple[str, ...] = WATCHED
        self.looks = 0
        """How often it was asked which kinds there are, before kopf is started."""
        self.asked_by_kopf = 0
        self.is_discovered = False
        """Whether kopf is shown the kinds, so that it lists and watches them."""
        self.forbidden: tuple[str, ...] = ()
        self.watched: set[str] = set()
        """The kinds with a watch that is open."""
        self.traffic = Traffic(Metrics().api_requests)
        self.failures: list[str] = []
        self.server = ""
        self.watches = Watches(
            cast(Any, None),
            lambda: KubeApi(KubeAccess(self.server, None), None),
            self.traffic,
            self.failures.append,
        )

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == GROUP_PATH:
            self.looks += 1
            return web.json_response({"resources": [_kind(plural) for plural in self.kinds]})
        plural = request.path.rpartition("/")[2]
        if plural in WATCHED:
            return await self.show(request, plural)
        self.asked_by_kopf += 1
        found: dict[str, list[Any]] = {"groups": [], "versions": [], "resources": []}
        if self.is_discovered:
            found |= DISCOVERY.get(request.path, {})
        return web.json_response(found)

    async def show(self, request: web.Request, plural: str) -> web.StreamResponse:
        """List no object, or watch until the other side ends it."""
        if plural in self.forbidden:
            message = f"cannot list resource {plural}"
            refusal = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": message}
            return web.json_response(refusal, status=403)
        if plural not in self.kinds:
            return web.json_response({"reason": "NotFound"}, status=404)
        if request.query.get("watch") != "true":
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
        watch = web.StreamResponse()
        await watch.prepare(request)
        self.watched.add(plural)
        try:
            await asyncio.Event().wait()
        finally:
            self.watched.discard(plural)
        return watch


@pytest.fixture
async def place(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    monkeypatch.setattr(watching, "AGAIN_S", 0.05)
    made, app = Place(), web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.server = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await made.watches.stop()
    await runner.cleanup()
    assert made.failures == []


async def test_they_begin_for_a_user_without_a_name(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as an image's 65532: no entry in /etc/passwd, neither $USER nor $LOGNAME."""

    def nobody() -> str:
        raise OSError("No username set in the environment")

    monkeypatch.setattr(getpass, "getuser", nobody)

    place.watches.start(("storage",))
    await until(lambda: place.asked_by_kopf > 0, "kopf has begun")

    assert not any("username" in each for each in place.watches.problems())


async def test_kopf_is_not_started_before_the_kinds_are_known(place: Place) -> None:
    """It looks for them once, and would then watch nothing for ever."""
    place.kinds = tuple(plural for plural in WATCHED if plural != "zones")
    place.watches.start(("storage",))
    await until(lambda: place.looks > 3, "it looks again")

    assert place.asked_by_kopf == 0
    [problem] = place.watches.problems()
    assert problem == (
        "namespace storage: declared objects are not watched: the API server does not know zones of"
        " quorate.io: kubectl apply --filename crds/"
    )
    place.kinds = WATCHED
    await until(lambda: place.asked_by_kopf > 0, "kopf has begun")


async def test_kopf_is_started_again_if_a_watch_is_silent(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kinds that the server names to kopf are none, so it watches nothing."""
    monkeypatch.setattr(watching, "SILENT_S", 0.5)
    place.watches.start(("storage",))

    await until(lambda: place.looks > 2, "it was started three times", 60)

    assert place.asked_by_kopf > 2
    assert place.watches.is_failing("storage")
    monkeypatch.setattr(watching, "FAILING_S", 0.0)
    assert not place.watches.is_failing("storage")


@pytest.mark.parametrize("lacks", ["CRD", "right"])
async def test_a_kind_of_runs_that_is_missing_is_left_out_and_taken_up_when_it_is_there(
    place: Place, lacks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of an operator that is newer than its CRDs, or than its role."""
    monkeypatch.setattr(watching, "AGAIN_MAX_S", 0.1)
    place.is_discovered = True
    others = {plural for plural in WATCHED if plural != "zonebackups"}
    if lacks == "CRD":
        place.kinds = tuple(plural for plural in WATCHED if plural in others)
    else:
        place.forbidden = ("zonebackups",)
    place.watches.start(("storage",))
    await until(lambda: place.watched == others, "all others are watched")

    [problem] = place.watches.problems()
    left_out = "namespace storage: zonebackups are not watched, all else is: "
    why = {
        "CRD": "the API server does not know zonebackups of quorate.io: kubectl apply",
        "right": "403 Forbidden: cannot list resource zonebackups",
    }[lacks]
    assert problem.startswith(left_out)
    assert why in problem
    assert ("storage", "zonebackups") not in place.traffic.watch_ages_s(), "it is not stuck"
    assert not place.watches.is_failing("storage")

    place.kinds, place.forbidden = WATCHED, ()
    await until(lambda: place.watched == set(WATCHED), "all are watched")

    assert place.watches.problems() == []
    assert ("storage", "zonebackups") in place.traffic.watch_ages_s()


async def test_without_the_right_to_zones_the_place_is_not_watched(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_patience() -> kopf.OperatorSettings:
        settings = make_settings()
        settings.networking.error_backoffs = ()
        return settings

    monkeypatch.setattr(watching, "make_settings", without_patience)
    place.is_discovered, place.forbidden = True, ("zones",)
    place.watches.start(("storage",))
    await until(lambda: place.watches.problems(), "it is said", 30)

    [problem] = place.watches.problems()
    assert problem.startswith("namespace storage: declared objects are not watched: ")
    assert "cannot list resource zones" in problem
