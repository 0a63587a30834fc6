"""The program of `helm test`, as far as it needs no cluster."""

import json
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from quorate_cli import zone_check

_OWN = {"quorate", "quorate_cli"}
_IMPORTED = """
import json, sys
before = {*sys.modules}
import quorate_cli.zone_check
print(json.dumps(sorted({name.partition(".")[0] for name in {*sys.modules} - before})))
"""


def test_it_imports_nothing_that_the_operators_image_lacks() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", _IMPORTED], capture_output=True, text=True, check=True
    )

    others = {*json.loads(done.stdout)} - _OWN - sys.stdlib_module_names
    assert others == set()


def test_a_zone_without_an_endpoint_is_named_with_the_way_out() -> None:
    leaving = {"metadata": {"namespace": "shop", "name": "old", "deletionTimestamp": "now"}}
    new = {"metadata": {"namespace": "shop", "name": "carts"}}

    [(name, problem)] = zone_check.check_all([leaving, new])

    assert name == "shop/carts"
    assert problem == (
        "status.endpoints is empty: `kubectl describe --namespace shop zone carts` shows the reason"
    )


def test_without_an_account_it_says_which_file_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert zone_check.main(["--account", str(tmp_path)]) == 1
    assert f"{tmp_path}/namespace" in capsys.readouterr().err


class _Agent(socketserver.StreamRequestHandler):
    """Answers as an agent that keeps one key: by the command's name, in its third line."""

    def handle(self) -> None:
        value = b""
        while count := self.rfile.readline():
            words = []
            for _ in range(int(count[1:])):
                length = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(length + 2)[:-2])
            if words[0] == b"SET":
                value = words[2]
            told = {
                b"PING": b"+PONG",
                b"SET": b"+OK",
                b"GET": b"$%d\r\n%s" % (len(value), value),
                b"DEL": b":1",
            }
            self.wfile.write(told.get(words[0], b"-ERR") + b"\r\n")


@contextmanager
def _listening(port: int) -> Iterator[None]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", port), _Agent) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def refusing() -> int:
    """A port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _zone(port: int) -> dict[str, dict[str, object]]:
    return {
        "metadata": {"namespace": "shop", "name": "carts"},
        "status": {"endpoints": [f"127.0.0.1:{port}"]},
    }


def test_agents_that_refuse_a_new_pod_at_first_are_tried_again(
    refusing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        monkeypatch.setattr(time, "sleep", lambda _: stack.enter_context(_listening(refusing)))

        told = [*zone_check.check_all([_zone(refusing)], time.monotonic() + 60)]

    assert told == [("shop/carts", "")]


def test_agents_that_stay_out_of_reach_are_named(refusing: int) -> None:
    [(name, problem)] = zone_check.check_all([_zone(refusing)], time.monotonic() + 0.01)

    assert name == "shop/carts"
    assert problem == f"127.0.0.1:{refusing} cannot be reached: connection refused"
