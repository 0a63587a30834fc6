"""An API server with canned objects, and `kubectl quorate` in the test's own process."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from typer.testing import CliRunner

from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.facts.zone import StorageKind, ZoneRecord
from quorate.wire.partition_table import accepted_zone, stored_row
from quorate.wire.schema.resource import API_VERSION
from quorate.wire.storage_node import node_spec
from quorate_cli.kubectl.app import app
from quorate_cli.terminal.problem import Problem

Json = dict[str, Any]
OURS = f"/apis/{API_VERSION}/namespaces/shop"
CORE = "/api/v1/namespaces/shop"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/shop/leases/quorate-operator"
UID = "uid-of-library"
AGENTS = ("agent-1", "agent-2", "agent-3")


class Answer(NamedTuple):
    status: int
    body: Json | bytes


class CannedApi:
    """Objects by path.

    `refused`: method and path of what is forbidden; `asked`: what came; `strict`: the paths of
    collections in which an object was created, if a field that is not known is to be an error.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.texts: dict[str, bytes] = {}
        self.refused: dict[tuple[str, str], Answer] = {}
        self.asked: list[tuple[str, str, Json]] = []
        self.strict: list[str] = []
        self.watched: list[Answer] = []
        """Answers to the next watches, one each."""
        self.on_patch: Callable[[str], None] = lambda path: None
        self.on_delete: Callable[[str], None] = lambda path: None
        self.on_create: Callable[[Json], None] = lambda made: None

    def put(self, path: str, whole: Json, revision: str = "1") -> Json:
        name = path.rpartition("/")[2]
        namespace = path.split("/namespaces/")[1].split("/")[0]
        metadata = {"name": name, "namespace": namespace, "uid": f"uid-of-{name}"}
        made = {
            **whole,
            "metadata": {**metadata, "resourceVersion": revision, **whole.get("metadata", {})},
        }
        self.objects[path] = made
        return made

    def answer(self, method: str, target: str, body: Json) -> Answer:
        parts = urlsplit(target)
        path, query = parts.path, parse_qs(parts.query)
        self.asked.append((method, path, body))
        if (method, path) in self.refused:
            return self.refused[method, path]
        if "watch" in query:
            return self.watched.pop(0)
        if path in self.texts:
            return Answer(200, self.texts[path])
        if method == "POST":
            self.strict += [path] if query.get("fieldValidation") == ["Strict"] else []
            made = self.put(f"{path}/{body['metadata'].pop('generateName')}x7k2m", body)
            answer = json.loads(json.dumps(made))
            self.on_create(made)
            return Answer(201, answer)
        if method == "GET" and path not in self.objects and self._is_collection(path):
            return Answer(
                200, {"metadata": {"resourceVersion": "9"}, "items": self._list(path, query)}
            )
        found = self.objects.get(path)
        if found is None:
            name = path.rpartition("/")[2]
            return Answer(404, {"message": f"{name} not found", "details": {"name": name}})
        if method == "DELETE":
            uid = body.get("preconditions", {}).get("uid")
            if uid not in (None, found["metadata"]["uid"]):
                return Answer(409, {"message": "another uid"})
            if body.get("dryRun") == ["All"]:
                return Answer(200, {})
            del self.objects[path]
            self.on_delete(path)
            return Answer(200, {})
        if method == "PATCH":
            self.on_patch(path)
            found = self.objects[path]
            if body["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
                return Answer(409, {"message": "the object has been modified"})
            found["spec"] |= body["spec"]
            revision = int(found["metadata"]["resourceVersion"]) + 1
            found["metadata"]["resourceVersion"] = str(revision)
            found["metadata"]["generation"] = found["metadata"].get("generation", 1) + 1
        return Answer(200, found)

    def _is_collection(self, path: str) -> bool:
        return len(path.split("/namespaces/")[-1].split("/")) == 2 or "/namespaces/" not in path

    def _list(self, path: str, query: dict[str, list[str]]) -> list[Json]:
        root, _, plural = path.rpartition("/")
        labels = [each.split("=") for each in ",".join(query.get("labelSelector", [])).split(",")]
        fields = [each.split("=", 1) for each in query.get("fieldSelector", [])]

        def has(whole: Json, label: list[str]) -> bool:
            known = whole["metadata"].get("labels", {})
            return label[0] in known and label[1:] in ([], [known[label[0]]]) if label[0] else True

        return [
            whole
            for at, whole in self.objects.items()
            if at.startswith(f"{root}/")
            and at.rsplit("/", 2)[1] == plural
            and all(has(whole, label) for label in labels)
            and all(
                whole["metadata"]["name"] == value
                for key, value in fields
                if key == "metadata.name"
            )
        ]


class Kubectl:
    """`kubectl("status")` runs the command and returns what it printed; Problem when it fails."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig

    def __call__(self, command: str, *arguments: str, stdin: str | None = None) -> str:
        result = CliRunner().invoke(
            app, [*command.split(), f"--kubeconfig={self.kubeconfig}", *arguments], input=stdin
        )
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.output

    def problem(self, command: str, *arguments: str) -> str:
        with pytest.raises(Problem) as raised:
            self(command, *arguments)
        return str(raised.value)


@contextmanager
def served(api: CannedApi, folder: Path) -> Iterator[Kubectl]:
    """Serve the objects on a port of this machine; yields what runs commands on them."""

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            status, answer = api.answer(self.command, self.path, body)
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PATCH = do_POST = do_DELETE = _serve  # noqa: N815

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield Kubectl(kubeconfig(folder / "config", f"http://127.0.0.1:{server.server_port}"))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def kubeconfig(file: Path, server: str) -> Path:
    """Contexts `here`, in namespace shop, and `there`."""
    contexts = [
        {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "shop"}},
        {"name": "there", "context": {"cluster": "c", "user": "u"}},
    ]
    whole = {
        "apiVersion": "v1", "kind": "Config", "current-context": "here", "contexts": contexts,
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }  # fmt: skip
    file.write_text(yaml.safe_dump(whole))
    return file


def condition(kind: str, status: str, message: str = "m", reason: str = "R") -> Json:
    return {
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip


def renewed(canned: CannedApi, seconds_ago: float) -> None:
    """The operator's Lease was renewed then."""
    at = (datetime.now(UTC) - timedelta(seconds=seconds_ago)).isoformat()
    spec = {"holderIdentity": "pod-a/1/x", "renewTime": at, "leaseDurationSeconds": 10}
    canned.put(LEASE, {"spec": spec})


def register(canned: CannedApi, agent: str, left: bool = False, store: str = "first") -> None:
    record = NodeRecord(
        agent, store, 1, "10.0.0.1", 7100, "10.0.0.1", left_since_ms=1 if left else None
    )
    spec = node_spec("main", record).model_dump(mode="json", by_alias=True, exclude_none=True)
    labels = {"quorate.io/cluster": "main"}
    canned.put(f"{OURS}/storagenodes/main.{agent}", {"metadata": {"labels": labels}, "spec": spec})


def tables(canned: CannedApi, voters: tuple[str, ...] = AGENTS, **more: Any) -> None:
    """Rows of four partitions that have these voters."""
    record = ZoneRecord(UID, "library", 4, 3, StorageKind.PERSISTENT, placed=True)
    labels = {"quorate.io/cluster": "main", "quorate.io/zone-uid": UID}
    about = {"clusterRef": {"name": "main"}, "zoneRef": {"name": "library", "uid": UID}}
    accepted = accepted_zone(record).model_dump(mode="json", by_alias=True)
    rows = [
        PartitionRow(
            p, 2, 2, Holder(voters[0], "first", 1), voters,
            tuple(Voter(name, "first") for name in voters), **more,
        )
        for p in range(4)
    ]  # fmt: skip
    dumped = [stored_row(r).model_dump(mode="json", by_alias=True, exclude_none=True) for r in rows]
    for name, spec in (("head", {"accepted": accepted}), ("000", {"shard": 0, "rows": dumped})):
        path = f"{OURS}/partitiontables/{UID}-{name}"
        canned.put(path, {"metadata": {"labels": labels}, "spec": {**about, **spec}})


def declare(canned: CannedApi) -> None:
    canned.objects.clear()
    members = [
        {"name": a, "storeId": "first", "address": "10.0.0.1:7100", "state": "Online",
         "primaries": 1, "owners": 4} for a in AGENTS
    ]  # fmt: skip
    managed = {"replicas": 3, "image": "i", "storage": {"size": "1Gi"}}
    managed["podTemplate"] = {"env": [{"name": "TOKEN", "value": "very-secret"}]}
    status = {
        "observedGeneration": 1, "members": members, "online": "3/3",
        "master": {"identity": "pod-a/1/x", "term": 7},
        "conditions": [condition("Ready", "True")],
    }  # fmt: skip
    canned.put(
        f"{OURS}/storageclusters/main",
        {"metadata": {"generation": 1}, "spec": {"managed": managed}, "status": status},
    )
    zone_status = {
        "observedGeneration": 1, "zoneId": UID, "phase": "Available",
        "ports": dict.fromkeys(AGENTS, 7200), "endpoints": ["10.0.0.1:7200"],
        "partitions": {"total": 4, "available": 4},
        "conditions": [
            condition(kind, "True") for kind in ("Accepted", "Available", "FullyReplicated")
        ],
    }  # fmt: skip
    spec = {"clusterRef": {"name": "main"}, "partitions": 4}
    canned.put(
        f"{OURS}/zones/library", {"metadata": {"uid": UID}, "spec": spec, "status": zone_status}
    )
    tables(canned)
    for agent in AGENTS:
        register(canned, agent)
        labels = {"quorate.io/cluster": "main", "quorate.io/agent": agent}
        container = {"name": "agent", "env": [{"name": "TOKEN", "value": "very-secret"}]}
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        canned.put(
            f"{CORE}/pods/main-{agent}-0",
            {"metadata": {"labels": labels}, "status": ready,
             "spec": {"nodeName": "node-7", "containers": [container]}},
        )  # fmt: skip
        canned.put(
            f"{CORE}/persistentvolumeclaims/main-{agent}",
            {"metadata": {"labels": labels}, "spec": {"volumeName": f"pv-{agent}"}},
        )
    renewed(canned, 1)
