"""Objects of an API server, read as `kubectl get` reads them, in the test's own process.

A test that waits asks many times a second.  A process of kubectl takes a tenth of a second of CPU
for each answer, and a TLS handshake several milliseconds, which the programs under test then lack.
So connections are kept.
"""

import json
import ssl
import time
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlencode

Json = dict[str, Any]

_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_ANSWER_S_MAX = 90.0
_ATTEMPTS_MAX = 10
"""So often kubectl asks a server that says "later"."""
_Answer = tuple[int, str | None, bytes]
"""Status, after how many seconds to ask again, and body."""


@dataclass(frozen=True, slots=True)
class _Resource:
    """Where objects of a kind are: `root` is that of its group and version."""

    root: str
    plural: str
    group: str
    singular: str
    namespaced: bool

    def path(self, namespace: str, name: str = "") -> str:
        within = f"/namespaces/{quote(namespace)}" if self.namespaced and namespace else ""
        return f"{self.root}{within}/{self.plural}" + (f"/{quote(name)}" if name else "")


class _Refused(Exception):
    """An answer that is an error: its HTTP status, and the Status in its body if there is one."""

    def __init__(self, code: int, body: bytes) -> None:
        try:
            self.said = dict[str, Any](json.loads(body))
        except ValueError:
            self.said = {}
        self.code = code
        super().__init__(self.said.get("message", f"HTTP status {code}"))


class Objects:
    """Asks one API server.  Kinds have any of the names that kubectl takes; a failure raises
    RuntimeError with what the server said.

    `address` is HOST:PORT; `context` has the certificates of both sides."""

    def __init__(self, address: str, context: ssl.SSLContext) -> None:
        self._address = address
        self._context = context
        self._idle: list[HTTPSConnection] = []
        """Connections that no thread uses now."""
        self._resources: dict[str, _Resource] = {}

    def close(self) -> None:
        """End the connections; a later question makes a new one."""
        while (kept := self._kept()) is not None:
            kept.close()

    def get(self, kind: str, name: str, namespace: str = "") -> Json | None:
        """Return the object; None if there is none of this name."""
        try:
            return _shown(self._ask(self._resource(kind).path(namespace, name)))
        except _Refused as error:
            about = error.said.get("details", {}).get("name")
            if error.code == HTTPStatus.NOT_FOUND and about == name:
                return None
            raise RuntimeError(f"{kind} {name}: {error}") from error

    def items(
        self, kinds: str, namespace: str = "", selector: str = "", fields: str = ""
    ) -> list[Json]:
        """Return all objects of these kinds, separated by commas; `namespace`: "" is all of them.

        `selector` chooses by labels, `fields` by fields, as options of kubectl do."""
        chosen = {"labelSelector": selector, "fieldSelector": fields}
        query = urlencode({option: value for option, value in chosen.items() if value})
        found: list[Json] = []
        for kind in kinds.split(","):
            try:
                listed = self._ask(f"{self._resource(kind).path(namespace)}?{query}")
            except _Refused as error:
                raise RuntimeError(f"{kind}: {error}") from error
            # A list says of what kind its items are, the items of built-in kinds do not.
            of = {"apiVersion": listed["apiVersion"], "kind": listed["kind"].removesuffix("List")}
            found += [_shown({**of, **each}) for each in listed["items"]]
        return found

    def names(self, kinds: str, namespace: str = "", selector: str = "") -> list[str]:
        """Return the objects as `--output=name` shows them, such as `zone.quorate.io/sessions`."""
        return [
            f"{self._full_name(kind)}/{each['metadata']['name']}"
            for kind in kinds.split(",")
            for each in self.items(kind, namespace, selector)
        ]

    def _full_name(self, kind: str) -> str:
        resource = self._resource(kind)
        return ".".join(filter(None, (resource.singular, resource.group)))

    def _resource(self, kind: str) -> _Resource:
        name = kind.lower()
        if name not in self._resources:
            self._discover()
        if name not in self._resources:
            raise RuntimeError(f'the server has no resource type "{kind}"')
        return self._resources[name]

    def _discover(self) -> None:
        """Learn all kinds.  Of two with the same name the first is meant, as by kubectl."""
        found: dict[str, _Resource] = {}
        for path in ("/api", "/apis"):
            for group in self._ask(path, _DISCOVERY)["items"]:
                group_name = group["metadata"].get("name", "")
                version = group["versions"][0]
                root = f"{path}/{group_name}/{version['version']}".replace("//", "/")
                for each in version["resources"]:
                    plural, singular = each["resource"], each["singularResource"]
                    namespaced = each["scope"] == "Namespaced"
                    resource = _Resource(root, plural, group_name, singular, namespaced)
                    for name in (plural, singular, *each.get("shortNames", ())):
                        found.setdefault(name, resource)
                        found.setdefault(f"{name}.{group_name}", resource)
        self._resources = found

    def _ask(self, path: str, accept: str = "application/json") -> Json:
        """Return what a GET answers.  Like kubectl, ask again if the server says so."""
        for attempt in range(_ATTEMPTS_MAX):
            try:
                status, again_s, body = self._answer(path, accept)
            except (OSError, HTTPException) as error:
                raise RuntimeError(f"no answer to {path}: {error}") from error
            if status < HTTPStatus.BAD_REQUEST:
                return dict(json.loads(body))
            if again_s is None or attempt + 1 == _ATTEMPTS_MAX:
                raise _Refused(status, body)
            time.sleep(float(again_s))
        raise AssertionError("the last attempt returned or raised")

    def _answer(self, path: str, accept: str) -> _Answer:
        """Ask on a kept connection; on a new one if there is none, or the server has ended it."""
        while (kept := self._kept()) is not None:
            try:
                return self._answer_on(kept, path, accept)
            except (ConnectionError, ssl.SSLError, HTTPException):
                continue
        made = HTTPSConnection(self._address, timeout=_ANSWER_S_MAX, context=self._context)
        return self._answer_on(made, path, accept)

    def _kept(self) -> HTTPSConnection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _answer_on(self, connection: HTTPSConnection, path: str, accept: str) -> _Answer:
        try:
            connection.request("GET", path, headers={"Accept": accept})
            answer = connection.getresponse()
            body = answer.read()
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return answer.status, answer.headers.get("Retry-After"), body


def _shown(item: Json) -> Json:
    """Return the object without its managed fields, which kubectl does not show either."""
    item["metadata"].pop("managedFields", None)
    return item
