"""Client of a development cluster's operator: objects and status as JSON over HTTP."""

import http.client
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import msgspec

from quorate.facts.addresses import NotAnAddress, join_address, read_address
from quorate.wire.schema.names import API_VERSION
from quorate_cli.processes.cluster_folder import ClusterFolder
from quorate_cli.terminal.problem import Problem, words

TOKEN_VARIABLE = "QUORATE_TOKEN_FILE"
ROOT = f"/apis/{API_VERSION}"

T = TypeVar("T")


class NotThere(Problem):
    """The object asked for does not exist."""


class NotReady(Problem):
    """The operator cannot tell yet, or cannot tell whether it was done."""


class Changed(Problem):
    """The object is not any more as it was seen: nothing was done."""


class OperatorApi:
    """One operator, by its API address.  Every call is one request on its own connection."""

    def __init__(self, host: str, port: int, timeout_s: float = 10.0, token: str = "") -> None:
        self.host = host
        self.port = port
        self.token = token
        self._timeout_s = timeout_s

    @property
    def name(self) -> str:
        """The operator's name in sentences."""
        return f"operator at {join_address(self.host, self.port)}"

    def get(self, path: str, kind: type[T]) -> T:
        """Return the object at `path`."""
        return self._decode(path, self._ask("GET", path), kind)

    def put(self, path: str, body: object, kind: type[T]) -> T:
        """Store `body`; return the object as it is now."""
        return self._decode(path, self._ask("PUT", path, msgspec.json.encode(body)), kind)

    def post(self, path: str) -> None:
        """Send a POST that asks for an action."""
        self._ask("POST", path, b"{}")

    def ask(self, path: str, body: object, kind: type[T]) -> T:
        """Send a POST with `body`; return the answer."""
        return self._decode(path, self._ask("POST", path, msgspec.json.encode(body)), kind)

    def refusals(self, manifests: Sequence[object]) -> list[str]:
        """Return why each manifest would be refused, empty if it would not.  Stores nothing."""
        return self.ask("/judge", {"items": manifests}, dict[str, list[str]])["refusals"]

    def delete(self, path: str) -> None:
        """Delete the object at `path`."""
        self._ask("DELETE", path)

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=self._timeout_s)
        unknown = ""
        try:
            headers = {"Content-Type": "application/json"} if body is not None else {}
            headers["Authorization"] = f"Bearer {self.token}"
            connection.connect()
            # From here on the operator may have received the request, however it ends.
            unknown = "" if method == "GET" else "; whether it was done is unknown"
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
        except TimeoutError as error:
            raise Problem(
                f"{self.name} did not answer {method} {path} within {self._timeout_s:g} s{unknown}:"
                " see `quorate status` and the operator's log"
            ) from error
        except OSError as error:
            raise Problem(
                f"{self.name} cannot be reached ({words(error)}){unknown}: start it with"
                " `quorate dev up`, or name another with --server host:port"
            ) from error
        except http.client.HTTPException as error:
            raise Problem(
                f"{self.name} does not speak HTTP ({type(error).__name__}){unknown}: check --server"
            ) from error
        finally:
            connection.close()
        if answer.status >= 300:
            raise self._refusal(method, path, answer.status, data)
        return data

    def _refusal(self, method: str, path: str, status: int, data: bytes) -> Problem:
        try:
            said = msgspec.json.decode(data, type=dict[str, object]).get("message")
        except msgspec.MsgspecError:
            said = None
        text = said if isinstance(said, str) and said else f"HTTP status {status}"
        if status == http.client.NOT_FOUND:
            return NotThere(text)
        if status == http.client.PRECONDITION_FAILED:
            return Changed(text)
        if status == http.client.UNAUTHORIZED:
            return Problem(
                f"{self.name}: {text}; for an operator on another machine, name a copy of that file"
                f" in the environment variable {TOKEN_VARIABLE}"
            )
        if status == http.client.SERVICE_UNAVAILABLE:
            return NotReady(f"{self.name}: {text}")
        if status < 500:
            return Problem(text)
        return Problem(f"{self.name} failed at {method} {path}: {text}; its log says why")

    def _decode(self, path: str, data: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.MsgspecError as error:
            raise Problem(
                f"{self.name}: this version does not understand the answer to {path}"
                f" ({error}): use the `quorate` of the operator's version"
            ) from error


def object_path(plural: str, name: str | None = None) -> str:
    """Return the path of one object, or of all of a kind."""
    path = f"{ROOT}/{plural}"
    return path if name is None else f"{path}/{quote(name, safe='')}"


def read_token(file: Path) -> str:
    """Return the token that proves to the operator that its owner asks.

    It is read from the file named in the environment variable QUORATE_TOKEN_FILE, else from `file`;
    empty if there is none.
    """
    named = os.environ.get(TOKEN_VARIABLE)
    try:
        return Path(named or file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        if named:
            why = words(error) if isinstance(error, OSError) else "it is not a text file"
            raise Problem(f"{TOKEN_VARIABLE}: {named} cannot be read: {why}") from error
        return ""


def parse_server(text: str, folder: ClusterFolder) -> OperatorApi:
    """Return the operator named by --server host:port; an IPv6 host is in brackets."""
    try:
        host, port = read_address(text)
    except NotAnAddress as error:
        raise Problem(f"--server {error}") from error
    return OperatorApi(host, port, token=read_token(folder.token_file))
