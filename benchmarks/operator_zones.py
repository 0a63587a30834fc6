"""The costs of the operator on Kubernetes with many zones: real API server, agents and operator.

    PYTHONPATH=core:operator:tests python benchmarks/operator_zones.py --zones 200
    PYTHONPATH=core:operator:tests python benchmarks/operator_zones.py --zones 1000 --partitions 16

Zones are declared before the operator starts.  Prints how long it takes until every zone is
Available, then what the operator takes while nothing happens, and which goals are met.
"""

import argparse
import json
import os
import re
import time
import urllib.request
from collections import Counter
from pathlib import Path

from quorate.wire.schema.resource import API_VERSION, GROUP
from quorate.wire.storage_cluster import external
from quorate_cluster.processes import HOST, Agent, environment, python, secret_manifest
from quorate_control_plane.binaries import find_binaries
from quorate_control_plane.components import Component
from quorate_control_plane.control_plane import ControlPlane
from quorate_control_plane.kept_folder import KeptFolder
from quorate_control_plane.ports import free_ports

CRDS = Path(__file__).parents[1] / "crds"
START_S_GOAL, CPU_GOAL, MEMORY_GOAL_MB = 60.0, 0.05, 200.0
ZONES_OF_GOALS = 200
START_S_MAX = 1800.0
REST_S_MAX = 2400.0
QUIET_LOOKS = 10
_web = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--zones", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--agents", type=int, default=5)
    parser.add_argument("--idle-seconds", type=float, default=60.0)
    parser.add_argument("--storage", default="InMemory", choices=("InMemory", "Persistent"))
    asked = parser.parse_args()
    binaries = find_binaries()
    if binaries is None:
        raise SystemExit("no control plane is built: make control-plane")
    with ControlPlane(binaries, crds=CRDS) as plane:
        kept = KeptFolder("quorate-zones-")
        try:
            _measure(asked, plane, kept)
        finally:
            kept.close()


def _measure(asked: argparse.Namespace, plane: ControlPlane, kept: KeptFolder) -> None:
    ports = free_ports()
    agents = []
    for number in range(asked.agents):
        base = 33_000 + number * (asked.zones + 100)
        agents.append(Agent(f"agent-{number}", kept.path, "main", next(ports), base))
        agents[-1].start(wait=False)
    for agent in agents:
        agent.wait_listening()
    plane.kubectl("apply", "--filename=-", stdin=_manifests(asked, agents, kept.path))
    health = next(ports)
    command = python("quorate_operator", "kubernetes", "--namespace", "default")
    command += ["--kubeconfig", str(plane.kubeconfig), "--health", f"{HOST}:{health}"]
    operator = Component("operator", kept.path, command, environment())
    before = _counted(plane)
    began_s = time.monotonic()
    operator.start()
    start_s = _wait_available(operator, health, asked.zones * asked.partitions, began_s)
    start_cpu_s = _cpu_s(operator.pid)
    agents_start_s = [_cpu_s(agent.pid) for agent in agents]
    rest_s = _wait_rest(operator, health, began_s)
    started = _counted(plane) - before
    cpu_s, requests, at_s = _cpu_s(operator.pid), _requests(health), time.monotonic()
    agents_cpu_s = [_cpu_s(agent.pid) for agent in agents]
    time.sleep(asked.idle_seconds)
    passed_s = time.monotonic() - at_s
    idle = (_cpu_s(operator.pid) - cpu_s) / passed_s
    agents_idle = [
        (_cpu_s(agent.pid) - before_s) / passed_s
        for agent, before_s in zip(agents, agents_cpu_s, strict=True)
    ]
    after = _requests(health)
    changed = {what: after[what] - requests.get(what, 0.0) for what in after}
    per_minute = {what: count * 60 / passed_s for what, count in changed.items() if count}
    memory_mb = _memory_mb(operator.pid)
    log = operator.log_tail(100_000)
    lost = "lost:" in log or not operator.is_alive()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    print(f"{asked.zones} zones of {asked.partitions} partitions on {asked.agents} agents")
    _say("Available within (s)", start_s, START_S_GOAL, asked)
    _say("idle CPU (of a core)", idle, CPU_GOAL, asked)
    _say("memory (MB)", memory_mb, MEMORY_GOAL_MB, asked)
    print(f"CPU until then: {start_cpu_s:.1f} s; the lease was {'LOST' if lost else 'kept'}")
    print(f"CPU of the agents until then: {_each(agents_start_s, '.1f')} s")
    print(f"idle CPU of the agents (of a core): {_each(agents_idle, '.3f')}")
    print(f"memory of the agents (MB): {_each([_memory_mb(a.pid) for a in agents], '.0f')}")
    print(f"at rest after {rest_s:.0f} s; agents taken for lost: {log.count('NodeLeft')}")
    print(f"requests at the start: {sum(requests.values()):.0f} {requests}")
    for what, count in sorted(started.items(), key=lambda each: -each[1]):
        print(f"  {count / asked.zones:8.2f} per zone: {what}")
    print(f"watches: {_watches(plane)}")
    print(f"requests per minute at rest: {sum(per_minute.values()):.0f} {per_minute}")
    print(f"API server's opinion: {_available(plane)} of {asked.zones} zones have Available=True")


def _manifests(asked: argparse.Namespace, agents: list[Agent], folder: Path) -> str:
    cluster = external([agent.peer_address for agent in agents])
    items = [secret_manifest(folder, "main"), _manifest("StorageCluster", "main", cluster)]
    for number in range(asked.zones):
        spec: dict[str, object] = {
            "clusterRef": {"name": "main"},
            "partitions": asked.partitions,
            "replicas": 3,
            "storage": asked.storage,
        }
        items.append(_manifest("Zone", f"zone-{number:04}", spec))
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _manifest(kind: str, name: str, spec: dict[str, object]) -> dict[str, object]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _wait_available(operator: Component, health: int, partitions: int, began_s: float) -> float:
    while True:
        passed_s = time.monotonic() - began_s
        found = _metric(health, 'quorate_operator_partitions{.*state="available"')
        if sum(found) >= partitions:
            return passed_s
        if not operator.is_alive() or passed_s > START_S_MAX:
            said = [x for x in operator.log_tail(100_000).splitlines() if "elector" in x]
            print("\n".join(said[-30:]))
            raise SystemExit(
                f"{sum(found):.0f} of {partitions} partitions after {passed_s:.0f} s, load "
                f"{os.getloadavg()[0]:.1f}:\n{operator.log_tail()}"
            )
        time.sleep(5)


def _wait_rest(operator: Component, health: int, began_s: float) -> float:
    """Until nothing has been moved for a while: agents that came late are given their share."""
    quiet = 0
    while quiet < QUIET_LOOKS and operator.is_alive():
        moving = _metric(health, "quorate_operator_migrations{")
        quiet = quiet + 1 if moving and not sum(moving) else 0
        if time.monotonic() - began_s > REST_S_MAX:
            raise SystemExit(f"{sum(moving):.0f} migrations:\n{operator.log_tail()}")
        time.sleep(1)
    return time.monotonic() - began_s


def _available(plane: ControlPlane) -> int:
    path = '{range .items[*]}{.status.conditions[?(@.type=="Available")].status}{"\\n"}{end}'
    return plane.kubectl("get", "zones", f"--output=jsonpath={path}").stdout.split().count("True")


def _counted(plane: ControlPlane) -> Counter[str]:
    """The API server's count of all clients' requests about the project's objects, Events, Leases
    and Secrets, by verb and kind."""
    found: Counter[str] = Counter()
    for labels, count in _api_server(plane, "apiserver_request_total"):
        resource = labels["resource"] + ("/status" if labels["subresource"] == "status" else "")
        if labels["group"] == GROUP or resource in ("events", "leases", "secrets"):
            found[f"{labels['verb']} {resource} {labels['code']}"] += int(count)
    return found


def _watches(plane: ControlPlane) -> dict[str, float]:
    return {
        f"{labels['resource']} of {labels['scope']}": count
        for labels, count in _api_server(plane, "apiserver_longrunning_requests")
        if labels["group"] == GROUP and labels["verb"] == "WATCH" and count
    }


def _api_server(plane: ControlPlane, name: str) -> list[tuple[dict[str, str], float]]:
    lines = plane.kubectl("get", "--raw", "/metrics").stdout.splitlines()
    found = [line.rpartition(" ") for line in lines if line.startswith(f"{name}{{")]
    return [(dict(re.findall(r'(\w+)="([^"]*)"', s)), float(value)) for s, _, value in found]


def _metric(health: int, pattern: str) -> list[float]:
    return [value for _, value in _metrics(health, pattern)]


def _metrics(health: int, pattern: str) -> list[tuple[str, float]]:
    try:
        with _web.open(f"http://{HOST}:{health}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return []
    found = [line.rpartition(" ") for line in lines if re.match(pattern, line)]
    return [(series, float(value)) for series, _, value in found]


def _requests(health: int) -> dict[str, float]:
    series = _metrics(health, "quorate_operator_api_requests_total{")
    return {re.sub(r'.*code="(\w+)",method="(\w+)".*', r"\2 \1", name): n for name, n in series}


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _each(values: list[float], form: str) -> str:
    return ", ".join(f"{value:{form}}" for value in values)


def _say(what: str, found: float, goal: float, asked: argparse.Namespace) -> None:
    said = f"goal {goal:g}: {'met' if found <= goal else 'MISSED'}"
    if asked.zones > ZONES_OF_GOALS:
        said = f"the goal of {ZONES_OF_GOALS} zones is {goal:g}"
    print(f"{what}: {found:.3g}, {said}")


if __name__ == "__main__":
    main()
