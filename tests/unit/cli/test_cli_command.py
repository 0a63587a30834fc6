"""`quorate cli`: its exit code says whether a reply was an error, by whichever client."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from quorate_cli.commands import cli as module
from quorate_cli.commands.every import app


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An agent that does not know the outcome of the first command, and sets the second."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            for reply in (b"-UNKNOWN it may have been executed\r\n", b"+OK\r\n"):
                if connection.recv(65536):
                    connection.sendall(reply)

    monkeypatch.setattr(module, "_address", lambda api, zone: listener.getsockname())
    thread = threading.Thread(target=answer)
    thread.start()
    yield
    socket.create_connection(listener.getsockname()).close()  # if no command came
    thread.join(5)
    listener.close()


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """The arguments with which this process became redis-cli; SIGPIPE is as before then."""
    found: list[list[str]] = []
    known = signal.getsignal(signal.SIGPIPE)

    def become(program: str, arguments: list[str]) -> None:
        found.append(arguments)
        sys.exit(0)

    monkeypatch.setattr(os, "execv", become)
    yield found
    signal.signal(signal.SIGPIPE, known)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Installs a redis-cli of a version, as the only program."""

    def make(version: str) -> None:
        program = tmp_path / "redis-cli"
        program.write_text(f"#!/bin/sh\necho redis-cli {version}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))

    return make


def invoke(*words: str, typed: str = "") -> Any:
    arguments = ["cli", "--server", "127.0.0.1:1", "library", *words]
    return CliRunner().invoke(app, arguments, input=typed)


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize("version", ["6.2.1", "7.0.15"])
def test_an_unknown_outcome_of_a_command_from_a_pipe_is_told(
    install: Any, became: list[list[str]], version: str
) -> None:
    install(version)

    ended = invoke(typed="set a b\nset c d\n")

    assert (ended.exit_code, ended.stdout) == (1, "OK\n")
    assert "UNKNOWN it may have been executed" in ended.stderr
    assert not became


@pytest.mark.usefixtures("agent")
def test_an_unknown_outcome_is_told_beside_an_old_redis_cli(
    install: Any, became: list[list[str]]
) -> None:
    install("6.2.1")

    assert invoke("set", "a", "b").exit_code == 1
    assert not became


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize(
    ("version", "words", "given"),
    [
        ("7.0.15", ["set", "a", "b"], ["-e", "set", "a", "b"]),
        ("7.0.15", ["--raw", "get", "a"], ["-e", "--raw", "get", "a"]),
        ("6.2.1", ["--raw", "get", "a"], ["--raw", "get", "a"]),
    ],
)
def test_redis_cli_is_used_where_it_tells_errors_or_is_asked_for(
    install: Any, became: list[list[str]], version: str, words: list[str], given: list[str]
) -> None:
    install(version)

    assert invoke(*words).exit_code == 0

    (arguments,) = became
    assert arguments[6:] == given


@pytest.mark.usefixtures("agent")
def test_a_person_at_a_terminal_gets_redis_cli(
    install: Any, became: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    install("6.2.1")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))

    with pytest.raises(SystemExit):
        module.cli("library", None, "127.0.0.1:1")

    (arguments,) = became
    assert arguments[1:4:2] == ["-c", "127.0.0.1"]
    assert len(arguments) == 6
