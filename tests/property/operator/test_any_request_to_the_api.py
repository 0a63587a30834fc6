"""Any request to the operator's API is answered in words; what is refused changes nothing."""

import asyncio
import gzip
import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from quorate_loopback.embedded_api import Json, Server

ROOT = "/apis/quorate.io/v1alpha1"
SEVERAL = settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])


def manifest(kind: str, name: Any, spec: Any) -> Json:
    api_version = "quorate.io/v1alpha1"
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


CLUSTER = manifest("StorageCluster", "main", {"addresses": ["127.0.0.1:9"]})
ZONE = manifest("Zone", "sessions", {"clusterRef": {"name": "main"}, "partitions": 4})
ADDRESSES = {"storageclusters": "main", "zones": "sessions"}


class Api:
    """One embedded operator that leads a cluster without agents; asked step by step."""

    def __init__(self, folder: Path) -> None:
        self._runner = asyncio.Runner()
        self._server = Server(folder)
        self._root = self._runner.run(self._server.start())
        self._session = self._runner.run(self._open())
        self.send("PUT", f"{ROOT}/storageclusters/main", json.dumps(CLUSTER).encode())
        self.send("PUT", f"{ROOT}/zones/sessions", json.dumps(ZONE).encode())
        while self.send("GET", "/events")[0] == 503:
            pass
        assert set(self.declared()) == {"main", "sessions"}

    async def _open(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(headers=self._server.headers)

    def close(self) -> None:
        self._runner.run(self._session.close())
        self._runner.run(self._server.stop())
        self._runner.close()

    def send(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        async def ask() -> tuple[int, Any]:
            async with self._session.request(
                method, self._root + path, data=BytesIO(body), headers=headers
            ) as answer:
                return answer.status, json.loads(await answer.read())

        return self._runner.run(ask())

    def declared(self) -> dict[str, Json]:
        objects = self._server.embedded.objects
        return {each["metadata"]["name"]: each for kind in ADDRESSES for each in objects.list(kind)}

    def put(self, plural: str, body: bytes, headers: dict[str, str] | None = None) -> int:
        """Send a body; what must hold of any is checked."""
        before = self.declared()
        status, answer = self.send("PUT", f"{ROOT}/{plural}/{ADDRESSES[plural]}", body, headers)
        assert status < 500, (status, answer, body[:200])
        if status >= 400:
            assert answer["message"]
            assert len(answer["message"]) < 10_000
            assert self.declared() == before
        else:
            assert answer["kind"]
        return status


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    api = Api(tmp_path_factory.mktemp("operator"))
    yield api
    api.close()


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b"[" * 200_000, 400, "nested"),
        (b'{"a":' * 150_000, 400, "nested"),
        (b'{"a":' * 500 + b"1" + b"}" * 500, 400, "nested"),
        (b"[" * 100_000 + b"]" * 100_000, 400, "nested"),
        (b'{"apiVersion": ' + b"9" * 5_000 + b"}", 400, "digits"),
        (b'{"apiVersion": NaN}', 400, "NaN"),
        (b'{"apiVersion": -Infinity}', 400, "-Infinity"),
        (b'{"kind": "Zone", "kind": "Zone"}', 400, "'kind' twice"),
        (b'{"apiVersion": "\\ud800"}', 400, "surrogate"),
        (b'{"\\udfff": 1}', 400, "surrogate"),
        (b"\xff\xfe{}", 400, "UTF-8"),
        (json.dumps(ZONE).encode("utf-16"), 400, "UTF-8"),
        (b"", 400, "not JSON"),
        (b"{}" + b" " * (1 << 20), 413, "1048576 bytes"),
        (b"null", 400, "write a JSON object"),
        (b"{}", 422, "metadata.name is None"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("plural", ADDRESSES)
def test_a_body_that_is_no_manifest_is_refused_in_words(
    api: Api, plural: str, body: bytes, status: int, told: str
) -> None:
    before = api.declared()

    answer = api.send("PUT", f"{ROOT}/{plural}/{ADDRESSES[plural]}", body)

    assert answer[0] == status
    assert told in answer[1]["message"]
    assert api.declared() == before


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "application/json; charset=no-such-charset"},
        {"Content-Type": "application/json; charset=utf-16"},
        {"Content-Type": "multipart/form-data"},
        {"Content-Type": "\u00e4/;;"},
    ],
)
def test_the_body_is_utf_8_whatever_a_header_calls_it(api: Api, headers: dict[str, str]) -> None:
    assert api.put("zones", json.dumps(ZONE).encode(), headers) == 200


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "no-such"])
@pytest.mark.parametrize("body", [b"not compressed", gzip.compress(json.dumps(ZONE).encode())])
def test_bodies_are_taken_as_they_are_sent(api: Api, encoding: str, body: bytes) -> None:
    assert api.put("zones", body, {"Content-Encoding": encoding}) == 415
    assert api.put("zones", body) == 400


def test_of_very_many_problems_the_first_are_told_and_the_others_counted(api: Api) -> None:
    body = json.dumps({**ZONE, **{f"f{number}": 0 for number in range(60_000)}}).encode()

    status, answer = api.send("PUT", f"{ROOT}/zones/sessions", body)

    assert status == 422
    assert answer["message"].startswith("Zone sessions: f0 is not a known field")
    assert answer["message"].endswith(
        "f9 is not a known field: known fields are metadata, spec, status; and 59990 more"
    )
    assert api.put("zones", json.dumps({**ZONE, "x" * 900_000: 0}).encode()) == 422


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 2**31, 2**63, 2**64, 10**400, 1e400, -0.0, 1e-400, 0.5]),
    st.floats(),
    st.text(max_size=20),
    st.text(st.characters(categories=["Cs", "Cc", "Lu"]), max_size=5),
    st.sampled_from(["main", "sessions", "Zone", "StorageCluster", "Persistent", "", "512Mi"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner),
    max_leaves=10,
)
FIELDS = [
    *("apiVersion", "kind", "metadata", "spec", "status", "name", "uid", "generation", "labels"),
    *("finalizers", "ownerReferences", "clusterRef", "partitions", "replicas", "storage"),
    *("consistencyMode", "syncWrites", "maxMemory", "planner", "dataNodesFilter", "addresses"),
]


@st.composite
def damaged_manifests(draw: st.DrawFn) -> bytes:
    """A manifest in which some fields are others, at any depth; dumped as Python would."""
    made = json.loads(json.dumps(draw(st.sampled_from([ZONE, CLUSTER]))))
    for _ in range(draw(st.integers(1, 3))):
        at = made
        while True:
            inner = [key for key, value in at.items() if isinstance(value, dict)]
            if not inner or draw(st.booleans()):
                break
            at = at[draw(st.sampled_from(inner))]
        field = draw(st.sampled_from([*at, *FIELDS]) | st.text(max_size=10))
        at[field] = draw(VALUES)
    return json.dumps(made).encode()


@st.composite
def damaged_texts(draw: st.DrawFn) -> bytes:
    """The bytes of a manifest, some of them cut out, repeated or replaced."""
    body = json.dumps(draw(st.sampled_from([ZONE, CLUSTER]))).encode()
    for _ in range(draw(st.integers(1, 4))):
        first = draw(st.integers(0, len(body)))
        last = draw(st.integers(first, min(first + 40, len(body))))
        piece = draw(st.binary(max_size=4) | st.just(body[first:last] * 2) | st.just(b""))
        body = body[:first] + piece + body[last:]
    return body


BODIES = damaged_manifests() | damaged_texts() | st.binary(max_size=200)


@SEVERAL
@example(plural="zones", body=b'{"metadata": {"name": ["sessions"]}}')
@given(plural=st.sampled_from(list(ADDRESSES)), body=BODIES)
def test_any_body_is_taken_or_refused_in_words(api: Api, plural: str, body: bytes) -> None:
    api.put(plural, body)
    # What was taken is taken back: it must not decide what the next one meets.
    api.put(plural, json.dumps(CLUSTER if plural == "storageclusters" else ZONE).encode())


WORDS = st.text(max_size=12) | st.sampled_from(
    ["main", "sessions", "9" * 50, "-1", "\u0665", "1e3"]
)
QUERY = st.lists(
    st.tuples(st.sampled_from(["cluster", "zone", "after", "with", "without", "other"]), WORDS),
    max_size=4,
)
KINDS = [f"{ROOT}/{{}}", f"{ROOT}/zones/{{}}"]
PATHS = st.sampled_from(["/status", "/events", "/plan/{}", "/nodes/{}/drain", "/{}", *KINDS])


@SEVERAL
@example(path="/plan/{}", name="sessions", query=[("with", "9" * 5_000)], method="GET")
@example(path="/events", name="", query=[("after", "9" * 5_000)], method="GET")
@given(path=PATHS, name=WORDS, query=QUERY, method=st.sampled_from(["GET", "POST", "PATCH"]))
def test_any_address_is_answered_in_words(
    api: Api, path: str, name: str, query: list[tuple[str, str]], method: str
) -> None:
    def quoted(text: str) -> str:
        return quote(text, safe="", errors="surrogatepass")

    before = api.declared()
    asked = "&".join(f"{quoted(key)}={quoted(value)}" for key, value in query)

    status, answer = api.send(method, f"{path.format(quoted(name))}?{asked}")

    assert status < 500 or status == 503, (status, answer)
    assert api.declared() == before
