"""Advice and refusals of `quorate dev`, without processes."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from quorate.protocol.status import NodeStatus
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
    ("child", "said", "is_known"),
    [
        (
            "import sys; sys.exit('quorate-operator: no agent answers; nothing was changed')",
            "no agent answers; nothing was changed; ",
            True,
        ),
        ("import time; time.sleep(60)", "it was not done within 0.5 s: ", False),
        ("import os; os.kill(os.getpid(), 9)", "its process was ended by signal 9; ", False),
    ],
)
def test_a_recovery_that_fails_says_what_does_not_run_and_why(
    monkeypatch: pytest.MonkeyPatch, folder: ClusterFolder, child: str, said: str, is_known: bool
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
    assert told.startswith("agent-1 is not running; its data counts once it runs: agent-1 has no")
    assert said in told
    known = "the operator is stopped: `quorate dev start operator` starts it as it was"
    assert told.endswith(known) == is_known
    unsure = (
        "the operator is stopped, and whether its file was replaced is unknown: an old one would be"
        f" in {folder.data(OPERATOR)}/set-aside-N; run `quorate dev recover` again"
    )
    assert told.endswith(unsure) != is_known


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        (
            "start_agent",
            "the operator is stopped: `quorate dev start operator` starts it as it was",
        ),
        ("run", "the operator is stopped, and whether its file was replaced is unknown: "),
        ("start", "the operator's file is replaced: `quorate dev start operator` starts it"),
    ],
)
def test_an_interrupted_recovery_says_what_does_not_run(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    folder: ClusterFolder,
    step: str,
    sentence: str,
) -> None:
    def interrupt(*_of: object) -> None:
        raise KeyboardInterrupt

    cluster = DevCluster(folder, print)
    runs(monkeypatch)
    done = SimpleNamespace(returncode=0, stdout="", stderr="")
    monkeypatch.setattr(recover, "run", lambda *_of: done)
    monkeypatch.setattr(cluster, "start_agent", lambda _name: None)
    monkeypatch.setattr(recover if step == "run" else cluster, step, interrupt)

    with pytest.raises(KeyboardInterrupt):
        recover.recover_metastore(cluster)

    assert capsys.readouterr().err.startswith(f"quorate: {sentence}")


class TestZonesOfARecovery:
    """Before all agents have told, no zone is not the same as no data."""

    @pytest.fixture(autouse=True)
    def rebuilt(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(recover, "HEARD_S", 0.0)
        monkeypatch.setattr(recover, "_rebuild", lambda _cluster: ["the old file is kept"])
        monkeypatch.setattr(recover.resources, "fetch_all", lambda *_of: [])

    def cluster(self, folder: ClusterFolder, problem: str, *states: str) -> DevCluster:
        nodes = tuple(
            NodeStatus(f"agent-{at}", "s", 1, state == "Online", state, "127.0.0.1:1", "", 0, 0)
            for at, state in enumerate(states, 1)
        )
        cluster = DevCluster(folder, print)
        state = ClusterState("main", "me", problem, 7, nodes, ())
        vars(cluster).update(state=lambda: state, api=lambda: None)
        return cluster

    def test_an_operator_that_does_not_lead(self, folder: ClusterFolder) -> None:
        with pytest.raises(Problem) as unknown:
            recover.recover_metastore(self.cluster(folder, "the disk is full"))

        assert str(unknown.value) == (
            "the old file is kept; what data agents have is not known yet: the disk is full;"
            " `quorate status` shows the zones once it is"
        )

    def test_an_operator_that_does_not_answer(self, folder: ClusterFolder) -> None:
        def refuse() -> None:
            raise Problem("operator at 127.0.0.1:1 cannot be reached")

        cluster = self.cluster(folder, "")
        vars(cluster).update(state=refuse)

        with pytest.raises(Problem, match=r"not known yet: operator at 127\.0\.0\.1:1 cannot"):
            recover.recover_metastore(cluster)

    def test_an_agent_that_is_not_online(self, folder: ClusterFolder) -> None:
        with pytest.raises(Problem, match="not known yet: agent-2 is not online; "):
            recover.recover_metastore(self.cluster(folder, "", "Online", "Offline"))

    def test_all_agents(self, folder: ClusterFolder) -> None:
        said = recover.recover_metastore(self.cluster(folder, "", "Online", "Online"))

        assert said == ["the old file is kept", "no agent has data of a zone"]


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


def test_an_up_whose_operator_starts_slowly_says_what_runs_and_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, folder: ClusterFolder
) -> None:
    told: list[str] = []
    runs(monkeypatch, OPERATOR)
    monkeypatch.setattr(dev_cluster, "START_S", 0)

    with pytest.raises(Problem) as late:
        DevCluster(folder, told.append).up()

    assert "operator is not listening after 0 s: see its log" in str(late.value)
    assert str(late.value).endswith("it still starts, and `quorate dev up` goes on with it")
    assert told[-1] == (
        "not finished; running: operator; not running: agent-1, agent-2; `quorate dev up`"
        " continues, `quorate dev down` stops all processes"
    )


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
