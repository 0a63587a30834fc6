"""What `quorate events` prints, which mistakes it names, and how it goes on after an outage."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from quorate.protocol.messages.events import ToldEvent, ZoneState
from quorate_cli.commands.events import line

Json = dict[str, Any]
Answer = Callable[[str], tuple[int, Json]]
PATH = os.pathsep.join(path for path in sys.path if path)
CLUSTER = {"kind": "StorageCluster", "metadata": {"name": "main"}, "spec": {"addresses": []}}
STATE = {"sequence": 7, "time": "T", "kind": "Normal", "reason": "State", "message": "Available"}
MOVED = {"sequence": 8, "time": "T", "kind": "Normal", "reason": "MigrationStarted", "message": "x"}


class _Operator(ThreadingHTTPServer):
    """Answers as it is told; `asked`: what it was asked."""

    answer: Answer
    asked: list[str]
    declares = True
    daemon_threads = True


class _Handler(BaseHTTPRequestHandler):
    server: _Operator

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if not self.server.declares:
            status, body = 404, {}
        elif self.path.endswith("/storageclusters"):
            status, body = 200, {"items": [CLUSTER]}
        else:
            status, body = self.server.answer(self.path)
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def operator() -> Iterator[_Operator]:
    server = _Operator(("127.0.0.1", 0), _Handler)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def _quorate(*arguments: str, port: int = 0) -> subprocess.CompletedProcess[str]:
    where = ["--server", f"127.0.0.1:{port}"] if port else []
    return subprocess.run(
        [sys.executable, "-m", "quorate_cli", "events", *arguments, *where],
        env={**os.environ, "PYTHONPATH": PATH, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=30,
    )


def _words(text: str) -> str:
    return " ".join(text.split())


def _page(next_: int, *events: Json) -> tuple[int, Json]:
    return 200, {"cluster": "main", "events": list(events), "next": next_}


def test_what_is_remembered_is_printed_as_json_lines(operator: _Operator) -> None:
    operator.answer = lambda path: _page(8, MOVED, STATE)
    ran = _quorate("--json", port=operator.server_port)
    assert ran.returncode == 0, ran.stderr
    assert [json.loads(each)["reason"] for each in ran.stdout.splitlines()] == [
        "MigrationStarted",
        "State",
    ]
    assert operator.asked[-1] == "/events?cluster=main&after=0"


def test_who_follows_asks_on_from_where_it_was_also_after_an_outage(operator: _Operator) -> None:
    pages = iter(
        [
            (503, {"message": "cluster main is not led: starting"}),
            _page(7, STATE),
            _page(8, MOVED),
            (503, {"message": "cluster main is not led: starting"}),
            _page(9, STATE),
            (404, {"message": "StorageCluster main does not exist"}),
        ]
    )
    operator.answer = lambda path: next(pages)
    ran = _quorate("--follow", "--json", port=operator.server_port)
    assert ran.returncode == 1
    assert [json.loads(each)["reason"] for each in ran.stdout.splitlines()] == [
        "State",
        "MigrationStarted",
        "State",
    ]
    assert ran.stderr.count("is not led: starting; retrying") == 2
    assert "StorageCluster main does not exist" in _words(ran.stderr)
    assert operator.asked[1:] == [
        "/events?cluster=main",
        "/events?cluster=main",
        "/events?cluster=main&after=7&wait=20",
        "/events?cluster=main&after=8&wait=20",
        "/events?cluster=main&after=8&wait=20",
        "/events?cluster=main&after=9&wait=20",
    ]


def test_a_reader_that_has_enough_is_no_error(operator: _Operator) -> None:
    operator.answer = lambda path: _page(7, *[MOVED] * 100)
    command = (
        f"{sys.executable} -m quorate_cli events -f --json"
        f" --server 127.0.0.1:{operator.server_port} | head -1"
    )
    ran = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        env={**os.environ, "PYTHONPATH": PATH},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert ran.stdout.count("\n") == 1
    assert ran.stderr == ""


def test_without_a_cluster_the_way_on_kubernetes_is_named(tmp_path: Any) -> None:
    ran = _quorate("--folder", str(tmp_path))
    assert ran.returncode == 1
    assert "has no cluster: create one with `quorate dev up`" in _words(ran.stderr)
    assert "kubectl quorate events" in _words(ran.stderr)


def test_the_health_port_of_an_operator_on_kubernetes_is_told_from_an_embedded_one(
    operator: _Operator,
) -> None:
    operator.declares = False
    ran = _quorate("--follow", port=operator.server_port)
    assert ran.returncode == 1
    assert "is not an embedded operator; on Kubernetes" in _words(ran.stderr)


def test_a_zone_that_is_not_declared_is_named(operator: _Operator) -> None:
    operator.answer = lambda path: (404, {"message": "Zone nowhere does not exist"})
    ran = _quorate("nowhere", "--follow", port=operator.server_port)
    assert ran.returncode == 1
    assert "nowhere" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_line_for_people_names_the_place_and_what_a_state_counts() -> None:
    moved = ToldEvent(8, "T", "Normal", "MigrationStarted", "MOVE a > b", "books", 3)
    assert line(moved) == "T  MigrationStarted  books/3  MOVE a > b"
    left = ToldEvent(8, "T", "Warning", "NodeLeft", "a left")
    assert line(left) == "T  NodeLeft  a left"
    state = ZoneState("Degraded", 8, 5, 2, 1, 1, 4)
    told = ToldEvent(8, "T", "Warning", "State", "Degraded: …", "books", state=state)
    assert line(told).endswith(
        "(5 of 8 partitions served fully, 2 degraded, 1 without primary, 1 lost; 4 migrations)"
    )
