"""Advice and refusals of `quorate dev`, without processes."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from quorate_cli.dev import dev_cluster, recover
from quorate_cli.dev.dev_cluster import DevCluster
from quorate_cli.objects.cluster_state import ClusterState
from quorate_cli.processes.cluster_folder import (
    FORMAT_VERSION,
    OPERATOR,
    AgentEntry,
    ClusterEntry,
    ClusterFolder,
)
from quorate_cli.terminal.problem import Problem


@pytest.fixture
def folder(tmp_path: Path) -> ClusterFolder:
    """The folder of a cluster of two agents."""
    made = ClusterFolder(tmp_path / "cluster")
    made.path.mkdir()
    agents = (AgentEntry("agent-1"), AgentEntry("agent-2"))
    made.write(ClusterEntry(FORMAT_VERSION, "main", agents, 3, 7000, False))
    return made


def runs(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(
        ClusterFolder, "process", lambda _folder, name: object() if name in names else None
    )


@pytest.mark.parametrize("running", [[], ["agent-2"]])
def test_data_without_a_record_is_recovered_before_its_agent_is_removed(
    monkeypatch: pytest.MonkeyPatch, folder: ClusterFolder, running: list[str]
) -> None:
    """Whether it runs or not: no start deletes data of a zone without a record."""
    (folder.data("agent-2") / "zones" / "deleted").mkdir(parents=True)
    cluster = DevCluster(folder, print)
    api = SimpleNamespace(get=lambda *_asked: {})
    monkeypatch.setattr(cluster, "api", lambda: api)
    monkeypatch.setattr(cluster, "state", lambda: ClusterState("main", "me", "", 7, (), ()))
    runs(monkeypatch, *running)

    with pytest.raises(Problem) as refused:
        cluster.remove("agent-2", 1, lambda _first, _left: None)

    assert "agent-2 has data of zones that the operator does not know (deleted)" in str(
        refused.value
    )
    assert "`quorate dev recover` declares them again" in str(refused.value)
    assert "`quorate delete zone NAME`" in str(refused.value)
    assert "compare this id with metadata.uid" in str(refused.value)
    assert "dev start" not in str(refused.value)


@pytest.mark.parametrize(
    ("child", "said"),
    [
        (
            "import sys; sys.exit('quorate-operator: no agent answers; nothing was changed')",
            "no agent",
        ),
        ("import time; time.sleep(60)", "the agents were not asked within 0.5 s"),
    ],
)
def test_a_recovery_that_fails_says_what_does_not_run_and_why(
    monkeypatch: pytest.MonkeyPatch, folder: ClusterFolder, child: str, said: str
) -> None:
    def refuse(name: str) -> None:
        raise Problem(f"{name} has no room")

    def command(*_words: str) -> list[str]:
        with pytest.raises(Problem, match="another `quorate dev` command is using it"):
            DevCluster(ClusterFolder(folder.path), print).up()
        return [sys.executable, "-c", child]

    cluster = DevCluster(folder, print)
    runs(monkeypatch)
    monkeypatch.setattr(cluster, "start_agent", refuse)
    monkeypatch.setattr(recover, "ASK_S", 0.5 if "sleep" in child else 60)
    monkeypatch.setattr(recover, "python", command)

    with pytest.raises(Problem) as failed:
        recover.recover_metastore(cluster)

    told = str(failed.value)
    assert told.startswith(said)
    assert "agent-1 is not running; its data counts once it runs: agent-1 has no room; " in told
    assert told.endswith(
        "the operator is stopped: `quorate dev start operator` starts it as it was"
    )


def test_a_put_back_that_is_over_does_nothing_where_its_agents_run(
    monkeypatch: pytest.MonkeyPatch, folder: ClusterFolder
) -> None:
    aside = folder.data("agent-1") / "set-aside-1"
    aside.mkdir(parents=True)
    (aside / "folder.json.put-back").write_text("{}")
    cluster = DevCluster(folder, print)
    monkeypatch.setattr(cluster, "api", lambda: None)
    monkeypatch.setattr(cluster, "state", lambda: None)
    monkeypatch.setattr(dev_cluster.resources, "fetch_all", lambda *_asked: [])
    monkeypatch.setattr(dev_cluster, "check_all_is_lost", lambda *_known: None)
    stopped: list[str] = []
    monkeypatch.setattr(cluster, "_stop", stopped.extend)
    monkeypatch.setattr(cluster, "_start_agents", lambda *_agents: {"agent-1": "it is full"})
    monkeypatch.setattr(cluster._membership, "declare", lambda _entry: None)

    runs(monkeypatch, OPERATOR, "agent-1", "agent-2")
    with pytest.raises(Problem, match="no agent has data that was set aside"):
        cluster.put_back()
    assert stopped == []

    runs(monkeypatch, OPERATOR)  # it was interrupted
    with pytest.raises(Problem, match="it is full"):
        cluster.put_back()
    assert stopped == ["agent-1"]


def test_options_that_running_agents_do_not_obey_yet_are_told(
    monkeypatch: pytest.MonkeyPatch, folder: ClusterFolder
) -> None:
    told: list[str] = []
    cluster = DevCluster(folder, told.append)
    runs(monkeypatch, OPERATOR, "agent-1")

    def start() -> None:
        raise Problem("it does not start")

    monkeypatch.setattr(cluster, "_start_operator", start)
    for _ in range(2):
        with pytest.raises(Problem, match="it does not start"):
            cluster.up(client_port_base=7500, debug_commands=True)

    about = [each for each in told if "takes effect" in each]
    restart = "takes effect on an agent at `quorate dev restart NAME` (running: agent-1)"
    assert about == [
        f"--debug-commands {restart}",
        f"--client-port-base {restart}; zones keep the ports that they have",
    ]


def test_no_other_command_uses_a_folder_that_is_being_deleted(
    monkeypatch: pytest.MonkeyPatch, folder: ClusterFolder
) -> None:
    delete = ClusterFolder.delete
    said: list[str] = []

    def deleting(of: ClusterFolder) -> None:
        with pytest.raises(Problem) as refused:
            DevCluster(ClusterFolder(folder.path), print).up()
        said.append(str(refused.value))
        delete(of)

    monkeypatch.setattr(ClusterFolder, "delete", deleting)
    DevCluster(folder, print).down(delete_data=True)

    assert [each for each in said if "another `quorate dev` command is using it" in each] == said
    assert said
    assert not folder.path.exists()
