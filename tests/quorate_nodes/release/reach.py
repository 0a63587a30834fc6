"""The ports of each other that pods reach, asked from inside of them."""

import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

from quorate_network_policies.evaluator import End, Policies
from quorate_nodes.cluster import Json
from quorate_nodes.release.installed import (
    OPERATORS,
    REGISTRY,
    VERSION,
    ZONE,
    Installed,
    is_ready,
)
from quorate_operator.owned.agent_names import PEER_PORT
from quorate_operator.owned.agent_pod import ADMIN_PORT

ELSEWHERE = "elsewhere"
HEALTH_PORT = 8080
API_SERVER = "the API server"
API_PORT = 443
_API_NAME = "kubernetes.default.svc"
_TRY_S = 5
_PROGRAM = f"""
import json, socket, sys, threading
reached = []
def reach(place):
    try:
        socket.create_connection(tuple(place), {_TRY_S}).close()
    except OSError:
        return
    reached.append(place)
threads = [threading.Thread(target=reach, args=[place]) for place in json.loads(sys.argv[1])]
for each in threads:
    each.start()
for each in threads:
    each.join()
print(json.dumps(reached))
"""


class Way(NamedTuple):
    """From one kind of pod to another kind's port: an agent, an operator, or a visitor's name."""

    source: str
    to: str
    port: int


class Visitors:
    """Pods of the test's beside those of the release, by namespace and name, with their labels."""

    def __init__(
        self, installed: Installed, pods: Mapping[tuple[str, str], Mapping[str, str]]
    ) -> None:
        self._installed = installed
        self._pods = pods
        endpoint = installed.zone(ZONE)["status"]["endpoints"][0]
        self.client_port = int(endpoint.rpartition(":")[2])

    @contextmanager
    def run(self) -> Iterator[None]:
        """They are ready, and gone in the end."""
        kubectl = self._installed.nodes.kubectl
        kubectl("create", "namespace", ELSEWHERE)
        try:
            pods = [_pod(*place, labels) for place, labels in self._pods.items()]
            declared = {"apiVersion": "v1", "kind": "List", "items": pods}
            kubectl("apply", "--filename=-", stdin=json.dumps(declared))
            self._installed.wait(
                lambda: all(is_ready(pod) for pod in self._visiting()), "ready visitors"
            )
            yield
        finally:
            for namespace, name in self._pods:
                kubectl(f"--namespace={namespace}", "delete", "pod", name, "--ignore-not-found")
            kubectl("delete", "namespace", ELSEWHERE)

    def all_ways(self) -> set[Way]:
        """Those that `open_ways` tries."""
        sources = {"agent", "operator", *(name for _, name in self._pods)}
        targets = {(kind, port) for kind, _, port in self._places().values()}
        return {Way(source, *target) for source in sources for target in targets}

    def open_ways(self) -> set[Way]:
        """The ways on which one pod reaches every other of that kind.

        What reaches only some of them is there as a way to `KIND in part`."""
        sources, places = self._sources(), self._places()
        with ThreadPoolExecutor(len(sources)) as pool:
            found = pool.map(lambda pod: self._reached(pod, places), sources.values())
            reached = dict(zip(sources, found, strict=True))
        tried = {
            kind: {place for place, (_, name, _) in places.items() if name != _name(pod)}
            for kind, pod in sources.items()
        }
        ways: set[Way] = set()
        for way in self.all_ways():
            there = {at for at in tried[way.source] if places[at][::2] == (way.to, way.port)}
            if made := there & reached[way.source]:
                ways.add(way if made == there else way._replace(to=f"{way.to} in part"))
        return ways

    def allowed_ways(self, policies: Policies) -> set[Way]:
        """Those of all ways that the evaluator of tests takes for allowed."""
        agents, operators = self._installed.pods(), self._installed.pods(OPERATORS)
        plane = self._installed.nodes.plane
        targets = {"agent": _end(agents[0]), "operator": _end(operators[0])}
        targets[API_SERVER] = End(API_SERVER, self._installed.nodes.network.machine)
        real_port = int(plane.server.rpartition(":")[2])
        sources = {kind: _end(pod) for kind, pod in self._sources().items()}
        return {
            way
            for way in self.all_ways()
            if policies.allow(
                sources[way.source],
                targets[way.to],
                real_port if way.to == API_SERVER else way.port,
            )
        }

    def _places(self) -> dict[tuple[str, int], tuple[str, str, int]]:
        """Host and port where something listens -> kind, name of the pod, port."""
        ports = {"agent": (PEER_PORT, ADMIN_PORT, self.client_port), "operator": (HEALTH_PORT,)}
        pods = {"agent": self._installed.pods(), "operator": self._installed.pods(OPERATORS)}
        places = {
            (str(pod["status"].get("podIP", "")), port): (kind, _name(pod), port)
            for kind, its in ports.items()
            for pod in pods[kind]
            for port in its
        }
        # By name and Service, as pods do it.
        return {**places, (_API_NAME, API_PORT): (API_SERVER, "", API_PORT)}

    def _sources(self) -> dict[str, Json]:
        release = {
            "agent": self._installed.pods()[-1],
            "operator": self._installed.pods(OPERATORS)[0],
        }
        return {**release, **{_name(pod): pod for pod in self._visiting()}}

    def _visiting(self) -> list[Json]:
        get = self._installed.nodes.get
        return [get(f"--namespace={namespace}", "pod", name) for namespace, name in self._pods]

    def _reached(self, pod: Json, places: Iterable[tuple[str, int]]) -> set[tuple[str, int]]:
        said = self._installed.nodes.kubectl(
            f"--namespace={pod['metadata']['namespace']}",
            *("exec", _name(pod), "--", "python3", "-c", _PROGRAM, json.dumps([*places])),
        )
        return {(host, port) for host, port in json.loads(said)}


def _name(pod: Json) -> str:
    return str(pod["metadata"]["name"])


def _end(pod: Json) -> End:
    metadata = pod["metadata"]
    return End(_name(pod), pod["status"]["podIP"], metadata["namespace"], metadata["labels"])


def _pod(namespace: str, name: str, labels: Mapping[str, str]) -> Json:
    """One that does nothing, of the level restricted; it has Python."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "python",
                    "image": f"{REGISTRY}/quorate-agent:{VERSION}",
                    "command": ["python3", "-c", "import signal; signal.pause()"],
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }
