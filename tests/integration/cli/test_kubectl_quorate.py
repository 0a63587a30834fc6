"""`kubectl quorate` on a real API server, beside a real operator and real agents.

`cli` runs `kubectl exec`, for which a kubelet is needed: tests/e2e has it.
"""

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from quorate_cli.kubectl.app import app
from quorate_cli.kubectl.kube_api import KubeApi
from quorate_cli.terminal.problem import Problem
from quorate_cluster.pod_names import operator_that_knows
from quorate_cluster.processes import environment
from quorate_cluster.road import QUIET, Json, Road
from quorate_cluster.waiting import wait_until
from quorate_control_plane.control_plane import ControlPlane

pytestmark = [pytest.mark.integration, pytest.mark.process, pytest.mark.timeout(300)]


class Plugin:
    """Runs `kubectl quorate` in the namespace of a road, in this process: its imports take a while
    on a busy machine."""

    def __init__(self, control_plane: ControlPlane, road: Road) -> None:
        self.road = road
        self.kubeconfig = control_plane.kubeconfig

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, what it printed, the sentence with which it ended."""
        where = (f"--kubeconfig={self.kubeconfig}", f"--namespace={self.road.namespace}")
        result = CliRunner().invoke(app, [*arguments, *where])
        error = result.exception
        if isinstance(error, Problem):
            return error.exit_code, result.output, str(error)
        if error is not None and not isinstance(error, SystemExit):
            raise error
        return result.exit_code, result.output, ""

    def __call__(self, *arguments: str) -> str:
        code, said, problem = self.run(*arguments)
        assert code == 0, (said, problem, self.road.logs())
        return said

    def refused(self, *arguments: str) -> str:
        """The sentence with which it ends."""
        code, said, problem = self.run(*arguments)
        assert code == 1, (said, problem)
        return problem

    def state(self) -> Json:
        [cluster] = json.loads(self("status", "--json"))["clusters"]
        return dict(cluster)

    def agent(self, name: str) -> Json:
        return next(dict(each) for each in self.state()["nodes"] if each["name"] == name)


@pytest.fixture
def plugin(control_plane: ControlPlane, road: Road, monkeypatch: pytest.MonkeyPatch) -> Plugin:
    monkeypatch.setenv("COLUMNS", "160")
    return Plugin(control_plane, road)


def test_no_key_of_the_user_is_left_in_a_file(
    control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for _ in range(2):  # the package remembers files it has written
        api = KubeApi(str(control_plane.kubeconfig))
        assert not [*tmp_path.iterdir()]
        assert api.get("/version")["major"] == "1"


def test_views_drain_and_report(
    control_plane: ControlPlane, road: Road, plugin: Plugin, tmp_path: Path
) -> None:
    assert "no StorageCluster is declared in this namespace" in plugin("status")
    road.start_agents(4)
    road.start_operator()
    road.declare()
    road.wait_zone(**QUIET)
    road.write_keys("very-private-value")

    program = [sys.executable, "-m", "quorate_cli.kubectl", "status", "-n", road.namespace]
    config = {**environment(), "KUBECONFIG": str(plugin.kubeconfig)}
    ran = subprocess.run(program, capture_output=True, text=True, timeout=60, env=config)
    assert "cluster main: 4 of 4 agents online" in ran.stdout, ran.stderr
    text = plugin("status")
    assert "cluster main: 4 of 4 agents online" in text
    assert "16 of 16" in text
    assert "not led" not in text
    assert plugin.state()["zones"][0]["ports"] == road.status("zone", "sessions")["ports"]
    assert "Available is True" in plugin("describe", "zone", "sessions")
    plan = plugin("plan", "sessions", "--without", "agent-2")
    assert "agents" in plan
    assert "this was a preview" in plan

    # A drain is declared, obeyed, shown, and taken back.
    assert "agent agent-4 has no copies" in plugin("drain", "agent-4")
    declared = road.get("storagecluster", "main") or {}
    assert declared["spec"]["drainAgents"] == ["agent-4"]
    drained = plugin.agent("agent-4")
    assert (drained["state"], drained["owners"]) == ("Draining", 0)
    refused = plugin.refused("drain", "agent-3")
    assert "zone sessions needs 3 agents and 2 would remain; add an agent first" in refused
    assert "kubectl quorate undrain agent-3" in refused
    plugin("undrain", "agent-3")
    plugin("undrain", "agent-4")
    wait_until(
        lambda: plugin.agent("agent-4")["owners"] > 0, "copies on agent-4 again", 60, road.logs
    )
    road.wait_zone(**QUIET)
    road.check_keys("very-private-value")

    # A loss is seen in status and events.
    road.agents["agent-2"].kill()
    road.wait_zone(Available="True")
    wait_until(
        lambda: plugin.agent("agent-2")["state"] == "Offline", "the loss in status", 60, road.logs
    )
    told = [json.loads(line) for line in plugin("events", "sessions", "--json").splitlines()]
    assert {"ZoneCreated", "NodeLeft", "MigrationFinished", "State"} <= {e["reason"] for e in told}
    assert told[-1]["state"]["partitions"] == 16

    # Who may read nothing is told what is missing.
    admin, plugin.kubeconfig = plugin.kubeconfig, control_plane.kubeconfig_for("eve")
    assert 'User "eve" cannot list resource "storageclusters"' in plugin.refused("status")
    plugin.kubeconfig = admin

    # The bundle has neither the secret nor what clients wrote; no kubelet is here for logs.
    plugin("report", "--output", str(tmp_path / "bundle.tar.gz"))
    with tarfile.open(tmp_path / "bundle.tar.gz") as archive:
        whole = b"".join(
            opened.read() for member in archive if (opened := archive.extractfile(member))
        )
        names = {member.name.removeprefix("bundle/") for member in archive}
    assert {"objects/zones/sessions.yaml", "objects/storagenodes/main.agent-1.yaml"} <= names
    assert {"objects/leases/quorate-operator.yaml", "events.txt", "status.txt"} <= names
    assert b"NodeLeft" in whole
    assert b"very-private-value" not in whole
    secret = road.get("secret", "main-quorate")
    assert secret is not None
    assert secret["data"]["key"].encode() not in whole

    # Without an operator it says so, and names how long it has been away.
    operator = road.operators.pop("operator-a")
    operator.kill()
    wait_until(
        lambda: "no operator leads" in " ".join(plugin("status").split()), "the old Lease", 60
    )
    assert "was last renewed" in json.loads(plugin("status", "--json"))["not_running"]["operator"]
    assert "declared, but not carried out" in plugin.refused("drain", "agent-1")


def test_a_lost_agent_is_replaced_by_a_new_pod_with_an_empty_volume(
    road: Road, plugin: Plugin
) -> None:
    """Agents run as processes; the test stands for their kubelets."""
    road.start_agents(3)
    ports = {f"main-{name}-0": agent.peer_port for name, agent in road.agents.items()}
    road.start_operator(program=operator_that_knows(ports))
    managed = {"replicas": 3, "image": "localhost/quorate-agent:1", "storage": {"size": "1Gi"}}
    road.apply("StorageCluster", "main", managed=managed)
    road.apply("Zone", "sessions", clusterRef={"name": "main"}, partitions=16)
    road.wait_zone(**QUIET)
    road.write_keys("first")
    wait_until(lambda: road.get("pod", "main-agent-2-0"), "its pod", 60, road.logs)

    def uids() -> tuple[str, str]:
        pod, claim = road.get("pod", "main-agent-2-0"), road.get("pvc", "main-agent-2")
        return (pod or {}).get("metadata", {}).get("uid", ""), (claim or {}).get(
            "metadata", {}
        ).get("uid", "")

    before = uids()
    assert all(before)
    assert "agent-2 is online" in plugin.refused("replace", "agent-2", "--yes")

    def lose(name: str) -> None:
        road.agents[name].kill()
        wait_until(lambda: not plugin.agent(name)["online"], f"loss of {name}", 60, road.logs)

    lose("agent-2")
    assert "confirm with --yes" in plugin.refused("replace", "agent-2")
    lose("agent-3")
    refused = plugin.refused("replace", "agent-2", "--yes")
    assert "acknowledged writes could be lost" in refused
    assert "agent-3 missing as well" in refused
    road.agents["agent-3"].start()
    wait_until(lambda: plugin.agent("agent-3")["online"], "agent-3 again", 60, road.logs)
    assert uids() == before

    told = plugin("replace", "agent-2", "--yes")

    assert "claim main-agent-2 (without a volume) will be deleted" in told
    wait_until(
        lambda: all(uids()) and not {*uids()} & {*before}, "new pod and claim", 60, road.logs
    )
    shutil.rmtree(road.agents["agent-2"].data)  # the new pod's volume is empty
    road.agents["agent-2"].start()
    road.wait_zone(**QUIET)
    road.check_keys("first")
    assert plugin.agent("agent-2")["owners"] == 16


def test_a_decision_is_shown_then_done_and_not_done_twice(plugin: Plugin) -> None:
    road = plugin.road
    road.use_example_role()
    road.start_agents()
    road.start_operator()
    road.declare(partitions=4)
    road.wait_zone(**QUIET)
    road.write_keys("first")

    shown = plugin("recover", "restart", "sessions", "--partitions", "0-3", "--node", "agent-2")
    assert shown.count("zone sessions, partition ") == 4, shown
    command = shown.strip().splitlines()[-1].split()
    assert command[:3] == ["kubectl", "quorate", "recover"], shown
    done = plugin(*command[2:])
    assert done.count("zone sessions, partition ") == 4, done
    assert "it is done" in done
    assert "its row has changed" in plugin.refused(*command[2:])

    road.wait_zone(**QUIET)
    road.check_keys("first")
    phases = sorted(each["status"]["phase"] for each in road.items("zonerecoveries"))
    assert phases == ["Done", "Refused", "Shown"]
