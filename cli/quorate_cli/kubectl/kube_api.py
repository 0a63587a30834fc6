"""Requests to an API server as the user of a kubeconfig; errors become sentences.

The package `kubernetes` reads kubeconfigs and authenticates; objects stay the JSON they came as.
"""

import http.client
import ssl
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec
import urllib3.exceptions
import yaml
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration
from kubernetes.config import kube_config
from kubernetes.config.config_exception import ConfigException

from quorate.wire.schema.resource import API_VERSION, GROUP
from quorate_cli.objects.operator_api import NotThere
from quorate_cli.objects.resources import Whole
from quorate_cli.terminal.problem import Problem, words

_files: Any = kube_config  # its functions have no types
PAGE = 500
TIMEOUT_S = (10.0, 60.0)
"""Timeouts for connecting, and between two pieces of an answer, seconds."""
MERGE_PATCH = "application/merge-patch+json"

Query = Mapping[str, str | int | bool]


class Conflict(Problem):
    """The object has changed since it was read."""


class Forbidden(Problem):
    """RBAC does not allow this user to do it."""


class Unreached(Problem):
    """The API server does not answer."""


class Expired(Problem):
    """The API server no longer knows the revision from which a watch was to continue."""


class KubeApi:
    """One API server.  `kubeconfig`, `context`: as for kubectl; empty: its defaults."""

    def __init__(self, kubeconfig: str = "", context: str = "") -> None:
        self.kubeconfig = kubeconfig
        configuration = Configuration()
        file = kubeconfig or str(_files.KUBE_CONFIG_DEFAULT_LOCATION)
        try:
            contexts, current = _files.list_kube_config_contexts(file)
            chosen = current
            if context:
                known = {each["name"]: each for each in contexts}
                if context not in known:
                    raise Problem(
                        f"--context {context}: kubeconfig {file} has no such context: write one of"
                        f" {', '.join(sorted(known))}"
                    )
                chosen = known[context]
            self.context = str(chosen["name"])
            self.namespace = str(chosen["context"].get("namespace") or "default")
            _files.load_kube_config(file, self.context, configuration, persist_config=False)
            trust = _trust(configuration)
        except ConfigException as error:
            raise Problem(_no_config(file, bool(kubeconfig), error)) from error
        except (OSError, yaml.YAMLError, TypeError, KeyError) as error:
            why = words(error) if isinstance(error, OSError) else " ".join(str(error).split())
            raise Problem(
                f"kubeconfig {file} cannot be read: {why}; name another file with --kubeconfig"
            ) from error
        configuration.retries = False
        self.server = str(configuration.host)
        self._client = ApiClient(configuration)
        pools = self._client.rest_client.pool_manager.connection_pool_kw
        pools.update(cert_file=None, key_file=None, ca_certs=None, ssl_context=trust)
        self.now = datetime.now(UTC)
        """The API server's clock, as of the last answer."""

    def get(self, path: str, **query: str | int | bool) -> Whole:
        """Return the object at `path`.  Raises NotThere, Forbidden."""
        return _decode(self._ask("GET", path, query).data)

    def collection(self, path: str, **query: str | int | bool) -> list[Whole]:
        """Return all objects of a collection.  Raises Forbidden."""
        return self.collection_from(path, **query)[0]

    def collection_from(self, path: str, **query: str | int | bool) -> tuple[list[Whole], str]:
        """Return all objects of a collection, and the revision from which a watch continues."""
        found: list[Whole] = []
        more = ""
        while True:
            page: dict[str, Any] = self.get(
                path, limit=PAGE, **({"continue": more} if more else {}), **query
            )
            found += page.get("items") or []
            more = str(page["metadata"].get("continue") or "")
            if not more:
                return found, str(page["metadata"].get("resourceVersion", ""))

    def text(self, path: str, **query: str | int | bool) -> bytes:
        """Return the content at `path`, undecoded."""
        return bytes(self._ask("GET", path, query).data)

    def text_within(self, path: str, seconds: float) -> bytes:
        """Return the content at `path`, undecoded; Unreached if that takes longer."""
        return bytes(self._ask("GET", path, {}, timeout_s=(seconds, seconds)).data)

    def create(self, path: str, body: Whole) -> Whole:
        """Create an object in the collection at `path`; return it with its name.

        A field that the API server does not know is an error: else it would be left out unnoticed.
        Raises Conflict if there is one of that name.
        """
        return _decode(self._ask("POST", path, {"fieldValidation": "Strict"}, body).data)

    def patch(self, path: str, body: Whole) -> Whole:
        """Merge `body` into the object.  Raises Conflict if its resourceVersion has changed."""
        return _decode(self._ask("PATCH", path, {}, body, MERGE_PATCH).data)

    def delete(self, path: str, body: Whole) -> None:
        """Delete the object; `body`: fields of DeleteOptions.  Raises NotThere, Conflict."""
        self._ask("DELETE", path, {}, {"apiVersion": "v1", "kind": "DeleteOptions", **body})

    def follow(self, path: str, revision: str, **query: str | int | bool) -> Iterator[Whole]:
        """Yield each object that changes after `revision`, until the API server ends the watch.

        Raises Expired if the revision is too old.
        """
        asked = {**query, "watch": True, "resourceVersion": revision, "allowWatchBookmarks": True}
        answer = self._open("GET", path, asked, None, "")
        try:
            _check(answer, "GET", path, self.context)
            rest = b""
            for piece in answer.response.stream():
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    told = _decode(line)
                    changed: Any = told.get("object")
                    if told.get("type") == "ERROR":
                        raise Expired(f"{path}: {changed.get('message')}")
                    yield {"type": told.get("type"), "object": changed}
        except urllib3.exceptions.HTTPError:
            return  # silence or a broken connection: the caller continues
        finally:
            answer.response.release_conn()

    def _ask(
        self,
        method: str,
        path: str,
        query: Query,
        body: Whole | None = None,
        content: str = "",
        timeout_s: tuple[float, float] = TIMEOUT_S,
    ) -> Any:
        answer = self._open(method, path, query, body, content, timeout_s)
        try:
            answer.read()
        except urllib3.exceptions.HTTPError as error:
            raise self._unreached(error) from error
        date = answer.headers.get("Date")
        if date:
            self.now = parsedate_to_datetime(date)
        _check(answer, method, path, self.context)
        return answer

    def _open(
        self,
        method: str,
        path: str,
        query: Query,
        body: Whole | None,
        content: str,
        timeout_s: tuple[float, float] = TIMEOUT_S,
    ) -> Any:
        headers = {"Content-Type": content or "application/json", "Accept": "*/*"}
        asked = [(key, str(value).lower() if isinstance(value, bool) else value)
                 for key, value in query.items()]  # fmt: skip
        made = self._client.param_serialize(
            method, path, query_params=asked, header_params=headers, body=body,
            auth_settings=["BearerToken"],
        )  # fmt: skip
        try:
            return self._client.call_api(*made, _request_timeout=timeout_s)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._unreached(error) from error
        except Exception as error:  # the client wraps TLS errors in its own
            if type(error).__module__.startswith("kubernetes."):
                raise self._unreached(error) from error
            raise

    def _unreached(self, error: Exception) -> Unreached:
        words = " ".join(str(error).split())
        return Unreached(
            f"API server {self.server} (context {self.context}) cannot be reached: {words[:300]}"
        )


def _trust(configuration: Any) -> ssl.SSLContext:
    """Return the TLS context of a configuration: trusted authorities and the user's certificate.

    Reads the files now and removes them.  The package writes certificates and keys that are inside
    a kubeconfig to temporary files and removes them when Python ends: never, if the process becomes
    another program or is killed.
    """
    try:
        trust = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            trust.load_cert_chain(configuration.cert_file, configuration.key_file)
        if not configuration.verify_ssl:
            trust.check_hostname = False
            trust.verify_mode = ssl.CERT_NONE
        return trust
    finally:
        _files._cleanup_temp_files()


def objects_path(plural: str, namespace: str = "", name: str = "") -> str:
    """Return the path of objects of our kinds; without `namespace`, of all namespaces."""
    return _path(f"/apis/{API_VERSION}", plural, namespace, name)


def core_path(plural: str, namespace: str = "", name: str = "") -> str:
    """Return the path of pods, claims, Events and so on."""
    return _path("/api/v1", plural, namespace, name)


def group_path(group: str, plural: str, namespace: str = "", name: str = "") -> str:
    """Return the path of objects of a group, such as apps/v1."""
    return _path(f"/apis/{group}", plural, namespace, name)


def _path(root: str, plural: str, namespace: str, name: str) -> str:
    place = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{place}/{plural}" + (f"/{name}" if name else "")


def _check(answer: Any, method: str, path: str, context: str) -> None:
    """Raise the exception for the answer's status, if it is an error."""
    status = int(answer.status)
    if status < 300:
        return
    try:
        said = msgspec.json.decode(answer.read() or b"{}", type=dict[str, Any])
    except (msgspec.MsgspecError, urllib3.exceptions.HTTPError):
        said = {}
    message = str(said.get("message") or f"HTTP status {status}")
    match status:
        case http.client.UNAUTHORIZED:
            raise Problem(
                f"context {context}: the API server does not accept the user's credentials"
                f" ({message}): renew them, or use another --context"
            )
        case http.client.FORBIDDEN:
            raise Forbidden(f"{message}; ask for a role that grants it, or use another --context")
        case http.client.NOT_FOUND:
            if path.startswith(f"/apis/{GROUP}/") and not said.get("details", {}).get("name"):
                raise Problem(
                    f"the API server of context {context} does not know the kinds of {GROUP}:"
                    " install the operator (helm install), or use another --context"
                )
            raise NotThere(message)
        case http.client.CONFLICT:
            raise Conflict(message)
        case http.client.GONE:
            raise Expired(message)
        case _:
            raise Problem(f"{method} {path}: {message}")


def _decode(data: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise Problem(f"the answer of the API server is not JSON: {error}") from error


def _no_config(file: str, is_named: bool, error: Exception) -> str:
    if is_named:
        return f"--kubeconfig {file}: {error}"
    return (
        f"{file} is not a usable kubeconfig ({error}): name another file with --kubeconfig or"
        " $KUBECONFIG"
    )
