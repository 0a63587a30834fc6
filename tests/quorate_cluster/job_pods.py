"""The pods of the operator's Jobs on a real API server, without a kubelet.

A test starts the program of each pod as the Job has it, and tells how it ended.
"""

import json
import subprocess
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from quorate_cluster.kubelet_arguments import expanded
from quorate_cluster.processes import environment, python, secret_file
from quorate_cluster.road import QUIET, Json, Road
from quorate_cluster.waiting import wait_until
from quorate_operator.jobs.job import WORK

IMAGE = ("--validation-image", "quorate-spark:1")
NO_LONG_WAIT = ("--settle-seconds=2",)
"""For a validation beside an agent that stays away: by default it waits for it for 15 s."""


@contextmanager
def zone_with_keys(road: Road, *agent_options: str) -> Iterator[Road]:
    """Run an operator that makes Jobs, and a zone with keys, all copies of which agree."""
    road.use_example_role()
    road.start_agents(options=agent_options)
    road.start_operator(serves=("--namespace", road.namespace, *IMAGE))
    road.declare()
    road.wait_zone(**QUIET)
    road.write_keys("first")
    yield road
    assert "Traceback" not in road.all_logs()


def pods(road: Road, label: str, name: str) -> list[Json]:
    """Return the pods that have an object's name in this label."""
    return road.items("pods", f"{label}={name}")


def waiting_pod(road: Road, label: str, name: str) -> Json:
    """Return the pod that a kubelet would start now."""

    def found() -> Json | None:
        there = [each for each in pods(road, label, name) if each["status"]["phase"] == "Pending"]
        return there[0] if there else None

    pod = wait_until(found, f"a pod of {name}", 60, lambda: (road.items("jobs"), road.logs()))
    assert pod is not None
    return pod


def run_pod(
    road: Road,
    pod: Json,
    folder: Path,
    volumes: Mapping[str, Path] | None = None,
    options: Sequence[str] = (),
) -> tuple[int, str]:
    """Run the program as the pod has it; return its exit code and its termination message.

    Its log is `folder/log`.  Nothing that comes from a Secret may be in either.

    `volumes`: folders of this machine by where the pod mounts them.  `options`: more than the pod
    has.
    """
    (container,) = pod["spec"]["containers"]
    with start_pod(road, pod, folder, volumes, options) as process:
        try:
            code = process.wait(120)
        finally:
            process.kill()
    said, told_at_end = (folder / "log").read_text(), (folder / "termination-log").read_text()
    assert told_at_end, said
    for each in container.get("env", ()):
        if "valueFrom" in each and (secret := _value(road, each)):
            assert secret not in said + told_at_end, f"{each['name']} is told"
    return code, told_at_end


def start_pod(
    road: Road,
    pod: Json,
    folder: Path,
    volumes: Mapping[str, Path] | None = None,
    options: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """Start the program as the pod has it, as run_pod does.  The caller ends it."""
    (container,) = pod["spec"]["containers"]
    folder.mkdir(exist_ok=True)
    message = folder / "termination-log"
    message.touch()
    outside = {
        "/secret": secret_file(road.kept.path, "main"),
        WORK: folder / "work",
        container["terminationMessagePath"]: message,
        **(volumes or {}),
    }

    told = {each["name"]: _value(road, each) for each in container.get("env", ())}
    own = {name: text for name, text in told.items() if text is not None}
    arguments = expanded(container["args"], own)
    command = python("quorate_spark", *(as_here(each, outside) for each in arguments), *options)
    env = {**environment(), **own}
    with (folder / "log").open("wb") as printed:
        return subprocess.Popen(command, env=env, stdout=printed, stderr=subprocess.STDOUT)


def as_here(argument: str, folders: Mapping[str, Path]) -> str:
    """Return a pod's argument as a process of this machine has it.

    `folders`: those of this machine by where the pod mounts them.  A pod has its ports for itself;
    a process that took such a port at all addresses would take it from the agents of other tests.
    """
    option, _, value = argument.partition("=")
    if option == "--progress-port":
        return f"{option}=0"
    for inside, here in folders.items():
        if value == inside or value.startswith(f"{inside}/"):
            return f"{option}={here}{value.removeprefix(inside)}"
    return argument


def _value(road: Road, variable: Json) -> str | None:
    """Return the value of a variable as a kubelet finds it; None: it has none."""
    chosen = (variable.get("valueFrom") or {}).get("secretKeyRef")
    if chosen is None:
        return str(variable.get("value", ""))
    secret = road.get("secret", chosen["name"])
    assert secret is not None
    data = secret["data"].get(chosen["key"])
    assert data is not None or chosen.get("optional"), variable
    return None if data is None else b64decode(data).decode()


def tell_end(road: Road, pod: Json, code: int, message: str) -> None:
    """Tell the API server how the pod ended, as a kubelet would."""
    (container,) = pod["spec"]["containers"]
    ended = {"exitCode": code, "message": message, "finishedAt": "2026-01-01T00:00:00Z"}
    status = {
        "name": container["name"],
        "image": "quorate-spark:1",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"terminated": ended},
    }
    phase = "Failed" if code else "Succeeded"
    patch = json.dumps({"status": {"phase": phase, "containerStatuses": [status]}})
    name = pod["metadata"]["name"]
    road.kubectl("patch", "pod", name, "--subresource=status", "--type=merge", f"--patch={patch}")
