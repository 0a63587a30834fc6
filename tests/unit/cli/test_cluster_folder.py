"""One folder, one cluster: another's folder, another's version, another's processes."""

import errno
import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from quorate_cli.commands.every import app
from quorate_cli.dev.dev_cluster import DevCluster
from quorate_cli.processes.cluster_folder import (
    FORMAT_VERSION,
    OPERATOR,
    AgentEntry,
    ClusterEntry,
    ClusterFolder,
)
from quorate_cli.processes.process import identify, start_noted, write_started
from quorate_cli.terminal.problem import Problem
from quorate_link.secret import make_secret, read_secret

ENTRY = ClusterEntry(FORMAT_VERSION, "main", (AgentEntry("agent-1", 7101),), 2, 7000, False)


@pytest.fixture
def folder(tmp_path: Path) -> ClusterFolder:
    """A cluster that is not running."""
    folder = ClusterFolder(tmp_path / ".quorate")
    folder.write(ENTRY)
    return folder


def test_an_entry_is_read_as_it_was_written(folder: ClusterFolder) -> None:
    assert folder.exists()
    assert folder.read() == ENTRY


def test_a_folder_without_a_cluster_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(Problem, match=r"has no cluster: create one with `quorate dev up`"):
        ClusterFolder(tmp_path).read()


def test_another_version_is_refused(folder: ClusterFolder) -> None:
    folder.write(msgspec.structs.replace(ENTRY, format=99))

    with pytest.raises(Problem, match="format is 99, this version needs 1"):
        folder.read()


def test_a_damaged_entry_is_named(folder: ClusterFolder) -> None:
    (folder.path / "cluster.json").write_text('{"format": 1, "cluster": ')

    with pytest.raises(Problem, match=r"cluster\.json is damaged"):
        folder.read()


def test_a_cluster_is_not_made_in_a_folder_that_holds_something_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")

    with pytest.raises(Problem, match=r"a cluster and is not empty \(it contains thesis\.txt\)"):
        ClusterFolder(tmp_path).check_free()


def test_a_cluster_may_be_made_around_the_folder_of_another(tmp_path: Path) -> None:
    ClusterFolder(tmp_path / "demo").write(ENTRY)

    ClusterFolder(tmp_path).check_free()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(Problem, match="is a file: name a folder"):
        ClusterFolder(tmp_path / "file").check_free()


def test_two_commands_do_not_change_a_cluster_at_once(folder: ClusterFolder) -> None:
    with (
        folder.locked(),
        pytest.raises(Problem, match="another `quorate dev` command is using"),
        ClusterFolder(folder.path).locked(),
    ):
        pass

    with folder.locked():
        pass


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with (
        pytest.raises(Problem, match=r"cannot be written: .*name another folder with --folder"),
        ClusterFolder(tmp_path / "file" / "inside").locked(may_be_new=True),
    ):
        pass


def test_a_file_that_cannot_be_taken_is_named_with_the_way_out_and_leaves_nothing(
    folder: ClusterFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*paths: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = sorted(folder.path.iterdir())
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(Problem, match=r"cannot be written: no space.*; free some space"):
        folder.write(ENTRY)

    assert sorted(folder.path.iterdir()) == before


def test_a_dead_pid_file_names_no_process(folder: ClusterFolder) -> None:
    me = identify(os.getpid(), str(folder.path))
    write_started(folder.pid_file("agent-1"), msgspec.structs.replace(me, mark="long ago"))

    assert folder.process("agent-1") is None
    assert folder.process(OPERATOR) is None


def test_a_copied_folder_does_not_claim_the_processes_of_the_original(
    folder: ClusterFolder, tmp_path: Path
) -> None:
    write_started(folder.pid_file("agent-1"), identify(os.getpid(), str(folder.path)))
    shutil.copytree(folder.path, tmp_path / "copy")

    assert folder.process("agent-1") is not None
    assert ClusterFolder(tmp_path / "copy").process("agent-1") is None


@pytest.fixture
def locked_by_us(folder: ClusterFolder) -> Iterator[Path]:
    """The lock of agent-1's data folder, held by this process as an agent holds it."""
    lock = folder.lock("agent-1")
    lock.parent.mkdir(parents=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield lock


def test_a_process_without_its_pid_file_is_found_by_its_folders_lock(
    folder: ClusterFolder, locked_by_us: Path
) -> None:
    assert folder.process("agent-1") == identify(os.getpid(), str(folder.path))


def test_where_there_is_no_proc_the_lock_itself_is_asked(
    folder: ClusterFolder, locked_by_us: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        raise FileNotFoundError(path)

    shutil.copytree(folder.path, folder.path.with_name("copy"))
    monkeypatch.setattr(os, "scandir", refuse)

    assert folder.process("agent-1") is not None
    assert ClusterFolder(folder.path.with_name("copy")).process("agent-1") is None


def test_a_copied_lock_is_not_that_of_the_process_it_names(
    folder: ClusterFolder, locked_by_us: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder.path, tmp_path / "copy")

    assert ClusterFolder(tmp_path / "copy").process("agent-1") is None


@pytest.mark.parametrize("text", ["", "nonsense", "0", "999999999"])
def test_a_lock_that_names_no_process_is_nobodys(folder: ClusterFolder, text: str) -> None:
    folder.lock("agent-1").parent.mkdir(parents=True)
    folder.lock("agent-1").write_text(text)

    assert folder.process("agent-1") is None


def test_an_address_of_an_earlier_process_is_not_believed(folder: ClusterFolder) -> None:
    write_started(folder.pid_file("agent-1"), identify(os.getpid(), str(folder.path)))
    folder.data("agent-1").mkdir(parents=True)
    said = {"name": "agent-1", "host": "127.0.0.1", "peer_port": 7101, "admin_port": 7201}
    file = folder.data("agent-1") / "agent.json"

    file.write_bytes(msgspec.json.encode({"pid": os.getpid() + 1, **said}))
    assert folder.agent_address("agent-1") is None

    file.write_bytes(msgspec.json.encode({"pid": os.getpid(), **said}))
    address = folder.agent_address("agent-1")
    assert address is not None
    assert address.peer_port == 7101


class TestSecret:
    """A lost secret is not replaced by another one: agents would refuse it."""

    @pytest.fixture(autouse=True)
    def identity(self, folder: ClusterFolder) -> Path:
        """The rows that agent-1 has stored."""
        file = folder.data("agent-1") / "folder.json"
        file.parent.mkdir(parents=True)
        file.write_text('{"format": 1, "cluster": "main", "cluster_id": "0ddba11"}')
        return file

    def test_a_lost_one_is_named_with_its_id(self, folder: ClusterFolder) -> None:
        with pytest.raises(Problem) as refused:
            folder.made_secret("main")

        said = f"{folder.secret_file('main')} is missing, the secret of cluster main, whose cluster"
        assert str(refused.value).startswith(said)
        assert '{"clusterId": "0ddba11", "key": "…"}' in str(refused.value)
        assert not folder.secrets.exists()

    def test_one_that_is_there_is_used(self, folder: ClusterFolder) -> None:
        secret = make_secret(folder.secret_file("main"))

        assert read_secret(folder.made_secret("main")) == secret

    @pytest.mark.parametrize("text", ["{}", "nonsense"])
    def test_agents_that_know_none_get_one(
        self, folder: ClusterFolder, identity: Path, text: str
    ) -> None:
        """Those of an earlier version, or damaged ones."""
        identity.write_text(text)

        assert read_secret(folder.made_secret("main")).cluster_id

    def test_a_restart_is_refused_before_it_stops_a_process(
        self, folder: ClusterFolder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_started(folder.pid_file("agent-1"), identify(os.getpid(), str(folder.path)))
        cluster = DevCluster(folder, lambda text: None)
        monkeypatch.setattr(cluster, "_stop", lambda names: pytest.fail("it was stopped"))

        with pytest.raises(Problem, match="is missing, the secret of cluster main"):
            cluster.restart("agent-1")

    def test_an_operator_is_not_started(self, folder: ClusterFolder) -> None:
        with pytest.raises(Problem, match="is missing, the secret of cluster main"):
            DevCluster(folder, lambda text: None).start(OPERATOR)


def test_a_restart_lets_no_other_command_come_between(
    folder: ClusterFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_started(folder.pid_file("agent-1"), identify(os.getpid(), str(folder.path)))
    cluster = DevCluster(folder, lambda text: None)
    done: list[str] = []

    def note(what: object) -> None:
        with pytest.raises(Problem, match="another `quorate dev` command is using it"):
            DevCluster(ClusterFolder(folder.path), print).start("agent-1")
        done.append(str(what))

    monkeypatch.setattr(cluster, "_stop", note)
    monkeypatch.setattr(cluster, "start", note)
    cluster.restart("agent-1")

    assert done == ["['agent-1']", "agent-1"]


def test_a_cluster_that_cannot_be_deleted_whole_is_a_cluster_still(
    folder: ClusterFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write(ENTRY)

    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path / "data"))

    monkeypatch.setattr(shutil, "rmtree", refuse)
    with pytest.raises(PermissionError):
        folder.delete()

    assert folder.read() == ENTRY


def test_deleting_a_cluster_leaves_what_is_not_its_own(folder: ClusterFolder) -> None:
    ClusterFolder(folder.path / "demo").write(ENTRY)
    folder.data("agent-1").mkdir(parents=True)

    folder.delete()

    assert sorted(path.name for path in folder.path.iterdir()) == ["demo"]


def _in_one_line(text: str) -> str:
    """The text without its spaces: where a console breaks it depends on the path's length."""
    return "".join(text.split())


def test_a_deleted_cluster_says_what_is_left(folder: ClusterFolder) -> None:
    (folder.path / "[mine]").mkdir()
    arguments = ["dev", "down", "--delete-data", "--folder", str(folder.path)]

    ended = CliRunner().invoke(app, arguments)

    assert ended.exit_code == 0
    said = _in_one_line(ended.output)
    assert _in_one_line(f"folder {folder.path}: the cluster is deleted; left are: [mine]") in said

    (folder.path / "[mine]").rmdir()
    folder.write(ENTRY)

    ended = CliRunner().invoke(app, arguments)

    assert _in_one_line(f"folder {folder.path}: deleted") in _in_one_line(ended.output)
    assert not folder.path.exists()


class TestCommandsThatCannotBe:
    """Each says what is there and what to do instead."""

    def cluster(self, folder: ClusterFolder) -> DevCluster:
        return DevCluster(folder, lambda text: None)

    def test_another_name_for_the_cluster_of_a_folder(self, folder: ClusterFolder) -> None:
        with pytest.raises(Problem, match="belongs to cluster main, not other"):
            self.cluster(folder).up(cluster="other")

    def test_another_number_of_agents(self, folder: ClusterFolder) -> None:
        with pytest.raises(
            Problem, match="has 1 agents, not 5: change the number with `quorate dev scale 5`"
        ):
            self.cluster(folder).up(agents=5)

    @pytest.mark.parametrize("count", [0, -1, 65])
    def test_a_number_of_agents_out_of_bounds(self, tmp_path: Path, count: int) -> None:
        with pytest.raises(Problem, match=f"--agents {count}: write a number from 1 to 64"):
            self.cluster(ClusterFolder(tmp_path / "new")).up(agents=count)

    def test_a_name_that_cannot_be(self, tmp_path: Path) -> None:
        with pytest.raises(Problem, match="--name 'Main!': use at most 50 lower-case"):
            self.cluster(ClusterFolder(tmp_path / "new")).up(cluster="Main!")

    def test_killing_what_is_not_running(self, folder: ClusterFolder) -> None:
        with pytest.raises(Problem, match="agent-1 is not running: start it with"):
            self.cluster(folder).kill("agent-1")

    def test_killing_what_is_not_known(self, folder: ClusterFolder) -> None:
        with pytest.raises(Problem, match="has no process 'agent-9': name one of operator,"):
            self.cluster(folder).kill("agent-9")

    def test_removing_while_the_operator_is_down(self, folder: ClusterFolder) -> None:
        with pytest.raises(Problem, match=r"the operator of folder .* is not running"):
            self.cluster(folder).remove("agent-1", 1, lambda first, left: None)

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ('{"format": 1, "cluster": ', r"cluster\.json is damaged"),
            ('{"format": 99}', "format is 99, this version needs 1"),
        ],
    )
    def test_down_stops_processes_whose_cluster_cannot_be_read(
        self, folder: ClusterFolder, text: str, said: str
    ) -> None:
        command = [sys.executable, "-c", "import time; time.sleep(60)"]
        names = (OPERATOR, "agent-1")
        for name in names:
            folder.log(name).parent.mkdir(parents=True, exist_ok=True)
            start_noted(command, folder.log(name), folder.pid_file(name), str(folder.path))
        (folder.path / "cluster.json").write_text(text)

        with pytest.raises(Problem, match=rf"{said}.*; stopped: operator, agent-1"):
            self.cluster(folder).down(delete_data=True)

        assert [folder.process(name) for name in names] == [None, None]
        with pytest.raises(Problem, match=rf"{said}.*--folder$"):
            self.cluster(folder).down()

    def test_asking_an_operator_whose_token_is_lost(self, folder: ClusterFolder) -> None:
        write_started(folder.pid_file(OPERATOR), identify(os.getpid(), str(folder.path)))
        folder.data(OPERATOR).mkdir()
        address = {"pid": os.getpid(), "api_port": 9}
        (folder.data(OPERATOR) / "operator.json").write_bytes(msgspec.json.encode(address))

        with pytest.raises(Problem) as refused:
            self.cluster(folder).api()

        assert str(refused.value).startswith(f"{folder.token_file} is missing or cannot be read, ")
        assert "`quorate dev restart operator` writes it" in str(refused.value)
        folder.token_file.write_text("token")
        assert self.cluster(folder).api().token == "token"

    def test_down_twice_is_down(self, folder: ClusterFolder) -> None:
        self.cluster(folder).down()
        self.cluster(folder).down()
