"""One namespace of a real API server with operators and agents as processes of its own."""

import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from redis.cluster import ClusterNode, RedisCluster

from quorate.wire.schema.resource import API_VERSION
from quorate.wire.storage_cluster import external
from quorate_cluster.processes import HOST, Agent, asked, environment, python, secret_manifest
from quorate_cluster.waiting import wait_until
from quorate_control_plane.components import Component
from quorate_control_plane.control_plane import ControlPlane
from quorate_control_plane.kept_folder import KeptFolder
from quorate_control_plane.ports import free_ports
from quorate_operator.kubernetes import EXIT_LOST

Json = dict[str, Any]
LEASE_S = 10
"""The default.  One of 4 s was lost when the API server was slow for three."""
SETTLED_S = 2.0
"""Longer than the API server takes for a request that it has received."""
KEYS = 200
ROLE = Path(__file__).parents[2] / "examples" / "operator-role.yaml"
QUIET = {"Available": "True", "FullyReplicated": "True", "Rebalancing": "False"}


def sound_operator(*arguments: str) -> list[str]:
    """The command line of an operator without a planted defect."""
    return python("quorate_operator", *arguments)


class Road:
    """One namespace with operators and agents of its own."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self.namespace = namespace
        self.kept = KeptFolder("quorate-road-")
        self.agents: dict[str, Agent] = {}
        self.operators: dict[str, Component] = {}
        self.health: dict[str, int] = {}
        """Where each operator answers /healthz and /metrics."""
        self.kubeconfig = control_plane.kubeconfig
        """By which operators reach the API server."""
        self._control_plane = control_plane
        self._ports = free_ports()
        self._over = threading.Event()
        self._kubelet = threading.Thread(target=self._keep_operator, daemon=True)
        self._kubelet.start()

    def close(self) -> None:
        self._over.set()
        self._kubelet.join()
        self.kept.close()
        for process in (*self.agents.values(), *self.operators.values()):
            process.forget()

    def use_example_role(self) -> str:
        """Operators that are started from now on have the rights of the examples; their account."""
        self.kubectl("apply", "--filename", str(ROLE))
        account = f"system:serviceaccount:{self.namespace}:quorate-operator"
        self.kubeconfig = self._control_plane.kubeconfig_for(account)
        return account

    def start_agents(self, count: int = 3, options: Sequence[str] = ()) -> None:
        self.keep_secret()
        for number in range(1, count + 1):
            name = f"agent-{number}"
            ports = next(self._ports), next(self._ports)
            self.agents[name] = Agent(name, self.kept.path, "main", *ports, options=options)
            self.agents[name].start(wait=False)
        for agent in self.agents.values():
            agent.wait_listening()

    def keep_secret(self) -> None:
        """The Secret of the cluster is that of the agents, which run elsewhere."""
        manifest = json.dumps(secret_manifest(self.kept.path, "main"))
        self.kubectl("apply", "--filename=-", stdin=manifest)

    def start_operator(
        self,
        name: str = "operator-a",
        *,
        serves: Sequence[str] = (),
        lease_s: int = LEASE_S,
        program: Callable[..., list[str]] = sound_operator,
    ) -> Component:
        """`serves`: arguments that say which namespaces, when it is not this one alone; `program`:
        the command line of an operator with these arguments."""
        arguments = [*(serves or ("--namespace", self.namespace)), "--lease-seconds", str(lease_s)]
        health = self.health[name] = next(self._ports)
        arguments += ["--kubeconfig", str(self.kubeconfig), "--health", f"{HOST}:{health}"]
        command = program("kubernetes", *arguments)
        self.operators[name] = Component(name, self.kept.path, command, environment())
        self.operators[name].start()
        return self.operators[name]

    def _keep_operator(self) -> None:
        """One that lost its lease ends, for which an API server that is slow for seconds is enough:
        where no other stands by it is started again, as a kubelet would do."""
        while not self._over.wait(0.2):
            operators = list(self.operators.values())
            if len(operators) == 1 and operators[0].exit_status == EXIT_LOST:
                operators[0].start()

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        here = f"--namespace={self.namespace}"
        return self._control_plane.kubectl(*arguments, here, stdin=stdin, check=check).stdout

    def apply(self, kind: str, name: str, **spec: Any) -> None:
        metadata = {"name": name}
        manifest = {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
        self.kubectl("apply", "--filename=-", stdin=json.dumps(manifest))

    def declare(self, **spec: Any) -> None:
        """The cluster with all agents, and zone `sessions`, whose data goes with it."""
        addresses = [agent.peer_address for agent in self.agents.values()]
        self.apply("StorageCluster", "main", **external(addresses))
        whole = {"clusterRef": {"name": "main"}, "partitions": 16, "deletionPolicy": "Delete"}
        self.apply("Zone", "sessions", **{**whole, **spec})

    def get(self, kind: str, name: str) -> Json | None:
        return self._control_plane.objects.get(kind, name, self.namespace)

    def status(self, kind: str, name: str) -> Json:
        return dict((self.get(kind, name) or {}).get("status") or {})

    def items(self, kinds: str, selector: str = "", fields: str = "") -> list[Json]:
        """All objects of these kinds, separated by commas."""
        return self._control_plane.objects.items(kinds, self.namespace, selector, fields)

    def names(self, kinds: str, selector: str = "") -> list[str]:
        """The same as `KIND/NAME`."""
        return self._control_plane.objects.names(kinds, self.namespace, selector)

    def told_of_zones(self) -> set[str]:
        """Reasons of the Events on zones, as docs/events.md says to ask for them."""
        found = self.items("events", fields="involvedObject.kind=Zone")
        return {each["reason"] for each in found}

    def conditions(self, kind: str = "zone", name: str = "sessions") -> Json:
        conditions = self.status(kind, name).get("conditions", [])
        return {each["type"]: each["status"] for each in conditions}

    def wait_zone(self, **wanted: str) -> None:
        wait_until(
            lambda: wanted.items() <= self.conditions().items(),
            f"zone with {wanted}",
            60,
            lambda: (self.status("zone", "sessions"), self.logs()),
        )

    def master(self) -> tuple[str, int]:
        """Identity and term of the master that the status names."""
        master = self.status("storagecluster", "main").get("master", {})
        return master.get("identity", ""), master.get("term", 0)

    def wait_led_by(self, operator: Component) -> int:
        """Wait until the status names this process; its term."""
        wait_until(
            lambda: f"/{operator.pid}/" in self.master()[0],
            f"mastership of {operator.name}",
            60,
            lambda: (self.master(), self.logs()),
        )
        return self.master()[1]

    def client(self, zone: str = "sessions") -> RedisCluster:
        make: Any = ClusterNode  # its constructor ships without types
        found = [each.rsplit(":", 1) for each in self.status("zone", zone)["endpoints"]]
        nodes = [make(host, int(port)) for host, port in found]
        return RedisCluster(startup_nodes=nodes, socket_timeout=20)

    def write_keys(self, value: str) -> None:
        client: Any = self.client()  # its pipelines ship without types
        with closing(client):
            pipeline = client.pipeline()  # one by one they take ten times the processor time
            for number in range(KEYS):
                pipeline.set(f"key-{number}", f"{value}-{number}")
            pipeline.execute()

    def check_keys(self, value: str) -> None:
        client: Any = self.client()
        with closing(client):
            pipeline = client.pipeline()
            for number in range(KEYS):
                pipeline.get(f"key-{number}")
            found = pipeline.execute()
        assert found == [f"{value}-{number}".encode() for number in range(KEYS)]

    def zone_folders(self) -> list[str]:
        """Folders of zones' data on all agents."""
        return [str(path) for agent in self.agents.values() for path in agent.data.glob("zones/*")]

    def all_logs(self) -> str:
        """Everything that the operators said."""
        return "\n".join(each.log_tail(100_000) for each in self.operators.values())

    def may(self, user: str, verb: str, what: str, namespace: str = "") -> bool:
        """Whether RBAC lets `user` do `verb` with `what`."""
        here = f"--namespace={namespace or self.namespace}"
        question = "auth", "can-i", verb, what, f"--as={user}", here
        return self._control_plane.kubectl(*question, check=False).stdout.strip() == "yes"

    def logs(self) -> str:
        processes = (*self.operators.values(), *self.agents.values())
        return "\n".join(f"--- {each.name} ---\n{each.log_tail()}" for each in processes)

    def revisions(self) -> dict[str, str]:
        """The revision of everything that an operator may write."""
        kinds = "zones,storageclusters,partitiontables,storagenodes,leases,masterterms,events"
        return {
            f"{each['kind']} {each['metadata']['name']}": each["metadata"]["resourceVersion"]
            for each in self.items(kinds)
        }

    def settled_revisions(self) -> dict[str, str]:
        """These revisions once they stay: a request that a process sent before it was stopped may
        be carried out after that."""
        seen = [(self.revisions(), time.monotonic())]

        def stay() -> bool:
            found = self.revisions()
            if found != seen[0][0]:
                seen[0] = (found, time.monotonic())
            return time.monotonic() - seen[0][1] > SETTLED_S

        wait_until(stay, "end of all changes", say=lambda: seen)
        return seen[0][0]

    def asked(self, operator: str, what: str) -> tuple[int, str]:
        """What the operator answers to GET /`what`: status and text."""
        return asked(HOST, self.health[operator], f"/{what}")

    def metrics(self, operator: str) -> dict[str, float]:
        """Every series of the operator's own and its value."""
        lines = self.asked(operator, "metrics")[1].splitlines()
        told = [line.rpartition(" ") for line in lines if re.match("quorate_operator", line)]
        return {series: float(value) for series, _, value in told}
