"""How the operator talks to the API server: one session, every request bounded, every write gated.

aiohttp without a client library on top: it works on the event loop's own thread, kopf brings it
anyway, and one session serves both, so that nothing can be written past the gate.
"""

import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import aiohttp

from quorate.facts.errors import QuorateError
from quorate.wire.resource import API_VERSION
from quorate_operator import names
from quorate_operator.kube.access import KubeAccess
from quorate_operator.kube.traffic import Traffic
from quorate_operator.process.mandate import Mandate

TIMEOUT_S = 5.0
PAGE_OBJECTS = 250
_READING = ("GET", "HEAD", "OPTIONS")

Json = dict[str, Any]


class ApiRefused(QuorateError):
    """The server answered that it did not do it."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class ApiUnclear(QuorateError):
    """No answer, or one that leaves open whether it was done."""


class MandateLost(QuorateError):
    """This process may no longer write; the request did not leave."""


class KubeApi:
    """Requests to one API server.  `mandate` None: for the elector, which must write without."""

    def __init__(
        self, access: KubeAccess, mandate: Mandate | None, traffic: Traffic | None = None
    ) -> None:
        self.access = access
        trace = aiohttp.TraceConfig()
        if mandate is not None:
            self._mandate = mandate
            trace.on_request_start.append(self._gate_start)
            # The process may have been frozen while a connection was made.
            trace.on_connection_create_end.append(self._gate_connected)
            trace.on_connection_reuseconn.append(self._gate_connected)
        connector = aiohttp.TCPConnector(ssl=access.context or False, limit=64)
        self.session = aiohttp.ClientSession(
            connector=connector,
            trace_configs=[trace] if traffic is None else [trace, traffic.trace()],
            headers={"User-Agent": names.FIELD_MANAGER, **access.headers()},
        )

    async def close(self) -> None:
        """Close all connections."""
        await self.session.close()

    async def get(self, path: str, timeout_s: float = TIMEOUT_S) -> Json:
        """One object."""
        return await self._request("GET", path, timeout_s=timeout_s)

    async def create(self, path: str, body: Json, timeout_s: float = TIMEOUT_S) -> Json:
        """POST to a collection."""
        return await self._request("POST", path, body, timeout_s=timeout_s)

    async def replace(self, path: str, body: Json, timeout_s: float = TIMEOUT_S) -> Json:
        """PUT; with metadata.resourceVersion a compare-and-set."""
        return await self._request("PUT", path, body, timeout_s=timeout_s)

    async def set_status(self, path: str, status: Json) -> Json:
        """Put `status` in the place of the object's present one, whatever that is."""
        patch = [{"op": "add", "path": "/status", "value": status}]
        return await self._request("PATCH", f"{path}/status", patch, "application/json-patch+json")

    async def delete(self, path: str, revision: str = "", timeout_s: float = TIMEOUT_S) -> None:
        """DELETE, at `revision` only when that is given."""
        body: Json = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if revision:
            body["preconditions"] = {"resourceVersion": revision}
        await self._request("DELETE", path, body, timeout_s=timeout_s)

    async def list(self, path: str, selector: str = "") -> AsyncIterator[Json]:
        """Every object of a collection, page by page, all as of one revision."""
        query: dict[str, str] = {"limit": str(PAGE_OBJECTS)}
        if selector:
            query["labelSelector"] = selector
        while True:
            page = await self._request("GET", path, query=query, timeout_s=TIMEOUT_S)
            for item in page.get("items", []):
                yield item
            following = page["metadata"].get("continue")
            if not following:
                return
            query["continue"] = following

    async def _request(
        self,
        method: str,
        path: str,
        body: object = None,
        content_type: str = "application/json",
        timeout_s: float = TIMEOUT_S,
        query: dict[str, str] | None = None,
    ) -> Json:
        about = f"{method} {path}"
        headers = {"Content-Type": content_type, **self.access.headers()}
        parameters = dict(query or {})
        if method in ("POST", "PUT", "PATCH"):
            parameters |= {"fieldManager": names.FIELD_MANAGER, "fieldValidation": "Strict"}
        try:
            async with self.session.request(
                method,
                self.access.server + path,
                data=None if body is None else json.dumps(body),
                headers=headers,
                params=parameters,
                timeout=aiohttp.ClientTimeout(total=timeout_s),
            ) as answer:
                text = await answer.text()
                status = answer.status
        except aiohttp.ClientConnectorError as error:
            raise ApiUnclear(f"{about}: the API server cannot be reached: {error}") from error
        except (aiohttp.ClientError, TimeoutError, OSError, UnicodeDecodeError) as error:
            what = str(error) or type(error).__name__
            raise ApiUnclear(f"{about}: no clear answer in {timeout_s:g} s: {what}") from error
        try:
            content = json.loads(text)
        except json.JSONDecodeError:
            content = None
        if status < 300 and isinstance(content, dict):
            return content
        if not isinstance(content, dict):  # a path that it does not know, or something in between
            content = {"message": text.strip()[:200]}
        reason, message = content.get("reason", ""), content.get("message", "")
        if status >= 500 or status < 300:
            raise ApiUnclear(f"{about}: {status} {reason}: {message}")
        raise ApiRefused(status, reason, f"{about}: {status} {reason}: {message}")

    # --- the gate ---------------------------------------------------------------------------------

    async def _gate_start(
        self,
        session: aiohttp.ClientSession,
        context: SimpleNamespace,
        parameters: aiohttp.TraceRequestStartParams,
    ) -> None:
        context.method = parameters.method
        self._check(parameters.method)

    async def _gate_connected(
        self, session: aiohttp.ClientSession, context: SimpleNamespace, parameters: object
    ) -> None:
        self._check(context.method)

    def _check(self, method: str) -> None:
        if method.upper() not in _READING and not self._mandate.holds():
            raise MandateLost(f"{method}: the mandate is lost: nothing may be written")


def path_of(namespace: str, plural: str, name: str = "", subresource: str = "") -> str:
    """Where objects of our group stand."""
    parts = [f"/apis/{API_VERSION}/namespaces/{namespace}/{plural}"]
    parts += [part for part in (name, subresource) if part]
    return "/".join(parts)
