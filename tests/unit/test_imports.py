"""The modules that programs import before they do anything: each of their users waits for them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    "aiohttp",
    "jsonpath",
    "kopf",
    "kubernetes",
    "numpy",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pydantic",
    "pyspark",
    "quorate.wire.schema.resource",
    "redis",
    "rocksdict",
}
"""Each takes 20 ms of CPU or more; `quorate.wire.schema.resource` with the models made from it."""
_LINE = re.compile(r"^import time: .*\| +(\S+)$", re.MULTILINE)


def imported(*arguments: str, folder: Path, says: str = "") -> set[str]:
    """The heavy modules that a program imports until it ends, with these words."""
    environment = {name: each for name, each in os.environ.items() if "QUORATE" not in name}
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert says in ended.stderr
    names = {*_LINE.findall(ended.stderr)}
    assert "site" in names, ended.stderr
    assert "Traceback" not in ended.stderr
    return names & HEAVY


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_quorate_itself_needs_nothing_heavy(tmp_path: Path, option: str) -> None:
    assert imported("quorate_cli", option, folder=tmp_path) == set()


@pytest.mark.parametrize(
    "command",
    [("status",), ("top",), ("events",), ("plan", "z"), ("get", "zones")],
    ids=lambda command: command[0],
)
def test_commands_that_read_no_objects_need_no_models(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    found = imported("quorate_cli", *command, folder=tmp_path, says="has no cluster")
    assert found <= {"pydantic"}  # which the parser of command lines imports


def test_kubectl_quorate_needs_only_what_speaks_to_an_api_server(tmp_path: Path) -> None:
    needed = {"kubernetes", "pydantic", "quorate.wire.schema.resource"}
    assert imported("quorate_cli.kubectl", "--version", folder=tmp_path) <= needed


def test_an_agent_needs_its_engine_and_metrics(tmp_path: Path) -> None:
    needed = {"prometheus_client", "rocksdict"}
    assert imported("quorate_agent", "--help", folder=tmp_path) <= needed


def test_an_embedded_operator_needs_no_library_of_kubernetes(tmp_path: Path) -> None:
    needed = {"aiohttp", "prometheus_client", "pydantic", "quorate.wire.schema.resource"}
    assert imported("quorate_operator", "embedded", "--help", folder=tmp_path) <= needed


def test_models_are_made_without_reading_their_source() -> None:
    read = "import linecache, quorate.wire.crds; print([*linecache.cache])"
    ended = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True, check=True)

    assert ended.stdout == "[]\n"
