"""An embedded operator and its API over HTTP, in the test's own event loop."""

from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from quorate.protocol.settings import DEFAULTS
from quorate_operator.embedded.api import make_runner
from quorate_operator.embedded.api_guard import made_token
from quorate_operator.embedded.operator import Embedded
from quorate_operator.metastores.sqlite_file import EmbeddedStore

Json = dict[str, Any]
ROOT = "/apis/quorate.io/v1alpha1"


def manifest(kind: str, name: str, **spec: Any) -> Json:
    """An object as a user applies it."""
    api_version = "quorate.io/v1alpha1"
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


CLUSTER = manifest("StorageCluster", "main", addresses=["127.0.0.1:9"])
ZONE = manifest("Zone", "sessions", clusterRef={"name": "main"})


class Client:
    """Asks one embedded operator."""

    def __init__(self, session: aiohttp.ClientSession, root: str) -> None:
        self._session = session
        self._root = root

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, Json]:
        url = self._root + path
        data = {"data": body} if isinstance(body, bytes) else {"json": body}
        async with self._session.request(method, url, **data) as answer:
            return answer.status, await answer.json()

    async def text(self, path: str) -> tuple[int, str]:
        async with self._session.get(self._root + path) as answer:
            return answer.status, await answer.text()


class Server:
    """An embedded operator that can be ended and begun again over its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def start(self) -> str:
        self.embedded = Embedded(
            EmbeddedStore.open(self._folder), DEFAULTS, self._folder / "secrets"
        )
        await self.embedded.start()
        self._runner = make_runner(self.embedded, made_token(self._folder))
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    @property
    def headers(self) -> dict[str, str]:
        """What its owner's requests bring."""
        return {"Authorization": f"Bearer {made_token(self._folder)}"}

    async def stop(self) -> None:
        await self._runner.cleanup()
        await self.embedded.close()
