"""A namespace with what the chart declares: operators and pods of managed agents as processes."""

from pathlib import Path
from typing import Any

import yaml

from quorate_cluster.names import Names
from quorate_cluster.road import Road, sound_operator
from quorate_cluster.waiting import wait_until
from quorate_control_plane.audit import (
    AUDITED,
    Right,
    granted_rights,
    missing_rights,
    used_rights,
)
from quorate_control_plane.components import Component
from quorate_control_plane.control_plane import ControlPlane
from quorate_helm.build import helm_path
from quorate_helm.chart import find, objects, render
from quorate_owned.pod_processes import PodProcesses

MONITORING = "monitoring.coreos.com/"
WAIT_S = 240
"""Three agents and their pods take 15 s of CPU to start, beside the nodes of other tests 60 s; and
these load images then, so each file that an agent makes durable may wait for the disk."""


class Released:
    """A namespace with the roles of the chart, operators that have them, and agents."""

    def __init__(self, plane: ControlPlane, namespace: str, names: Names, *values: str) -> None:
        self.road = Road(plane, namespace)
        self.pods = PodProcesses(self.road, names)
        self.plane = plane
        self.account = f"system:serviceaccount:{namespace}:quorate-operator"
        self._names = names
        self._served: list[Road] = []
        own = "rbac.clusters={main,shop}", "validation.image.repository=quorate-spark"
        setting = [f"--set={value}" for value in (*own, *values)]
        self.rendered = objects(render(helm_path("helm3"), *setting, namespace=namespace))
        self.declared = [each for each in self.rendered if "rbac." in each["apiVersion"]]
        self.rules = [
            rule
            for each in self.declared
            if "rules" in each and not each["metadata"]["name"].endswith(("-view", "-edit"))
            for rule in each["rules"]
        ]
        (container,) = self.operator_template["spec"]["containers"]
        self._serves = container["args"][1:]
        if not any(each.startswith(("--all-", "--namespace")) for each in self._serves):
            self._serves.append(f"--namespace={namespace}")
        plane.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(self.declared))
        self.road.kubeconfig = plane.kubeconfig_for(self.account, AUDITED)
        self.pods.start()

    @property
    def operator_template(self) -> dict[str, Any]:
        """The operator's pod template."""
        return dict(find(self.rendered, "Deployment")["spec"]["template"])

    def close(self) -> None:
        self.pods.close()
        self.road.close()
        self.pods.forget()
        for each in self._served:
            each.close()
            self.plane.kubectl("delete", "namespace", each.namespace, "--ignore-not-found")
        outside = [each for each in self.declared if "namespace" not in each["metadata"]]
        self.plane.kubectl("delete", "--filename=-", stdin=yaml.safe_dump_all(outside))

    def serve(self, suffix: str) -> Road:
        """One more namespace, for an operator that serves all of them."""
        namespace = f"{self.road.namespace}-{suffix}"
        self.plane.kubectl("create", "namespace", namespace)
        self._served.append(Road(self.plane, namespace))
        return self._served[-1]

    def start_operator(self, name: str) -> Component:
        return self.road.start_operator(
            name,
            serves=self._serves,
            program=lambda *words: [*self._names.prefix, *sound_operator(*words)],
        )

    def zone_check(self, folder: Path) -> list[str]:
        """Module and arguments of the pod of `helm test`, with the account that it would have."""
        pod = find(self.rendered, "Pod")
        account = pod["spec"]["serviceAccountName"]
        (container,) = pod["spec"]["containers"]
        assert container["command"][:2] == ["python3", "-m"]
        folder.mkdir(exist_ok=True)
        (folder / "token").write_text(self.road.kubectl("create", "token", account))
        (folder / "namespace").write_text(self.road.namespace)
        (folder / "ca.crt").write_text(self.plane.authority.read_text())
        where = ("--account", str(folder), "--server", self.plane.server)
        return [container["command"][2], *container["args"], *where]

    def missing(self) -> list[str]:
        """Rights for want of which something was refused in this namespace, or in none."""
        return sorted(map(str, missing_rights(self.requests())))

    def unused(self) -> set[Right]:
        used = used_rights(self.requests())
        return {each for each in granted_rights(self.rules) if each not in used}

    def requests(self) -> list[Any]:
        """What the operators asked for in these namespaces, or in none: others have theirs."""
        mine = {"", self.road.namespace, *(each.namespace for each in self._served)}
        return [
            each
            for each in self.plane.audit_log.events(self.account)
            if each.get("objectRef", {}).get("namespace", "") in mine
        ]

    def names(self, kind: str, cluster: str) -> list[str]:
        found = self.road.names(kind, f"quorate.io/cluster={cluster}")
        return [each.rpartition("/")[2] for each in found]

    def wait(self, what: str, ask: Any, timeout_s: float = WAIT_S) -> None:
        def facts() -> object:
            logs = f"{self.road.logs()}\n{self.pods.logs()}"
            return self.road.status("storagecluster", "shop"), self.missing(), logs

        wait_until(ask, what, timeout_s, facts)


def assert_taken(plane: ControlPlane, rendered: str) -> None:
    """Every object, and every field of it, is known to the API server.  Nothing is stored but the
    account of the pod of `helm test`: that pod is made when a release is there.

    Kinds of the Prometheus operator are not there."""
    declared = [each for each in objects(rendered) if not each["apiVersion"].startswith(MONITORING)]
    pod = find(declared, "Pod")
    here = f"--namespace={pod['metadata']['namespace']}"
    plane.kubectl("create", "serviceaccount", pod["spec"]["serviceAccountName"], here)
    strict = ("--dry-run=server", "--validate=strict", "--output=name", "--filename=-")

    taken = plane.kubectl("apply", *strict, stdin=yaml.safe_dump_all(declared)).stdout.split()

    assert len(taken) == len(declared)
