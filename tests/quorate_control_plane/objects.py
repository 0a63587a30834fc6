"""Objects of an API server, read as `kubectl get` reads them, in the test's own process.

A test that waits asks many times a second.  A process of kubectl takes a tenth of a second of CPU
for each answer, which the programs under test then lack.
"""

import json
import time
import urllib.request
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode

Json = dict[str, Any]

_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_ANSWER_S_MAX = 90.0
_ATTEMPTS_MAX = 10
"""So often kubectl asks a server that says "later"."""


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


class Objects:
    """Asks one API server.  Kinds have any of the names that kubectl takes; a failure raises
    RuntimeError with what the server said."""

    def __init__(self, server: str, web: urllib.request.OpenerDirector) -> None:
        self._server = server
        self._web = web
        self._resources: dict[str, _Resource] = {}

    def get(self, kind: str, name: str, namespace: str = "") -> Json | None:
        """Return the object; None if there is none of this name."""
        try:
            return _shown(self._ask(self._resource(kind).path(namespace, name)))
        except HTTPError as error:
            said = _said(error)
            if error.code == HTTPStatus.NOT_FOUND and said.get("details", {}).get("name") == name:
                return None
            raise RuntimeError(f"{kind} {name}: {said.get('message', error)}") from error

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
            except HTTPError as error:
                raise RuntimeError(f"{kind}: {_said(error).get('message', error)}") from error
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
        question = urllib.request.Request(self._server + path, headers={"Accept": accept})
        for attempt in range(_ATTEMPTS_MAX):
            try:
                with self._web.open(question, timeout=_ANSWER_S_MAX) as answer:
                    return dict(json.loads(answer.read()))
            except HTTPError as error:
                again_s = error.headers.get("Retry-After")
                if again_s is None or attempt + 1 == _ATTEMPTS_MAX:
                    raise
                error.close()
                time.sleep(float(again_s))
            except (URLError, ConnectionError, TimeoutError) as error:
                raise RuntimeError(f"no answer to {path}: {error}") from error
        raise AssertionError("the last attempt returned or raised")


def _shown(item: Json) -> Json:
    """Return the object without its managed fields, which kubectl does not show either."""
    item["metadata"].pop("managedFields", None)
    return item


def _said(error: HTTPError) -> Json:
    """Return the Status in the body of a refusal; empty where the body is none."""
    with error:
        text = error.read()
    try:
        return dict(json.loads(text))
    except ValueError:
        return {}
