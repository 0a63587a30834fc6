"""What programs read: the keys that docs/json.md names, and no others."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from quorate.planning.steps.intent import Intent
from quorate.planning.steps.preview import Preview, PreviewNode, PreviewStandIn, PreviewStep
from quorate.protocol.status import MigrationStatus, NodeStatus, ZoneStatus
from quorate_cli.dev.json_output import dev_status_json, status_json
from quorate_cli.objects.cluster_state import ClusterState
from quorate_cli.processes.cluster_folder import (
    FORMAT_VERSION,
    AgentEntry,
    ClusterEntry,
    ClusterFolder,
)
from quorate_cli.processes.process import Started, identify, write_started
from quorate_spark.verdict import DigestFigures, Verdict

DOCUMENT = (Path(__file__).parents[3] / "docs" / "json.md").read_text()
SECTIONS = {
    heading: text
    for heading, _, text in (part.partition("\n") for part in DOCUMENT.split("\n## ")[1:])
}


def _named(heading: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", SECTIONS[heading]))


@pytest.mark.parametrize(
    ("heading", "structs"),
    [
        ("`quorate status`", (ClusterState, NodeStatus, ZoneStatus, Intent, MigrationStatus)),
        ("`quorate plan`", (Preview, PreviewStep, PreviewNode, PreviewStandIn)),
        ("`quorate validate`", (Verdict, DigestFigures)),
    ],
)
def test_every_key_is_documented(heading: str, structs: tuple[type[msgspec.Struct], ...]) -> None:
    keys = {field for struct in structs for field in struct.__struct_fields__}

    assert keys - _named(heading) == set()


@pytest.fixture
def folder(tmp_path: Path) -> ClusterFolder:
    """Of a cluster whose operator runs (it is this process), and whose agents do not."""
    folder = ClusterFolder(tmp_path / ".quorate")
    agents = (AgentEntry("agent-1", 7101), AgentEntry("agent-2"))
    folder.write(ClusterEntry(FORMAT_VERSION, "main", agents, 3, 7000, False))
    own_pid = int(Path("/proc/self").readlink().name)
    write_started(folder.pid_file("operator"), identify(own_pid, str(folder.path)))
    folder.data("operator").mkdir(parents=True)
    said = {"pid": own_pid, "api_port": 7600}
    (folder.data("operator") / "operator.json").write_bytes(msgspec.json.encode(said))
    write_started(folder.pid_file("agent-1"), Started(1, "long ago", str(folder.path)))
    folder.log("agent-1").write_text("quorate-agent: the folder is damaged\n")
    return folder


def test_processes_are_told_with_where_they_listen_and_why_they_do_not_run(
    folder: ClusterFolder,
) -> None:
    told = json.loads(dev_status_json(folder))

    assert (told["cluster"], told["folder"]) == ("main", str(folder.path))
    operator, first, second = told["processes"]
    assert operator["listens"] == {"api": "127.0.0.1:7600"}
    assert isinstance(operator["pid"], int)
    assert (first["pid"], first["listens"]) == (None, {})
    assert first["reason"].startswith("quorate-agent: the folder is damaged")
    assert second["reason"] == ""
    assert set(first) <= _named("`quorate dev status`")


def test_clusters_are_told_with_what_does_not_run(folder: ClusterFolder) -> None:
    node = NodeStatus("agent-1", "a", 1, False, "Offline", "127.0.0.1:7101", "", 0, 0)
    state = ClusterState("main", "here/1", "", 3, (node,), ())

    told = json.loads(status_json([state], folder))

    assert told["clusters"][0]["nodes"][0]["name"] == "agent-1"
    assert list(told["not_running"]) == ["agent-1", "agent-2"]
    assert told["not_running"]["agent-2"] == ""
    assert json.loads(status_json([state], None))["not_running"] == {}
