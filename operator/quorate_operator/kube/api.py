"""The operator's client for the API server: every request is bounded, every write gated.

Callers handle the outcomes of a request differently:

    done                      the object, or nothing
    ApiRefused                not done; refused again until something else changes
    ApiRefused, .is_conflict  not done; the object has changed: read it again
    ApiThrottled              not done; ask again after `retry_after_s` at the earliest
    ApiUnclear                perhaps done: read before anything else

It uses aiohttp without a client library on top: requests run on the event loop's own thread, kopf
brings aiohttp anyway, and one session serves both, so that no write can bypass the gate.
"""

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import aiohttp

from quorate.facts.errors import QuorateError
from quorate.wire.schema.resource import API_VERSION
from quorate_operator import names
from quorate_operator.kube.access import KubeAccess
from quorate_operator.kube.pace import MOST, Pace
from quorate_operator.kube.sockets import connector
from quorate_operator.kube.token_bucket import HELD_MAX_S, TokenBucket
from quorate_operator.kube.traffic import Traffic
from quorate_operator.process.mandate import Mandate

TIMEOUT_S = 5.0
REQUESTS_MAX = MOST
"""The largest number of concurrent requests; watches are not counted."""
PAGE_OBJECTS = 250
GROUP_PATH = f"/apis/{API_VERSION}"
"""The path of the project's own kinds."""
THROTTLED_S = 1.0
"""Seconds to wait after a 429 that does not say how long."""
NAMESPACE_TERMINATING = "NamespaceTerminating"
_IS_INVALID = re.compile(
    r'^[A-Z]+ \S+: 422 Invalid: [A-Za-z]+(\.[a-z0-9.-]+)? "[^"]*" is invalid: '
)
"""The beginning of a message of the API server's own validation.  A webhook's has `admission
webhook "..." denied the request`, a policy's `... is forbidden: ValidatingAdmissionPolicy ...`."""
_UID = "/metadata/uid"
_CANNOT_PATCH = "422 Invalid: the server rejected our request due to an error in our request"
"""The message of the API server if a `test` of a JSON patch fails.  Refusals by a schema, a policy
or a webhook have other messages."""
_READING = ("GET", "HEAD", "OPTIONS")

Json = dict[str, Any]


class ApiRefused(QuorateError):
    """The server answered that the request was not done.

    `reason` is the API's own word; `causes` its details, each with `reason`, `message`, `field`.
    """

    def __init__(
        self, status: int, reason: str, message: str, causes: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.causes = tuple(causes)

    @property
    def is_conflict(self) -> bool:
        """Whether the object is not as expected: gone, there already, or newer."""
        return self.status in (404, 409)

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed soon, after another look at the object or a wait."""
        return self.is_conflict or self.status == 429

    @property
    def is_schema(self) -> bool:
        """Whether the kind's own schema refuses a field, rather than a policy or webhook.

        Webhooks and policies may use the same status, reason and causes, but their messages begin
        differently.
        """
        fields = [str(cause.get("field", "")) for cause in self.causes]
        is_of_server = _IS_INVALID.search(str(self)) is not None
        return is_of_server and any(field.startswith("spec") for field in fields)

    @property
    def word(self) -> str:
        """The reason in one word, for conditions and Events."""
        text = str(self)
        if any(cause.get("reason") == NAMESPACE_TERMINATING for cause in self.causes):
            return NAMESPACE_TERMINATING
        if "exceeded quota" in text:
            return "QuotaExceeded"
        if "denied" in text and ("ValidatingAdmissionPolicy" in text or "webhook" in text):
            return "Denied"
        words = {401: "Unauthorized", 403: "Forbidden", 413: "TooLarge", 422: "Invalid"}
        return words.get(self.status, self.reason or "Refused")


class OtherObject(ApiRefused):
    """Nothing was written: the object of this name now has another uid than was expected."""

    def __init__(self, message: str) -> None:
        super().__init__(409, "Conflict", message)


class ApiThrottled(ApiRefused):
    """The server answered that the request was not done because there are too many."""

    def __init__(self, reason: str, message: str, retry_after_s: float) -> None:
        super().__init__(429, reason, message)
        self.retry_after_s = retry_after_s


class ApiUnclear(QuorateError):
    """No answer, or one that leaves open whether the request was done.

    `is_answered`: the server has answered; otherwise the next request may wait as long as this one.
    """

    is_conflict = False
    is_passing = True

    def __init__(self, message: str, *, is_answered: bool = False) -> None:
        super().__init__(message)
        self.is_answered = is_answered


class MandateLost(QuorateError):
    """This process may no longer write; the request was not sent."""


class KubeApi:
    """Requests to one API server.  `mandate`: None for the elector, which must write without one.

    `bucket` bounds the requests of this object, but not those of kopf on the same session: watches,
    and one patch per finaliser.  `pace` is shared by all objects of a process; those with a lower
    `rank` go first.
    """

    def __init__(
        self,
        access: KubeAccess,
        mandate: Mandate | None,
        traffic: Traffic | None = None,
        bucket: TokenBucket | None = None,
        pace: Pace | None = None,
        rank: int = 0,
    ) -> None:
        self.access = access
        self._pace = pace
        self._rank = rank
        self._bucket = bucket
        trace = aiohttp.TraceConfig()
        if mandate is not None:
            self._mandate = mandate
            trace.on_request_start.append(self._gate_start)
            # Checked again: the process may have been frozen while the connection was made.
            trace.on_connection_create_end.append(self._gate_connected)
            trace.on_connection_reuseconn.append(self._gate_connected)
        self.session = self._session(trace, traffic, REQUESTS_MAX)
        self.watches = self._session(trace, traffic, 0)
        """The session for requests that last minutes, so that they take no places in `session`."""

    def _session(
        self, gate: aiohttp.TraceConfig, traffic: Traffic | None, limit: int
    ) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=connector(ssl=self.access.context or False, limit=limit),
            trace_configs=[gate] if traffic is None else [gate, traffic.trace()],
            headers={"User-Agent": names.FIELD_MANAGER, **self.access.headers()},
        )

    async def close(self) -> None:
        """Close all connections."""
        await self.session.close()
        await self.watches.close()

    async def get(self, path: str, timeout_s: float = TIMEOUT_S) -> Json:
        """Return one object."""
        return await self._request("GET", path, timeout_s=timeout_s)

    async def create(self, path: str, body: Json, timeout_s: float = TIMEOUT_S) -> Json:
        """Send a POST to a collection."""
        return await self._request("POST", path, body, timeout_s=timeout_s)

    async def replace(self, path: str, body: Json, timeout_s: float = TIMEOUT_S) -> Json:
        """Send a PUT; with metadata.resourceVersion it is a compare-and-set."""
        return await self._request("PUT", path, body, timeout_s=timeout_s)

    async def apply(self, path: str, body: Json) -> Json:
        """Apply server-side: the fields of `body` are set, even if another manager owns them."""
        return await self._request(
            "PATCH", path, body, "application/apply-patch+yaml", query={"force": "true"}
        )

    async def set_status(self, path: str, status: Json, revision: str = "", uid: str = "") -> Json:
        """Replace the object's status by `status`, whatever it is now; or only of `revision`.

        Raises OtherObject if the object does not have the `uid` that is given.
        """
        patch = [{"op": "add", "path": "/status", "value": status}]
        if revision:
            at = "/metadata/resourceVersion"
            patch = [{"op": "replace", "path": at, "value": revision}, *patch]
        if uid:
            patch = [{"op": "test", "path": _UID, "value": uid}, *patch]
        to, content_type = f"{path}/status", "application/json-patch+json"
        try:
            return await self._request("PATCH", to, patch, content_type)
        except ApiRefused as refused:
            if uid and refused.status == 422 and _CANNOT_PATCH in str(refused):
                raise OtherObject(f"PATCH {to}: the object has not the uid {uid}") from refused
            raise

    async def annotate(self, path: str, annotations: Json, revision: str) -> Json:
        """Set annotations, or remove those that are None; only of this revision."""
        return await self._set_metadata(path, {"annotations": annotations}, revision)

    async def set_owners(self, path: str, owners: Sequence[Json], revision: str) -> Json:
        """Replace the owners of an object, whoever named them; only of this revision."""
        return await self._set_metadata(path, {"ownerReferences": [*owners]}, revision)

    async def _set_metadata(self, path: str, metadata: Json, revision: str) -> Json:
        body = {"metadata": {"resourceVersion": revision, **metadata}}
        return await self._request("PATCH", path, body, "application/merge-patch+json")

    async def delete(self, path: str, revision: str = "", timeout_s: float = TIMEOUT_S) -> None:
        """Send a DELETE; with `revision` only that revision is deleted."""
        body: Json = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if revision:
            body["preconditions"] = {"resourceVersion": revision}
        await self._request("DELETE", path, body, timeout_s=timeout_s)

    async def list(self, path: str, selector: str = "", name: str = "") -> AsyncIterator[Json]:
        """Yield every object of a collection, page by page, all as of one revision.

        `name`: only the one of this name, for those who may list objects and not get one.
        """
        async for page in self.pages(path, selector, name=name):
            for item in page.get("items") or ():
                yield item

    async def pages(
        self,
        path: str,
        selector: str = "",
        accept: str = "application/json",
        timeout_s: float = TIMEOUT_S,
        name: str = "",
    ) -> AsyncIterator[Json]:
        """Yield the pages of a collection, in the form `accept`, all as of one revision."""
        query: dict[str, str] = {"limit": str(PAGE_OBJECTS)}
        if name:
            query["fieldSelector"] = f"metadata.name={name}"
        if selector:
            query["labelSelector"] = selector
        while True:
            page = await self._request("GET", path, query=query, accept=accept, timeout_s=timeout_s)
            yield page
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
        accept: str = "application/json",
    ) -> Json:
        about = f"{method} {path}"
        if self._bucket is not None:
            await self._bucket.take()
        headers = {"Accept": accept, "Content-Type": content_type, **self.access.headers()}
        parameters = dict(query or {})
        if method in ("POST", "PUT", "PATCH"):
            parameters |= {"fieldManager": names.FIELD_MANAGER, "fieldValidation": "Strict"}
        try:
            async with (
                self._paced(),
                self.session.request(
                    method,
                    self.access.server + path,
                    data=None if body is None else json.dumps(body),
                    headers=headers,
                    params=parameters,
                    timeout=aiohttp.ClientTimeout(total=timeout_s),
                ) as answer,
            ):
                text = await answer.text()
                status, retry_after = answer.status, answer.headers.get("Retry-After", "")
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
        if not isinstance(content, dict):  # an unknown path, or an answer of a proxy
            content = {"message": text.strip()[:200]}
        reason = str(content.get("reason", ""))
        said = f"{about}: {status} {reason}: {content.get('message', '')}"
        if status == 429 or (status >= 500 and retry_after):
            wait_s = _seconds(retry_after)
            if self._bucket is not None:
                self._bucket.hold(wait_s)
            if status == 429:
                raise ApiThrottled(reason, said, wait_s)
        if status >= 500 or status < 300:
            raise ApiUnclear(said, is_answered=True)
        details = content.get("details") or {}
        raise ApiRefused(status, reason, said, details.get("causes") or ())

    def _paced(self) -> AbstractAsyncContextManager[None]:
        return self._pace.request(self._rank) if self._pace is not None else nullcontext()

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


async def find(api: KubeApi, path: str) -> Json | None:
    """Return one object, None if there is none."""
    try:
        return await api.get(path)
    except ApiRefused as refused:
        if refused.status != 404:
            raise
        return None


def is_same(one: Mapping[str, Any] | None, other: Mapping[str, Any]) -> bool:
    """Return whether these are one object, not another one of its name.  None: there is none."""
    return one is not None and bool(one["metadata"]["uid"] == other["metadata"]["uid"])


async def set_own_status(
    api: KubeApi, path: str, uid: str, status: Json, revision: str = ""
) -> Json | None:
    """Replace the status of the object with this uid; return it, None if it is not there any more.

    Another object of its name keeps the status that it has.
    """
    try:
        return await api.set_status(path, status, revision, uid)
    except OtherObject:
        return None
    except ApiRefused as refused:
        if refused.status != 404:
            raise
        return None


def _seconds(retry_after: str) -> float:
    """Return the seconds of Retry-After; API servers do not use its other form, a date."""
    try:
        return min(max(float(retry_after), 0.0), HELD_MAX_S)
    except ValueError:
        return THROTTLED_S


def path_of(namespace: str, plural: str, name: str = "", subresource: str = "") -> str:
    """Return the path of objects of the project's group; without `namespace`, of all namespaces."""
    parts = [collection_path(GROUP_PATH, namespace, plural)]
    parts += [part for part in (name, subresource) if part]
    return "/".join(parts)


def collection_path(group_path: str, namespace: str, plural: str) -> str:
    """Return the path of all objects of a kind in a namespace, or with "" in all."""
    place = f"/namespaces/{namespace}" if namespace else ""
    return f"{group_path}{place}/{plural}"
