"""A copied folder is not started beside its original, and a moved one is."""

import asyncio
import json
import os
import shutil
from pathlib import Path

import msgspec
import pytest

from quorate_cli.dev import dev_cluster
from quorate_cli.dev.copied_folder import check_no_copy_runs
from quorate_cli.dev.dev_cluster import DevCluster
from quorate_cli.processes.cluster_folder import (
    FORMAT_VERSION,
    OPERATOR,
    AgentAddress,
    AgentEntry,
    ClusterEntry,
    ClusterFolder,
)
from quorate_cli.processes.process import identify, write_started
from quorate_cli.terminal.problem import Problem
from quorate_link.secret import draw_secret, write_private
from quorate_loopback.runner_world import ScriptedAgent
from quorate_loopback.sides import SECRET

ENTRY = ClusterEntry(FORMAT_VERSION, "main", (AgentEntry("agent-1"),), 2, 7000, False)


@pytest.fixture
def original(tmp_path: Path) -> ClusterFolder:
    """A cluster whose operator is this process."""
    folder = ClusterFolder(tmp_path / ".quorate")
    folder.write(msgspec.structs.replace(ENTRY, path=str(folder.path)))
    folder.secrets.mkdir()
    write_private(folder.secret_file("main"), json.dumps(SECRET.texts()))
    return folder


def runs(folder: ClusterFolder) -> None:
    write_started(folder.pid_file(OPERATOR), identify(os.getpid(), str(folder.path)))


def copied(original: ClusterFolder) -> ClusterFolder:
    return ClusterFolder(Path(shutil.copytree(original.path, original.path.with_name("copy"))))


def check(folder: ClusterFolder) -> None:
    check_no_copy_runs(folder, folder.read())


def start(folder: ClusterFolder, command: str) -> None:
    cluster = DevCluster(folder, print)
    if command == "up":
        cluster.up()
    elif command == "start":
        cluster.start(OPERATOR)
    else:
        cluster.start_agent("agent-1")


@pytest.mark.parametrize("command", ["up", "start", "start_agent"])
def test_a_copy_of_a_stopped_folder_is_not_started_beside_its_original(
    original: ClusterFolder, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    copy = copied(original)
    before = (copy.path / "cluster.json").read_bytes()
    runs(original)
    monkeypatch.setattr(dev_cluster, "start_noted", lambda *_of: pytest.fail("it was started"))

    with pytest.raises(Problem) as refused:
        start(copy, command)

    assert f"{copy.path} is a copy of {original.path}, whose processes run (operator: pr" in str(
        refused.value
    )
    assert f"`quorate dev down --folder {original.path}`" in str(refused.value)
    assert (copy.path / "cluster.json").read_bytes() == before


def test_a_copy_of_a_running_folder_is_known_by_its_pid_files(original: ClusterFolder) -> None:
    """An earlier version did not note the folder's path, and the original may be deleted."""
    original.write(ENTRY)
    runs(original)
    copy = copied(original)
    with pytest.raises(Problem, match=r"is a copy of .*/\.quorate, whose processes run"):
        check(copy)

    shutil.rmtree(original.path)
    with pytest.raises(Problem, match=r"is a copy of .*/\.quorate, whose processes run"):
        check(copy)


def test_the_original_is_not_stopped_by_a_copy_that_does_not_run(original: ClusterFolder) -> None:
    copied(original)
    runs(original)

    check(original)


def test_a_moved_folder_goes_on(original: ClusterFolder) -> None:
    check(ClusterFolder(original.path.rename(original.path.with_name("moved"))))


def test_a_moved_folder_goes_on_although_another_cluster_is_in_its_place(
    original: ClusterFolder,
) -> None:
    copy = copied(original)
    write_private(original.secret_file("main"), json.dumps(draw_secret().texts()))
    runs(original)

    check(copy)


def test_a_folder_that_is_reached_by_a_link_is_no_copy(original: ClusterFolder) -> None:
    runs(original)
    link = original.path.with_name("link")
    link.symlink_to(original.path)

    check(ClusterFolder(link))


async def test_an_agent_of_a_copy_is_known_by_its_proof_of_the_secret(
    original: ClusterFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the original, nothing tells where its copies are."""
    agent = ScriptedAgent("agent-1", lambda table: None)
    await agent.listen()
    port = int(agent.address.rpartition(":")[2])
    original.write(msgspec.structs.replace(ENTRY, agents=(AgentEntry("agent-1", port),)))
    try:
        with pytest.raises(Problem, match=f"listens on port {port} of agent-1"):
            await asyncio.to_thread(check, original)
        with monkeypatch.context() as patched:  # agent-2 of this folder got that port later
            address = AgentAddress(1, "agent-2", "127.0.0.1", port, 1)
            patched.setattr(ClusterFolder, "agent_address", lambda *_of: address)
            await asyncio.to_thread(check, original)
        write_private(original.secret_file("main"), json.dumps(draw_secret().texts()))
        await asyncio.to_thread(check, original)  # another program, or another cluster
    finally:
        await agent.close()


def test_a_former_place_that_cannot_be_read_tells_nothing(
    original: ClusterFolder, tmp_path: Path
) -> None:
    """As another user's folder, or a file that has its name now."""
    (tmp_path / "file").write_bytes(b"")
    former = str(tmp_path / "file" / ".quorate")
    original.write(msgspec.structs.replace(ENTRY, path=former))

    check(original)


def test_up_notes_where_the_folder_is(
    original: ClusterFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_of: object) -> None:
        raise Problem("not started here")

    monkeypatch.setattr(dev_cluster, "start_noted", refuse)
    moved = ClusterFolder(original.path.rename(original.path.with_name("moved")))
    with pytest.raises(Problem, match="not started here"):
        DevCluster(moved, print).up()

    assert moved.read().path == str(moved.path)
