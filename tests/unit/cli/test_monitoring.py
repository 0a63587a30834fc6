"""The output of `quorate dev up --monitoring`."""

import os
import subprocess
from pathlib import Path

import msgspec
import pytest
import yaml

from quorate_cli.dev.monitoring import scrape_configuration
from quorate_cli.processes.cluster_folder import (
    FORMAT_VERSION,
    AgentAddress,
    AgentEntry,
    ClusterEntry,
    ClusterFolder,
    OperatorAddress,
)
from quorate_cli.processes.process import identify, write_started


@pytest.fixture
def folder(tmp_path: Path) -> ClusterFolder:
    """Of a cluster whose operator and first agent run (they are this process); one does not."""
    folder = ClusterFolder(tmp_path / ".quorate")
    agents = (AgentEntry("agent-1"), AgentEntry("agent-2"))
    folder.write(ClusterEntry(FORMAT_VERSION, "main", agents, 3, 7000, False))
    pid = os.getpid()
    addresses = {
        "operator": ("operator.json", OperatorAddress(pid, 7600)),
        "agent-1": ("agent.json", AgentAddress(pid, "agent-1", "127.0.0.1", 7601, 7602)),
    }
    for name, (file, address) in addresses.items():
        write_started(folder.pid_file(name), identify(pid, str(folder.path)))
        folder.data(name).mkdir(parents=True)
        (folder.data(name) / file).write_bytes(msgspec.json.encode(address))
    return folder


def test_each_process_that_runs_is_a_target_with_its_name(folder: ClusterFolder) -> None:
    operator, agents = yaml.safe_load(scrape_configuration(folder))["scrape_configs"]

    (target,) = operator["static_configs"]
    assert target["targets"] == ["127.0.0.1:7600"]
    assert target["labels"] == {"namespace": "dev", "instance": "operator"}
    (target,) = agents["static_configs"]
    assert target["targets"] == ["127.0.0.1:7602"]
    named = {"instance": "agent-1", "agent": "agent-1"}
    assert target["labels"] == {"namespace": "dev", "cluster": "main", **named}


@pytest.mark.needs("promtool")
def test_prometheus_takes_it(folder: ClusterFolder, tmp_path: Path) -> None:
    file = tmp_path / "prometheus.yaml"
    file.write_text(scrape_configuration(folder))

    done = subprocess.run(["promtool", "check", "config", file], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
