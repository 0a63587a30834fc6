"""The watches of declared objects: when kopf is started, started again, and what is said of it."""

import getpass
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from aiohttp import web

from quorate_loopback.waiting import until
from quorate_operator.declared import watching
from quorate_operator.declared.handlers import WATCHED
from quorate_operator.declared.watching import Watches
from quorate_operator.kube.access import KubeAccess
from quorate_operator.kube.api import GROUP_PATH, KubeApi
from quorate_operator.kube.traffic import Traffic
from quorate_operator.process.metrics import Metrics


class Place:
    """Watches of one namespace of an API server that knows `kinds`, and has no object."""

    def __init__(self) -> None:
        self.kinds: tuple[str, ...] = WATCHED
        self.looks = 0
        """How often it was asked which kinds there are, before kopf is started."""
        self.asked_by_kopf = 0
        self.failures: list[str] = []
        self.server = ""
        self.watches = Watches(
            cast(Any, None),
            lambda: KubeApi(KubeAccess(self.server, None), None),
            Traffic(Metrics().api_requests),
            self.failures.append,
        )

    async def answer(self, request: web.Request) -> web.Response:
        if request.path == GROUP_PATH:
            self.looks += 1
            return web.json_response({"resources": [{"name": plural} for plural in self.kinds]})
        self.asked_by_kopf += 1
        return web.json_response({"groups": [], "versions": [], "resources": []})


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
