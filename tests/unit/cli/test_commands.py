"""What a user sees when something is wrong: one sentence, an exit code, never a traceback."""

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from quorate_cli.__main__ import main
from quorate_cli.guard import DEFECT_EXIT_CODE
from quorate_cli.objects.operator_api import (
    TOKEN_VARIABLE,
    NotReady,
    NotThere,
    OperatorApi,
    parse_server,
)
from quorate_cli.processes.cluster_folder import ClusterFolder
from quorate_cli.terminal.problem import Problem

Say = Callable[..., tuple[int, str]]


@pytest.fixture
def say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Say]:
    """The command in an empty folder, in this process: its exit code and its errors."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    monkeypatch.chdir(tmp_path)

    def run_here(command: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["quorate", *command.split()])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().err

    yield run_here
    for number, handler in handlers.items():
        signal.signal(number, handler)


def run(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command, as a user types it."""
    return subprocess.run(
        [sys.executable, "-m", "quorate_cli", *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def pythonpath() -> str:
    """Ours, for processes that are started elsewhere."""
    return os.pathsep.join(path for path in sys.path if path)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("status", "has no cluster: create one with `quorate dev up`"),
        ("dev down", "has no cluster"),
        ("dev kill agent-1", "has no cluster"),
        ("get zones", "has no cluster"),
        ("get pods", "kind 'pods' is not known"),
        ("apply -f none.yaml", "-f none.yaml cannot be read: no such file or directory"),
        ("status --server nowhere", "--server 'nowhere' is not an address: write host:port"),
        ("dev up --agents 0", "--agents 0: write a number from 1 to 64"),
        ("dev up --name A", "--name 'A': use at most 50 lower-case letters, digits and '-'"),
        (f"dev up --name {'a' * 51}", "use at most 50 lower-case letters"),
        (
            "dev up --name a-",
            "--name 'a-': use at most 50 lower-case letters, digits and '-', and no",
        ),
        ("dev up --folder file", "file is a file: name a folder with --folder"),
    ],
)
def test_a_mistake_is_one_sentence(say: Say, command: str, said: str) -> None:
    Path("file").touch()

    code, errors = say(command)

    assert code == 1
    assert said in " ".join(errors.split())
    assert errors.startswith("quorate: ")
    assert "Traceback" not in errors


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_told(tmp_path: Path, option: str) -> None:
    ran = run(option, cwd=tmp_path)

    assert ran.returncode == 0
    assert re.fullmatch(r"quorate \d\S*\n", ran.stdout)


@pytest.mark.parametrize("command", ["-h", "dev -h", "dev up -h", "cli -h", "validate --help"])
def test_help_has_a_short_name(tmp_path: Path, command: str) -> None:
    ran = run(*command.split(), cwd=tmp_path)

    assert ran.returncode == 0
    assert "Usage: quorate" in ran.stdout


@pytest.mark.parametrize(
    ("typed", "completed"), [("quorate va", "validate"), ("quorate dev re", "remove")]
)
def test_a_shell_completes_commands(tmp_path: Path, typed: str, completed: str) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}

    ran = run(cwd=tmp_path, _QUORATE_COMPLETE="complete_bash", **words)

    assert ran.returncode == 0
    assert completed in ran.stdout.split()


@pytest.mark.parametrize(
    "command",
    [
        "up --agents 65",
        "kill agent-1",
        "down",
        "start agent-1",
        "restart agent-1",
        "add",
        "recover",
    ],
)
def test_a_command_that_is_refused_before_it_begins_makes_no_folder(
    say: Say, tmp_path: Path, command: str
) -> None:
    code, _ = say(f"dev {command} --folder nx/typo")

    assert code == 1
    assert list(tmp_path.iterdir()) == []


def test_an_up_that_is_refused_leaves_nothing_in_the_folder_of_others(
    say: Say, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()

    code, errors = say("dev up --folder mine")

    assert code == 1
    assert "is not empty (it contains thesis.txt)" in " ".join(errors.split())
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("dev remove agent-1 --timeout -1", "--timeout"),
        ("dev logs -n 0", "--lines"),
        ("apply -f file --wait -1", "--wait"),
        ("delete zone books --wait -1", "--wait"),
    ],
)
def test_a_number_that_makes_no_sense_is_refused(say: Say, command: str, option: str) -> None:
    code, errors = say(command)

    assert code == 2
    assert f"Invalid value for '{option}'" in " ".join(errors.split())


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EACCES, "/x/agent.pid: permission denied; run this as the owner of the folder"),
        (errno.ENOSPC, "/x/agent.pid: no space left on device; free some space"),
    ],
)
def test_a_file_that_the_system_refuses_is_no_defect_of_ours(
    say: Say, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int, said: str
) -> None:
    def refuse(folder: ClusterFolder) -> None:
        raise OSError(number, os.strerror(number), "/x/agent.pid")

    monkeypatch.setattr(ClusterFolder, "read", refuse)
    code, errors = say("status")

    assert code == 1
    assert said in " ".join(errors.split())
    assert list(tmp_path.iterdir()) == []  # nor is there anything to report


def test_an_interrupt_while_it_is_being_imported_leaves_no_traceback(
    tmp_path: Path, pythonpath: str
) -> None:
    (tmp_path / "typer.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
    )

    ran = run("status", cwd=tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}{pythonpath}")

    assert ran.returncode == -signal.SIGINT
    assert ran.stderr == ""


def test_validation_that_cannot_begin_never_says_that_copies_differ(say: Say) -> None:
    code, errors = say("validate books")

    assert code == 2
    assert "has no cluster" in errors


def test_a_defect_of_ours_is_one_sentence_and_a_file(tmp_path: Path, pythonpath: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import quorate_cli.processes.cluster_folder as f\n"
        "def broken(self): raise ZeroDivisionError('by planting')\n"
        "f.ClusterFolder.read = broken\n"
    )

    ran = run("status", cwd=tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}{pythonpath}")

    assert ran.returncode == DEFECT_EXIT_CODE
    log = tmp_path / ".quorate" / "quorate-error.log"
    assert "internal error (ZeroDivisionError: by planting)" in ran.stderr
    assert str(log) in "".join(ran.stderr.split("\n"))
    assert "Traceback" not in ran.stderr
    assert "Traceback" in log.read_text()


class _Answers(BaseHTTPRequestHandler):
    """Answers with what the path asks for: /STATUS/TEXT."""

    def do_GET(self) -> None:
        _, status, text = self.path.split("/", 2)
        body = text.encode() if text == "garbage" else json.dumps({"message": text}).encode()
        self.send_response(int(status))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def api() -> Iterator[OperatorApi]:
    """A server that answers anything."""
    server = HTTPServer(("127.0.0.1", 0), _Answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield OperatorApi("127.0.0.1", server.server_port, timeout_s=5)
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("path", "kind", "said"),
    [
        ("/404/zone-gone", NotThere, "zone-gone"),
        ("/422/bad-field", Problem, "bad-field"),
        (
            "/401/no-token",
            Problem,
            "no-token; for an operator on another machine, name a copy",
        ),
        ("/503/not-yet", NotReady, "not-yet"),
        ("/500/broken", Problem, "failed at GET /500/broken: broken; its log says why"),
        ("/200/garbage", Problem, "this version does not understand"),
    ],
)
def test_what_the_operator_refuses_reaches_the_user_in_its_words(
    api: OperatorApi, path: str, kind: type[Problem], said: str
) -> None:
    with pytest.raises(kind) as raised:
        api.get(path, dict[str, int])

    assert said in str(raised.value)


def test_an_operator_that_is_not_there_says_how_to_start_it() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        api = OperatorApi("127.0.0.1", unused.getsockname()[1])

        with pytest.raises(Problem, match=r"cannot be reached \(connection refused\): start it"):
            api.get("/status", dict[str, int])


def test_an_operator_that_does_not_answer_leaves_the_outcome_unknown() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        api = OperatorApi("127.0.0.1", silent.getsockname()[1], timeout_s=0.1)

        with pytest.raises(Problem, match=r"within 0\.1 s; whether it was done is unknown"):
            api.put("/x", {}, dict[str, int])
        with pytest.raises(Problem, match=r"within 0\.1 s: see `quorate status`"):
            api.get("/x", dict[str, int])


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", r"cannot be reached \(.*\)"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", r"does not speak HTTP \(Incompl.*\)"),
    ],
    ids=["none", "half"],
)
def test_an_operator_that_ends_after_it_was_asked_leaves_the_outcome_unknown(
    answer: bytes, said: str
) -> None:
    def end_all(listening: socket.socket) -> None:
        with suppress(TimeoutError):  # the test has failed before
            for _ in range(3):
                asked, _ = listening.accept()
                with asked:
                    asked.recv(64 * 1024)
                    asked.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(5)
        thread = threading.Thread(target=end_all, args=(listening,))
        thread.start()
        api = OperatorApi("127.0.0.1", listening.getsockname()[1], timeout_s=5)
        with pytest.raises(Problem, match=f"{said}; whether it was done is unknown"):
            api.put("/x", {}, dict[str, int])
        with pytest.raises(Problem, match=f"{said}; whether it was done is unknown"):
            api.delete("/x")
        with pytest.raises(Problem, match=f"{said}: "):
            api.get("/x", dict[str, int])
        thread.join()


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:0", "host:65536", "host:x"])
def test_what_is_no_address_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(Problem, match="is not an address: write host:port"):
        parse_server(text, ClusterFolder(tmp_path))


def test_an_address_may_be_of_ipv6(tmp_path: Path) -> None:
    api = parse_server("[::1]:7600", ClusterFolder(tmp_path))

    assert (api.host, api.port, api.token) == ("::1", 7600, "")


def test_the_token_is_that_of_the_folder_or_of_the_file_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ClusterFolder(tmp_path / "cluster")
    folder.token_file.parent.mkdir(parents=True)
    folder.token_file.write_text("of-the-folder\n")
    assert parse_server("host:1", folder).token == "of-the-folder"
    elsewhere = tmp_path / "elsewhere"
    monkeypatch.setenv(TOKEN_VARIABLE, str(elsewhere))
    with pytest.raises(Problem, match=r"QUORATE_TOKEN_FILE: .*elsewhere cannot be read"):
        parse_server("host:1", folder)
    elsewhere.write_text("of-elsewhere")

    assert parse_server("host:1", folder).token == "of-elsewhere"
