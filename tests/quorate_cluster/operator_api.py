"""The embedded operator's HTTP API as tests use it: declared objects and status, as plain JSON."""

import json
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from quorate.facts.addresses import join_address

_ROOT = "/apis/quorate.io/v1alpha1"
_TIMEOUT_S = 10
# Loopback, whatever the environment says of proxies.
_web = urllib.request.build_opener(urllib.request.ProxyHandler({}))

Json = dict[str, Any]


class ApiError(Exception):
    """The operator answered with an error; `status` is HTTP's, the text its sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


class OperatorApi:
    """One operator, by its port; OSError while it does not answer."""

    def __init__(self, host: str, port: int, token_file: Path) -> None:
        self._base = f"http://{join_address(host, port)}"
        self.token_file = token_file

    def get(self, plural: str, name: str) -> Json:
        return self.ask("GET", f"{_ROOT}/{plural}/{name}")

    def put(self, plural: str, name: str, manifest: Json) -> Json:
        return self.ask("PUT", f"{_ROOT}/{plural}/{name}", manifest)

    def delete(self, plural: str, name: str) -> Json:
        return self.ask("DELETE", f"{_ROOT}/{plural}/{name}")

    def status(self) -> Json:
        """The whole cluster: master term, nodes, zones with their partitions and migrations."""
        return self.ask("GET", "/status")

    def _token(self) -> str:
        return self.token_file.read_text().strip() if self.token_file.exists() else ""

    def ask(self, method: str, path: str, body: Json | None = None) -> Json:
        """One request; the answer's JSON."""
        request = urllib.request.Request(
            self._base + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Content-Type": "application/json",
                "Authorization": f"Bearer {self._token()}",
            },
        )
        try:
            with _web.open(request, timeout=_TIMEOUT_S) as answer:
                return dict(json.loads(answer.read() or b"{}"))
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode(errors="replace")
            with suppress(ValueError, KeyError, TypeError):
                text = str(json.loads(text)["message"])
            raise ApiError(error.code, text) from None
