"""`kubectl quorate` on pods: commands by exec, figures by the API server's proxy, logs of
containers, a drain between real nodes."""

import json
import os
import pty
import subprocess
import tarfile
from pathlib import Path

import pytest

from quorate_cluster.outage import key_in_each
from quorate_cluster.waiting import wait_until
from quorate_nodes.release.installed import CLUSTER, OPERATORS, ZONE, Installed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

HERE = "--namespace=storage"
CLI = f"kubectl quorate cli {HERE} {ZONE}"


def test_commands_by_exec_reach_every_agent(first_day: Installed) -> None:
    assert f"cluster {CLUSTER}: 3 of 3 agents online" in first_day.type(
        f"kubectl quorate status {HERE}"
    )
    assert first_day.type(f"{CLI} SET 'by exec' 'grüße  \"you\"'").split() == ["OK"]
    assert first_day.client(ZONE).get("by exec") == 'grüße  "you"'.encode()
    assert first_day.type(f"{CLI} get 'by exec'").strip() == 'grüße  "you"'
    wrong = first_day.type(f"{CLI} LPUSH 'by exec' x", code=1)
    assert "WRONGTYPE" in wrong

    # One session is sent from agent to agent.
    keys = key_in_each(first_day.zone(ZONE)["spec"]["partitions"])
    typed = "".join(f"SET exec-{key} {key}\nGET exec-{key}\n" for key in keys)
    said = first_day.type(CLI, stdin=typed).split()
    assert said == [word for key in keys for word in ("OK", key)]


def test_figures_of_every_pod_come_through_the_api_server(first_day: Installed) -> None:
    load = json.loads(first_day.type(f"kubectl quorate top {HERE} --json --interval 0.5"))

    assert [each["name"] for each in load["agents"]] == ["agent-1", "agent-2", "agent-3"]
    assert all(each["led"] and not each["problem"] for each in load["agents"]), load
    assert all(each["memory_bytes"] > 1e6 for each in load["agents"]), load
    (zone,) = (each for each in load["zones"] if each["name"] == ZONE)
    partitions = first_day.zone(ZONE)["spec"]["partitions"]
    assert (load["operator_problem"], zone["available"]) == ("", partitions)


def test_a_person_at_a_terminal_types_commands(first_day: Installed) -> None:
    ours, theirs = pty.openpty()
    command = ["kubectl", "quorate", "cli", HERE, ZONE]
    environment = {**first_day.environment, "TERM": "dumb"}
    path = Path(first_day.environment["PATH"].partition(":")[0])
    seen = b""
    with subprocess.Popen(
        [path / command[0], *command[1:]],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        os.set_blocking(ours, False)

        def has(text: bytes) -> bool:
            nonlocal seen
            try:
                seen += os.read(ours, 65536)
            except (BlockingIOError, OSError):
                return text in seen
            return text in seen

        try:
            wait_until(lambda: has(b"> "), "a prompt", 60, lambda: seen)
            os.write(ours, b"echo typed-$\n")
            wait_until(lambda: has(b"\r\ntyped-$"), "an answer", 60, lambda: seen)
            os.write(ours, b"\x04")
            wait_until(lambda: process.poll() is not None, "an end", 60, lambda: (has(b""), seen))
        finally:
            process.kill()
            os.close(ours)
    assert process.returncode == 0, seen


def test_the_bundle_has_the_logs_of_every_pod(first_day: Installed, tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    first_day.type(f"kubectl quorate report {HERE} --output {file}")

    with tarfile.open(file) as archive:
        files = {
            member.name.removeprefix("bundle/"): opened.read()
            for member in archive
            if (opened := archive.extractfile(member)) is not None
        }
    pods = [*first_day.pods(), *first_day.pods(OPERATORS)]
    assert len(pods) == 5
    for pod in pods:
        name, (container,) = pod["metadata"]["name"], pod["spec"]["containers"]
        assert len(files[f"logs/{name}/{container['name']}.log"]) > 200, name
        assert f"objects/pods/{name}.yaml" in files
    assert files["missing.txt"] == b""
    secret = first_day.get("secret", f"{CLUSTER}-quorate")["data"]["key"].encode()
    assert not any(secret in content for content in files.values())


def test_an_agent_is_drained_and_taken_back(first_day: Installed) -> None:
    """Three copies on three agents leave no room: the drain waits until fewer are asked for."""
    drain = f"kubectl quorate drain agent-3 {HERE}"

    refused = first_day.type(drain, code=1)

    assert f"zone {ZONE} needs 3 agents and 2 would remain; add an agent first" in refused
    _ask_copies(first_day, 2)
    done = first_day.type(drain)
    assert f"storagecluster/{CLUSTER} unchanged: spec.drainAgents: agent-3" in done
    assert "agent agent-3 has no copies" in done
    state = json.loads(first_day.type(f"kubectl quorate status {HERE} --json"))
    owners = {each["name"]: each["owners"] for each in state["clusters"][0]["nodes"]}
    assert owners == {"agent-1": 64, "agent-2": 64, "agent-3": 0}

    first_day.type(f"kubectl quorate undrain agent-3 {HERE}")

    _ask_copies(first_day, 3)
    first_day.wait_whole()
    assert first_day.get("storagecluster", CLUSTER)["spec"].get("drainAgents", []) == []


def _ask_copies(installed: Installed, count: int) -> None:
    patch = json.dumps({"spec": {"replicas": count}})
    installed.kubectl("patch", "zone", ZONE, "--type=merge", f"--patch={patch}")

    def is_seen() -> bool:
        zone = installed.zone(ZONE)
        return bool(zone["status"].get("observedGeneration") == zone["metadata"]["generation"])

    installed.wait(is_seen, f"{count} copies as the operator's aim")
