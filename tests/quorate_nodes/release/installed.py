"""Quorate on the nodes of a test, as `docs/kubernetes.md` has it: by its own commands."""

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from redis.cluster import RedisCluster

from quorate.wire.schema.resource import API_VERSION
from quorate_cluster.outage import Pulses
from quorate_cluster.waiting import wait_until
from quorate_images.storage import Image
from quorate_nodes.cluster import Json, NodeCluster
from quorate_nodes.release.any_user import give_pods_any_user

ROOT = Path(__file__).parents[3]
MANUAL = ROOT / "docs" / "kubernetes.md"
NAMESPACE = "storage"
ZONE = "library"
CLUSTER = "main"
OPERATORS = "--selector=app.kubernetes.io/component=operator"
AGENTS = "--selector=app.kubernetes.io/component=agent"
VERSION = "0.1.0.dev0"
REGISTRY = "localhost"
_PORT = 6379
_REACHED_NO_POD = "RedisClusterException: Redis Cluster cannot be connected"
_WEB = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # pods are on this machine
FIRST_SET_S_MAX = 90.0
"""From `helm install` to the first SET with images present: what docs/kubernetes.md promises."""
_COMMANDS_S_MAX = 240.0
_WHOLE = {"Available": "True", "FullyReplicated": "True"}


class FirstSet(NamedTuple):
    """Seconds from `helm install` until operators ran, and until the first SET was answered, and
    how often containers of agents had been restarted by then."""

    operators_s: float
    whole_s: float
    restarts: int


class Installed:
    """The namespace of the manual on a NodeCluster, whose pods run as any user.  Its clients are on
    this machine, and start at the Service of a zone, as they would in a pod."""

    def __init__(self, nodes: NodeCluster, helm: Path, images: dict[str, Image]) -> None:
        self.nodes = nodes
        give_pods_any_user(nodes, NAMESPACE)
        self._folder = nodes.work_folder("manual")
        self._clients: list[RedisCluster] = []
        programs = {
            "helm": helm,
            "kubectl": nodes.programs["kubectl"],
            "kubectl-quorate": Path(sys.executable).with_name("kubectl-quorate"),
        }
        for name, program in programs.items():
            (self._folder / name).symlink_to(program)
        for target, image in images.items():
            nodes.load_image(image.name, f"{REGISTRY}/quorate-{target}:{VERSION}")
        self._without_rights: list[tuple[float, float]] = []
        self._rights_gone = 0.0
        self.make_namespace()

    def make_namespace(self) -> None:
        """The namespace, which enforces the level restricted."""
        self.nodes.kubectl("create", "namespace", NAMESPACE)
        self.enforce_restricted()

    def enforce_restricted(self) -> None:
        """Have the namespace refuse pods that are not of the level restricted."""
        restricted = "pod-security.kubernetes.io/enforce=restricted"
        self.nodes.kubectl("label", "namespace", NAMESPACE, restricted)

    def delete_namespace(self) -> None:
        """Delete it with the operator, its rights and all."""
        self._rights_gone = time.time()
        self.nodes.kubectl("delete", "namespace", NAMESPACE, "--timeout=120s")

    # -- the manual --------------------------------------------------------------------------------

    def follow_to_first_set(self) -> FirstSet:
        """Follow the manual until a client's first SET; all of it in `FIRST_SET_S_MAX`."""
        began = time.monotonic()

        def left_s() -> float:
            return max(FIRST_SET_S_MAX - (time.monotonic() - began), 0.1)

        self.follow_manual("Install", left_s())
        operators_s = time.monotonic() - began
        self.follow_manual("A cluster and a zone", left_s())
        client = self.client(ZONE)
        self.wait(lambda: client.set("greeting", "hello"), "first SET", left_s())
        whole_s = time.monotonic() - began
        shown = [each for pod in self.pods() for each in pod["status"]["containerStatuses"]]
        return FirstSet(operators_s, whole_s, sum(each["restartCount"] for each in shown))

    def follow_manual(self, heading: str, timeout_s: float = _COMMANDS_S_MAX) -> str:
        """Run the commands below this heading, but for those of an image registry; what they said.

        The images were loaded into the nodes before, under the names of the manual."""
        commands = commands_of(MANUAL.read_text(), heading).replace("REGISTRY", REGISTRY)
        if heading == "Uninstall":
            self._rights_gone = time.time()
        if heading == "Install":
            self._without_rights.append((self._rights_gone, time.time()))
        return self.type(commands, timeout_s=timeout_s)

    def type(
        self, commands: str, stdin: str = "", code: int = 0, timeout_s: float = _COMMANDS_S_MAX
    ) -> str:
        """Run commands of a shell that has helm, kubectl and its plugin; what they said.

        They end with this exit code, or all of them are killed after `timeout_s`."""
        done = subprocess.run(
            ["timeout", "--signal=KILL", f"{timeout_s:.1f}", "bash", "-e", "-u", "-c", commands],
            cwd=ROOT,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
        )
        said = f"{done.stdout}\n{done.stderr}"
        assert done.returncode == code, f"{commands}\n{said}\n{done.returncode}\n{self.facts()}"
        return said

    @property
    def environment(self) -> dict[str, str]:
        """That of the shell."""
        return {
            "PATH": f"{self._folder}:/usr/bin:/bin",
            "KUBECONFIG": str(self.nodes.plane.kubeconfig),
            "HOME": str(self._folder),
            "COLUMNS": "160",
        }

    # -- asking ------------------------------------------------------------------------------------

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """kubectl in the namespace."""
        return self.nodes.kubectl(f"--namespace={NAMESPACE}", *arguments, stdin=stdin, check=check)

    def get(self, *what: str) -> Json:
        """`kubectl get WHAT` in the namespace, as JSON."""
        return self.nodes.get(f"--namespace={NAMESPACE}", *what)

    def pods(self, selector: str = AGENTS) -> list[Json]:
        """The pods of the agents, or of whom the selector names."""
        return sorted(self.get("pods", selector)["items"], key=lambda pod: pod["metadata"]["name"])

    def zone(self, name: str) -> Json:
        """The Zone of this name."""
        return self.get("zone", name)

    def zone_is(self, name: str, wanted: str) -> bool:
        """Whether this condition of the zone is True."""
        return self.condition("zone", name, wanted).get("status") == "True"

    @contextmanager
    def zone_made(self, name: str, spec: Json) -> Iterator[None]:
        """A zone that is served and has all its copies; in the end it is gone."""
        whole = {"apiVersion": API_VERSION, "kind": "Zone", "metadata": {"name": name}}
        try:
            self.kubectl("apply", "--filename=-", stdin=json.dumps({**whole, "spec": spec}))
            for wanted in ("FullyReplicated", "Available"):
                self.wait(partial(self.zone_is, name, wanted), f"a zone that is {wanted}")
            yield
        finally:
            self.kubectl("delete", "zone", name, "--wait=false")
            self.wait(
                lambda: name not in self.kubectl("get", "zones,services", "--output=name"),
                "an end of the zone",
                120,
            )

    def condition(self, kind: str, name: str, wanted: str) -> Json:
        """The condition of this type; empty where there is none."""
        return condition_of(self.get(kind, name), wanted)

    def client(self, zone: str, **options: Any) -> RedisCluster:
        """A stock client that begins at the zone's Service, and does so again when it knows nobody.

        It is closed with this, at the latest."""
        service = ("service", f"{zone}-clients")
        # It is there as soon as the zone is Available; nodes know it a second later.
        address = self.get(*service)["spec"]["clusterIP"]
        self.wait(lambda: _answers(address), f"an answer at {address}")
        settings: dict[str, Any] = {"socket_timeout": 8, "socket_connect_timeout": 2}
        # Otherwise it forgets the Service for the pods that it was told of.
        settings |= {"dynamic_startup_nodes": False, **options}
        client = RedisCluster(host=address, port=_PORT, **settings)
        self._clients.append(client)
        return client

    def unexpected(self, pulses: Pulses) -> list[str]:
        """What clients were told that docs/clients.md does not say of a loss.

        A client that knows only the Service says in words of its own when it reaches no pod there.
        """
        return [each for each in pulses.undocumented() if not each.startswith(_REACHED_NO_POD)]

    def primaries(self) -> list[int]:
        """How many partitions each agent is primary of, by the StorageCluster's status."""
        return [
            each["primaries"] for each in self.get("storagecluster", CLUSTER)["status"]["members"]
        ]

    def full_copies(self) -> Counter[str]:
        """How many copies the process of each pod has fetched whole, by the pod's uid.

        Subtract those of before: what is left was fetched since."""
        found: Counter[str] = Counter()
        for pod in self.pods():
            url = f"http://{pod['status']['podIP']}:8080/metrics"
            with _WEB.open(url, timeout=5) as answer:
                lines = answer.read().decode().splitlines()
            counted = [line for line in lines if line.startswith("quorate_full_copies_total{")]
            found[pod["metadata"]["uid"]] = sum(int(float(line.split()[-1])) for line in counted)
        return found

    def refusals(self) -> list[str]:
        """What accounts of the namespace were refused while the release, which has their rights,
        was installed: each once."""
        return sorted(
            {
                str(each)
                for each in self.nodes.plane.audit_log.refusals(NAMESPACE)
                if not any(gone <= each.time <= back for gone, back in self._without_rights)
            }
        )

    def tracebacks(self) -> list[str]:
        """Pods whose process, or the one before, has met a defect."""
        names = [pod["metadata"]["name"] for pod in [*self.pods(OPERATORS), *self.pods()]]
        told = [[name, *more] for name in names for more in ([], ["--previous"])]
        return [
            " ".join(of) for of in told if "Traceback" in self.kubectl("logs", *of, check=False)
        ]

    def leader(self) -> str:
        """The name of the operator's pod that leads; empty while none does."""
        lease = self.get("lease", "quorate-operator")
        return str(lease["spec"].get("holderIdentity") or "").partition("/")[0]

    def wait_whole(self, timeout_s: float = 90, agents: int = 3) -> None:
        """Until so many agents are ready, hold everything again, and no change is under way."""
        self.wait(lambda: self.is_whole(agents), f"a whole cluster of {agents}", timeout_s)

    def is_whole(self, agents: int = 3) -> bool:
        """Whether that is so."""
        zone = self.zone(ZONE)
        updated = self.condition("storagecluster", CLUSTER, "AgentsUpdated")
        return (
            [is_ready(pod) for pod in self.pods()] == [True] * agents
            and all(condition_of(zone, kind)["status"] == told for kind, told in _WHOLE.items())
            and updated.get("status") == "True"
        )

    def wait(self, ask: Callable[[], object], what: str, timeout_s: float = 60) -> None:
        """As `wait_until`; a failure says what there is."""
        wait_until(lambda: bool(ask()), what, timeout_s, lambda: f"\n{self.facts()}")

    def facts(self) -> str:
        """What a person would look at first."""
        parts = [self.kubectl("get", "pods,zones,storageclusters", "--output=wide", check=False)]
        for kind in ("zones", "storageclusters"):
            found = self.nodes.items(f"--namespace={NAMESPACE}", kind)
            told = [each.get("status", {}) for each in found if not _is_well(each)]
            parts += [json.dumps(status, indent=1) for status in told]
        parts.append(self.kubectl("get", "events", "--sort-by=.lastTimestamp", check=False)[-6000:])
        for pod in [*self.pods(OPERATORS), *self.pods()]:
            name = pod["metadata"]["name"]
            for more in ([], ["--previous"]):
                said = self.kubectl("logs", name, "--tail=25", *more, check=False)
                parts.append(f"--- {name} {' '.join(more)} ---\n{said}")
        return "\n".join(parts)

    def close(self) -> None:
        """Close the clients."""
        for client in self._clients:
            client.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def commands_of(manual: str, heading: str) -> str:
    """The commands of the shell below a heading of the manual, but for those of `docker`."""
    section = re.search(rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", manual, re.M | re.S)
    assert section is not None, f"{MANUAL} has no heading {heading!r}"
    blocks = re.findall(r"^```sh\n(.*?)^```$", section.group(1), re.M | re.S)
    lines = "".join(blocks).splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("docker "))


def _answers(address: str) -> bool:
    try:
        socket.create_connection((address, _PORT), 2).close()
    except OSError:
        return False
    return True


def is_ready(pod: Json) -> bool:
    """Whether its kubelet told so, and nobody has deleted it."""
    ready = condition_of(pod, "Ready").get("status") == "True"
    return ready and "deletionTimestamp" not in pod["metadata"]


def _is_well(zone: Json) -> bool:
    """Whether it serves with all its copies: nobody needs its status."""
    return all(condition_of(zone, kind).get("status") == told for kind, told in _WHOLE.items())


def condition_of(found: Json, wanted: str) -> Json:
    """The condition of this type; empty where there is none."""
    conditions = found.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == wanted), {})
