"""`kubectl quorate cli`: runs the built-in client inside an agent's pod, by `kubectl exec`.

kubectl is installed, since this is its plugin, and handles terminals, input and exit codes.
"""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from quorate.facts.addresses import join_address
from quorate.facts.topology import NodeRecord
from quorate.wire.zone import Zone
from quorate_cli.kubectl.kube_api import KubeApi
from quorate_cli.kubectl.objects import LABEL_AGENT
from quorate_cli.terminal.problem import Problem

CONTAINER = "agent"
CLIENT = ("python3", "-m", "quorate_cli.plain_client")
ASIDE = ("python3", "-m", "quorate_cli.aside_client")
SECRET = "/secret"
"""Where an agent's pod has the secret of its cluster."""


def choose_pod(
    zone: Zone, pods: Sequence[Mapping[str, Any]], nodes: Mapping[str, NodeRecord]
) -> tuple[str, str]:
    """Return the name of a running pod whose agent takes clients of the zone, and its host:port.

    `pods`: of the cluster's managed agents; `nodes`: registrations by agent.  Raises Problem if
    there is none.
    """
    name = zone.metadata.name
    if not pods:
        endpoints = ", ".join(zone.status.endpoints) or "none yet"
        raise Problem(
            f"zone {name}: there are no agent pods; if you start the agents yourself, use a Redis"
            f" Cluster client, such as redis-cli -c; endpoints: {endpoints}"
        )
    for pod in sorted(pods, key=lambda each: (not _is_ready(each), each["metadata"]["name"])):
        agent = pod["metadata"].get("labels", {}).get(LABEL_AGENT, "")
        record, port = nodes.get(agent), zone.status.ports.get(agent)
        if record is None or port is None or record.left_since_ms is not None:
            continue
        if pod.get("status", {}).get("phase") == "Running":
            return str(pod["metadata"]["name"]), join_address(record.client_host, port)
    said = next((each.message for each in zone.status.conditions if each.status != "True"), "")
    raise Problem(
        f"zone {name}: no agent's pod accepts clients now: {said or 'none is running'};"
        " `kubectl quorate status` shows which agents are online"
    )


def exec_command(
    api: KubeApi, namespace: str, pod: str, address: str, words: Sequence[str], is_terminal: bool
) -> list[str]:
    """Return the command line; it asks for a terminal only if a person types commands."""
    terminal = ["--stdin", "--tty"] if is_terminal and not words else ["--stdin"]
    if words:
        terminal = []
    return _exec(api, namespace, pod, terminal, [*CLIENT, address, *words])


def aside_command(
    api: KubeApi,
    namespace: str,
    pod: str,
    zone: Zone,
    nodes: Mapping[str, NodeRecord],
    words: Sequence[str],
) -> list[str]:
    """Return the command line that lists or shows what agents have set aside.

    `nodes`: registrations by agent, which are asked.
    """
    at = [f"--at={name}={join_address(each.host, each.peer_port)}" for name, each in nodes.items()]
    about = [f"--cluster={zone.spec.cluster_ref.name}", f"--secret-file={SECRET}", *at]
    return _exec(api, namespace, pod, [], [*ASIDE, *words, *about])


def _exec(
    api: KubeApi, namespace: str, pod: str, terminal: Sequence[str], words: Sequence[str]
) -> list[str]:
    config = [f"--kubeconfig={api.kubeconfig}"] if api.kubeconfig else []
    return [
        "kubectl", "exec", *config, f"--context={api.context}", f"--namespace={namespace}",
        *terminal, f"--container={CONTAINER}", pod, "--", *words,
    ]  # fmt: skip


def run(command: list[str]) -> NoReturn:
    """Become kubectl, with this process's terminal, input and exit code."""
    program = shutil.which(command[0])
    if program is None:
        raise Problem("kubectl is not on PATH, but `cli` runs `kubectl exec`: install kubectl")
    sys.stdout.flush()
    os.execv(program, command)


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
