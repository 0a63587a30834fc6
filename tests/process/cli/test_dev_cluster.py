"""`quorate dev` and the demo with real processes, as a user runs them."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from redis import RedisCluster

from quorate_cli.demo.keeper import end_all
from quorate_cli.dev.dev_cluster import DevCluster
from quorate_cli.dev.ports import STRIDE, choose_client_port_base
from quorate_cli.dev.process_states import process_states
from quorate_cli.objects import resources
from quorate_cli.objects.operator_api import NotReady, OperatorApi
from quorate_cli.processes.cluster_folder import OPERATOR
from quorate_cli.processes.process import kill, python
from quorate_cli.terminal.problem import Problem
from quorate_cluster.background import Background
from quorate_cluster.interrupts import Interrupted, interrupted_behind
from quorate_cluster.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

EXAMPLE = Path(__file__).parents[3] / "examples" / "zone.yaml"
PATH = os.pathsep.join(path for path in sys.path if path)

Quorate = Callable[..., str]


def _client(cluster: DevCluster) -> RedisCluster:
    (found,) = resources.fetch_all(cluster.api(), resources.ZONE)
    host, _, port = resources.zone(found).status.endpoints[0].rpartition(":")
    return RedisCluster(host=host, port=int(port), decode_responses=True)


def _running_in(folder: Path) -> list[str]:
    """Command lines of processes that have to do with `folder`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if str(folder) in command and "pytest" not in command:
                found.append(command)
    return found


def test_a_cluster_stops_and_starts_with_its_data(
    quorate: Quorate, cluster: DevCluster, folder: Path
) -> None:
    assert "no zone yet; declare one: quorate apply" in quorate("dev", "up")
    assert "already up" in quorate("dev", "up")
    assert "zone/library created (dry run)" in quorate("apply", "-f", str(EXAMPLE), "--dry-run")
    assert "there are no zones" in quorate("get", "zones")
    assert "created" in quorate("apply", "-f", str(EXAMPLE), "--wait", "60")
    assert "unchanged" in quorate("apply", "-f", str(EXAMPLE))
    client = _client(cluster)
    client.set("greeting", "hello")
    client.close()

    quorate("dev", "down")
    assert _running_in(folder) == []
    said = quorate("status", code=1)
    assert "is not running: start it with `quorate dev up`" in " ".join(said.split())
    quorate("dev", "up")

    client = _client(cluster)
    assert client.get("greeting") == "hello"
    client.close()
    assert "library" in quorate("get", "zones")
    assert "deleted" in quorate("delete", "zone", "library")
    quorate("dev", "down", "--delete-data")
    assert not folder.exists()


def test_of_a_folder_and_its_copy_only_one_is_started(
    quorate: Quorate, folder: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    quorate("dev", "up")
    quorate("dev", "down")
    shutil.copytree(folder, copy)
    quorate("dev", "up")
    try:
        said = " ".join(quorate("dev", "up", "--folder", str(copy), code=1).split())
        assert f"folder {copy} is a copy of {folder}, whose processes run (operator: pr" in said
        assert _running_in(copy) == []

        quorate("dev", "down")
        quorate("dev", "up", "--folder", str(copy))
        said = " ".join(quorate("dev", "up", code=1).split())
        assert "an agent of a copy of folder" in said
        assert _running_in(folder) == []
    finally:
        end_all(copy, 0)
    assert "agent-3: process" in quorate("dev", "up")


def _up_beside(folder: Path, stderr: int) -> subprocess.Popen[str]:
    """`quorate dev up`, which goes on beside the test."""
    return subprocess.Popen(
        [sys.executable, "-m", "quorate_cli", "dev", "up"],
        env={**os.environ, "PYTHONPATH": PATH, "QUORATE_FOLDER": str(folder)},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def test_an_up_that_was_interrupted_is_finished_by_the_next(
    quorate: Quorate, cluster: DevCluster, folder: Path
) -> None:
    with _up_beside(folder, subprocess.STDOUT) as first:
        wait_until(lambda: cluster.folder.pid_file("agent-3").exists(), "start of agent-3")
        first.send_signal(signal.SIGINT)
        assert first.stdout is not None
        said = first.stdout.read()

    assert first.returncode == 130
    assert "Traceback" not in said
    left = "interrupted; running: operator, agent-1, agent-2, agent-3; `quorate dev up` continues"
    assert left in " ".join(said.split())
    assert {agent.peer_port for agent in cluster.folder.read().agents} == {0}  # none was noted
    cluster.kill("agent-3")
    assert "already running: operator, agent-1, agent-2; starting" in quorate("dev", "up")
    assert {node.name for node in cluster.state().nodes if node.online} == {
        f"agent-{number}" for number in (1, 2, 3)
    }


def test_an_up_whose_reader_has_gone_is_finished(
    quorate: Quorate, cluster: DevCluster, folder: Path
) -> None:
    quorate("dev", "up")
    quorate("apply", "-f", str(EXAMPLE), "--wait", "60")
    quorate("dev", "down")
    with _up_beside(folder, subprocess.PIPE) as up:
        assert up.stdout is not None
        assert up.stderr is not None
        assert up.stdout.readline().startswith("operator: process")
        up.stdout.close()
        said = up.stderr.read()

    assert (up.returncode, said) == (0, "")
    (zone,) = cluster.state().zones
    assert zone.unavailable == 0  # it ended when all was served, not before


def test_primaries_that_find_their_places_after_an_up_make_no_partition_unavailable(
    quorate: Quorate, cluster: DevCluster
) -> None:
    quorate("dev", "up")
    quorate("apply", "-f", str(EXAMPLE), "--wait", "60")
    quorate("dev", "kill", "agent-1")
    wait_until(lambda: not _primaries(cluster)["agent-1"], "others in the place of agent-1")
    quorate("dev", "up")
    seen: set[int] = set()

    def is_in_place() -> bool:
        (zone,) = cluster.state().zones
        seen.add(zone.unavailable)
        return min(_primaries(cluster).values()) > zone.partitions // 4

    wait_until(is_in_place, "primaries on every agent", 60, lambda: _primaries(cluster))

    assert seen == {0}


def _primaries(cluster: DevCluster) -> dict[str, int]:
    return {node.name: node.primaries for node in cluster.state().nodes}


def test_an_up_that_cannot_serve_says_what_is_missing(
    quorate: Quorate, cluster: DevCluster, folder: Path
) -> None:
    """Two agents of three refuse to start: the third alone has no majority."""
    quorate("dev", "up")
    quorate("apply", "-f", str(EXAMPLE), "--wait", "60")
    quorate("dev", "down")
    for name in ("agent-1", "agent-3"):
        (cluster.folder.data(name) / "folder.json").write_text("nonsense")

    said = quorate("dev", "up", "--wait", "3", code=1)

    for name in ("agent-1", "agent-3"):
        assert f"{name} ended at once: quorate-agent: {cluster.folder.data(name)}" in said
    assert "Way out:" in said
    assert "after 3 s zone library does not serve yet: 64 partitions have no serving" in said
    assert "agent-3 is not running: quorate-agent:" in quorate("status")
    assert "agent-3: quorate-agent:" in quorate("dev", "status")


def test_a_cluster_whose_declaration_was_deleted_is_declared_again_by_up(
    quorate: Quorate, cluster: DevCluster
) -> None:
    quorate("dev", "up")
    quorate("delete", "storagecluster", "main")

    said = quorate("dev", "remove", "agent-1", code=1)

    assert "storagecluster 'main' was deleted: `quorate dev up` declares it" in " ".join(
        said.split()
    )
    quorate("dev", "up")
    assert len(cluster.state().nodes) == 3


def test_an_agent_is_killed_and_comes_back(quorate: Quorate, cluster: DevCluster) -> None:
    quorate("dev", "up")
    quorate("apply", "-f", str(EXAMPLE), "--wait", "60")
    first = cluster.folder.process("agent-1")

    quorate("dev", "kill", "agent-1")

    assert "agent-1 is not running" in quorate("dev", "kill", "agent-1", code=1)
    assert "not running" in quorate("dev", "status")
    ours = cluster.folder.read().client_port_base
    # A cluster that began now would else take its ports, and get its clients.
    assert choose_client_port_base() not in range(ours, ours + STRIDE)
    quorate("dev", "start", "agent-1")
    second = cluster.folder.process("agent-1")
    assert first is not None
    assert second is not None
    assert first.pid != second.pid
    assert "listens on" in quorate("dev", "logs", "agent-1")
    wait_until(
        # Others take over what it served, or it does itself: it was away for a moment only.
        lambda: "every partition has a serving primary" in quorate("describe", "zone", "library"),
        "every partition to be served again",
        60,
        lambda: quorate("describe", "zone", "library"),
    )


def test_processes_without_pid_files_are_found_by_their_folders(
    quorate: Quorate, cluster: DevCluster, folder: Path
) -> None:
    quorate("dev", "up")
    pids = {state.name: state.pid for state in process_states(cluster.folder)}
    for name in pids:
        cluster.folder.pid_file(name).unlink()

    assert {state.name: state.pid for state in process_states(cluster.folder)} == pids
    assert "already up" in quorate("dev", "up")
    quorate("dev", "down")
    assert _running_in(folder) == []


def test_the_operator_is_killed_and_agents_go_on_serving(
    quorate: Quorate, cluster: DevCluster
) -> None:
    quorate("dev", "up")
    quorate("apply", "-f", str(EXAMPLE), "--wait", "60")
    client = _client(cluster)

    quorate("dev", "kill", OPERATOR)

    client.set("greeting", "hello")
    assert client.get("greeting") == "hello"
    client.close()
    quorate("dev", "start", OPERATOR)
    quorate("apply", "-f", str(EXAMPLE), "--wait", "60")


def test_agents_are_added_and_removed_or_it_is_said_why_not(
    quorate: Quorate, cluster: DevCluster, folder: Path
) -> None:
    quorate("dev", "up")
    quorate("apply", "-f", str(EXAMPLE), "--wait", "60")
    client = _client(cluster)
    for number in range(200):
        client.set(f"key-{number}", str(number))

    said = quorate("dev", "remove", "agent-1", code=1)
    assert "needs 3 agents and 2 would remain; add an agent first" in " ".join(said.split())
    assert "agent-4: joined" in quorate("dev", "add")
    assert "removed with its data" in quorate("dev", "remove", "agent-1")

    assert not (folder / "agents" / "agent-1").exists()
    assert {node.name for node in cluster.state().nodes} == {"agent-2", "agent-3", "agent-4"}
    for number in range(200):
        assert client.get(f"key-{number}") == str(number)
    client.close()


class _Writer(Background):
    """Writes one key after the other; a command that fails ends it with the test."""

    def __init__(self, client: RedisCluster) -> None:
        super().__init__()
        self.count = 0
        self._client = client
        self.add_road(self._write)

    def _write(self) -> None:
        while not self.stop.wait(0.005):
            self._client.set(f"written-{self.count}", self.count)
            self.count += 1


def test_a_higher_count_of_agents_adds_and_a_lower_one_drains_first(
    quorate: Quorate, cluster: DevCluster, folder: Path
) -> None:
    quorate("dev", "up")
    quorate("apply", "-f", str(EXAMPLE), "--wait", "60")
    client = _client(cluster)
    with _Writer(client) as writer:
        assert "agent-5: joined" in quorate("dev", "scale", "5")
        said = quorate("dev", "scale", "3")

    assert said.index("agent-5: removed") < said.index("agent-4: removed")
    assert sorted(node.name for node in cluster.state().nodes) == ["agent-1", "agent-2", "agent-3"]
    assert not (folder / "agents" / "agent-4").exists()
    for number in range(writer.count):
        assert client.get(f"written-{number}") == str(number)
    client.close()
    said = quorate("dev", "scale", "2", code=1)
    assert "needs 3 agents and 2 would remain" in " ".join(said.split())


def test_a_lost_agent_is_removed_when_others_have_its_copies(
    quorate: Quorate, cluster: DevCluster, folder: Path
) -> None:
    quorate("dev", "up", "--agents", "4")
    quorate("apply", "-f", str(EXAMPLE), "--wait", "60")
    client = _client(cluster)
    for number in range(200):
        client.set(f"key-{number}", str(number))
    quorate("dev", "kill", "agent-1")

    quorate("dev", "remove", "agent-1")

    assert not (folder / "agents" / "agent-1").exists()
    assert [client.get(f"key-{number}") for number in range(200)] == [*map(str, range(200))]
    client.close()


def test_a_lost_agent_that_is_needed_is_not_removed_and_can_come_back(
    quorate: Quorate, cluster: DevCluster, tmp_path: Path
) -> None:
    two_copies = tmp_path / "zone.yaml"
    two_copies.write_text(EXAMPLE.read_text().replace("replicas: 3", "replicas: 2"))
    quorate("dev", "up")
    quorate("apply", "-f", str(two_copies), "--wait", "60")
    client = _client(cluster)
    for number in range(200):
        client.set(f"key-{number}", str(number))
    quorate("dev", "kill", "agent-1")

    said = quorate("dev", "remove", "agent-1", "--timeout", "2", code=1)

    assert "still holds copies of zone library; agent-1 is not running and stays a member" in (
        " ".join(said.split())
    )
    quorate("dev", "start", "agent-1")
    quorate("apply", "-f", str(two_copies), "--wait", "60")
    assert [client.get(f"key-{number}") for number in range(200)] == [*map(str, range(200))]
    client.close()


def test_the_last_agent_is_not_removed(quorate: Quorate) -> None:
    quorate("dev", "up", "--agents", "1")

    said = quorate("dev", "remove", "agent-1", code=1)

    assert "agent-1 is the last agent of cluster main" in " ".join(said.split())
    assert "already up" in quorate("dev", "up")


def _demo(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "quorate_cli.demo", "--folder", str(folder), *arguments]


@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_the_demo_checks_every_step_and_leaves_nothing(tmp_path: Path) -> None:
    ran = subprocess.run(
        _demo(tmp_path / "around" / "demo", "--megabytes", "3"),
        env={**os.environ, "PYTHONPATH": PATH},
        capture_output=True,
        text=True,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("passed, ") == 8
    assert "all 8 steps passed" in ran.stdout
    assert not (tmp_path / "around").exists()
    assert _running_in(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["SIGKILL", "SIGINT"])
def test_a_demo_that_is_ended_half_way_leaves_nothing(
    tmp_path: Path, number: signal.Signals
) -> None:
    folder = tmp_path / "demo"
    with subprocess.Popen(
        _demo(folder, "--megabytes", "1"),
        env={**os.environ, "PYTHONPATH": PATH},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if line.startswith("3/8"):
                break
        demo.send_signal(number)
        rest = demo.stdout.read()

    assert demo.returncode != 0
    assert "Traceback" not in rest
    wait_until(
        lambda: not folder.exists() and not _running_in(folder),
        "end of all that the demo made",
        say=lambda: (list(tmp_path.iterdir()), _running_in(folder)),
    )


def test_a_demo_empties_no_folder_that_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")

    ran = subprocess.run(
        _demo(tmp_path), env={**os.environ, "PYTHONPATH": PATH}, capture_output=True, text=True
    )

    assert ran.returncode == 1
    assert "demo and is not empty (it contains thesis.txt)" in " ".join(ran.stderr.split())
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def _removable(quorate: Quorate) -> None:
    quorate("dev", "up", "--agents", "4")
    quorate("apply", "-f", str(EXAMPLE), "--wait", "60")


def _wait_until_online(cluster: DevCluster, name: str) -> None:
    def state() -> str:
        try:
            return next(each.state for each in cluster.state().nodes if each.name == name)
        except (NotReady, StopIteration):  # the operator was started a moment ago
            return "unknown"

    wait_until(lambda: state() == "Online", f"{name} Online", say=state)


def test_a_removal_that_is_interrupted_as_it_begins_leaves_a_full_member(
    quorate: Quorate, cluster: DevCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _removable(quorate)
    with interrupted_behind(monkeypatch, OperatorApi, "post"), pytest.raises(Interrupted):
        cluster.remove("agent-4", 60, lambda first, left: None)
    _wait_until_online(cluster, "agent-4")


def test_a_removal_whose_operator_is_killed_is_taken_back_by_the_next_up(
    quorate: Quorate, cluster: DevCluster
) -> None:
    _removable(quorate)
    running = cluster.folder.process(OPERATOR)
    assert running is not None
    with pytest.raises(Problem):
        cluster.remove("agent-4", 60, lambda first, left: kill(running))
    assert "agent-4: drain undone" in quorate("dev", "up")
    _wait_until_online(cluster, "agent-4")


def test_an_operator_whose_file_is_lost_says_so_and_is_rebuilt_from_the_agents(
    quorate: Quorate, cluster: DevCluster, folder: Path
) -> None:
    quorate("dev", "up")
    quorate("apply", "-f", str(EXAMPLE), "--wait", "60")
    client = _client(cluster)
    client.set("greeting", "hello")
    client.close()
    quorate("dev", "down")
    for file in (folder / OPERATOR).glob("metastore.sqlite*"):
        file.unlink()

    said = " ".join(quorate("dev", "up", code=1).split())
    assert "metastore.sqlite is missing" in said
    assert "`quorate dev recover`" in said
    said = " ".join(quorate("dev", "recover").split())
    assert "zone library: " in said
    assert "no serving primary" not in said

    client = _client(cluster)
    assert client.get("greeting") == "hello"
    client.set("greeting", "again")
    client.close()
    assert "already up" in quorate("dev", "up")
    assert "library" in quorate("get", "zones")
    assert "unchanged" in quorate("apply", "-f", str(EXAMPLE))


def _fill_single_copies(quorate: Quorate, cluster: DevCluster, manifest: Path) -> None:
    manifest.write_text(EXAMPLE.read_text().replace("replicas: 3", "replicas: 1"))
    quorate("apply", "-f", str(manifest), "--wait", "60")
    client = _client(cluster)
    for number in range(50):
        client.set(f"key-{number}", str(number))
    client.close()


def _check_all_is_there(cluster: DevCluster) -> None:
    client = _client(cluster)
    assert [client.get(f"key-{number}") for number in range(50)] == [*map(str, range(50))]
    client.close()


def _forget_registrations(metastore: Path) -> None:
    """Delete the registrations of agents from the file of an operator that does not run."""
    with closing(sqlite3.connect(metastore)) as at, at:
        assert at.execute("DELETE FROM records WHERE kind = 'node'").rowcount


def test_an_agent_with_data_that_the_operator_does_not_know_is_not_removed(
    quorate: Quorate, cluster: DevCluster, folder: Path, tmp_path: Path
) -> None:
    one_copy = tmp_path / "zone.yaml"
    database = folder / OPERATOR
    quorate("dev", "up")
    quorate("dev", "stop", OPERATOR)
    _forget_registrations(database / "metastore.sqlite")  # else it is known to be older, and ends
    older = {file.name: file.read_bytes() for file in database.glob("metastore.sqlite*")}
    quorate("dev", "start", OPERATOR)
    _fill_single_copies(quorate, cluster, one_copy)

    quorate("dev", "kill", OPERATOR)
    for file in database.glob("metastore.sqlite*"):
        file.unlink()
    for name, content in older.items():
        (database / name).write_bytes(content)
    quorate("dev", "start", OPERATOR)
    _wait_until_online(cluster, "agent-2")
    said = " ".join(quorate("dev", "remove", "agent-2", code=1).split())
    assert "agent-2 has data of zones that the operator does not know" in said
    assert "`quorate dev recover`" in said
    for words in (["status"], ["dev", "status"]):
        assert "agents have data of zones without a record" in " ".join(quorate(*words).split())

    quorate("dev", "recover")
    _check_all_is_there(cluster)
    assert "without a record" not in quorate("status")


def test_an_agent_that_is_away_and_not_registered_is_not_removed_with_its_data(
    quorate: Quorate, cluster: DevCluster, folder: Path, tmp_path: Path
) -> None:
    one_copy = tmp_path / "zone.yaml"
    quorate("dev", "up")
    _fill_single_copies(quorate, cluster, one_copy)
    quorate("dev", "kill", "agent-2")
    quorate("dev", "kill", OPERATOR)
    for file in (folder / OPERATOR).glob("metastore.sqlite*"):
        file.unlink()
    agents = [f"127.0.0.1:{each.peer_port}" for each in cluster.folder.read().agents]
    command = python(
        *("quorate_operator", "recover", "--data", str(folder / OPERATOR), "--cluster", "main"),
        *("--secrets", str(cluster.folder.secrets), "--agents", ",".join(agents)),
    )
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    quorate("dev", "start", OPERATOR)
    wait_until(lambda: bool(cluster.state().zones), "the zone is being rebuilt")

    said = " ".join(quorate("dev", "remove", "agent-2", code=1).split())

    assert "agent-2 is not registered" in said
    assert "`quorate dev start agent-2`" in said
    quorate("dev", "start", "agent-2")
    quorate("apply", "-f", str(one_copy), "--wait", "60")
    _check_all_is_there(cluster)
