"""Who types a document's commands: the API server is real, and processes play a kubelet's part.

There is a process of the operator while its Deployment is there, and one for each pod of an agent.
`NOT_RUN` says which commands need a kubelet or more, and why.
"""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quorate_cluster.names import Names
from quorate_cluster.road import Road, sound_operator
from quorate_cluster.waiting import wait_until
from quorate_control_plane.binaries import KUBERNETES_VERSION, find_binaries
from quorate_control_plane.control_plane import ControlPlane
from quorate_documented.commands import Command, commands_of, run
from quorate_helm.build import helm_path
from quorate_owned.pod_processes import PodProcesses

ROOT = Path(__file__).parents[2]
NAMESPACE = "storage"
COMMAND_S_MAX = 360.0
NOT_RUN = {
    "docker build": "builds images and pushes them to a registry; `images` tests build them",
    "kubectl --namespace storage rollout status": "waits for pods that only a kubelet starts",
    "helm test": "starts a pod; test_zone_check.py runs its program with the account of that pod",
    "quorate-agent --name": "has an address that the reader chooses; `process` tests start agents",
    "kubectl create namespace storage": "follows a deletion that only `e2e` tests let happen",
    "kubectl -n storage create secret": "the same",
    "kubectl get persistentvolumes": "needs volumes; `e2e` tests have some, and run it",
    "kubectl drain": "needs nodes with a kubelet",
    "kubectl quorate replace": "needs a node that is gone; `e2e` tests take one away and run it",
}
"""Begin of a command -> why it does not run here."""


class Reader:
    """Who types the commands, with a kubelet's part played by processes."""

    def __init__(self, plane: ControlPlane, helm: str, folder: Path, names: Names) -> None:
        self.road = Road(plane, NAMESPACE)
        self.pods = PodProcesses(self.road, names)
        self._names = names
        programs = folder / "programs"
        programs.mkdir()
        binaries = find_binaries()
        assert binaries is not None
        for name, path in (("helm", helm_path(helm)), ("kubectl", binaries["kubectl"])):
            (programs / name).symlink_to(path)
        self._environment = {
            "PATH": f"{programs}{os.pathsep}/usr/bin:/bin",
            "HOME": str(folder),
            "KUBECONFIG": str(plane.kubeconfig),
        }
        account = f"system:serviceaccount:{NAMESPACE}:quorate-operator"
        self.road.kubeconfig = plane.kubeconfig_for(account)

    def close(self) -> None:
        self.pods.close()
        self.road.close()
        self.pods.forget()

    def type(self, command: Command) -> None:
        """Run the command, unless `NOT_RUN` says why it is not."""
        if not command.text.startswith(tuple(NOT_RUN)):
            try:
                run(command, ROOT, self._environment, COMMAND_S_MAX)
            except AssertionError as error:
                shown = self.road.kubectl("get", "pods,statefulsets,pvc", "--output=wide")
                said = f"{self.road.logs()}\n{self.pods.logs()}\n{shown}"
                raise AssertionError(f"{error}\n{said}") from None
            self._keep_operator()

    def _keep_operator(self) -> None:
        wanted = self.road.get("deployment", "quorate-operator") is not None
        if wanted and not self.road.operators:
            self.pods.start()
            self.road.start_operator(
                program=lambda *words: [*self._names.prefix, *sound_operator(*words)]
            )
            wait_until(self._is_ready, "an operator that is ready", 60, self.road.logs)
        for each in self.road.operators.values():
            if wanted:
                each.start()
            else:
                each.terminate()

    def _is_ready(self) -> bool:
        """What `rollout status` waits for: it knows the kinds, among others."""
        with contextlib.suppress(OSError):
            return self.road.asked("operator-a", "processz")[0] == 200
        return False


@contextmanager
def a_reader(
    helm: str, folder: Path, names: Names, version: str = KUBERNETES_VERSION
) -> Iterator[Reader]:
    """Begin before the project's kinds are declared, on an API server of this version."""
    binaries = find_binaries(version)
    assert binaries is not None
    with ControlPlane(binaries) as plane:
        reader = Reader(plane, helm, folder, names)
        try:
            yield reader
        finally:
            reader.close()


def document(name: str) -> str:
    """The text of one of docs/."""
    return (ROOT / "docs" / name).read_text()


def follow_kubernetes_md(reader: Reader) -> None:
    """Type all of it, and look at what it says of the end."""
    for command in commands_of(document("kubernetes.md")):
        reader.type(command)

    gone = ("deployment", "serviceaccount", "role")
    assert all(reader.road.get(kind, "quorate-operator") is None for kind in gone)
    assert reader.road.get("zone", "library") is not None, "kept by helm uninstall"
    assert len(reader.road.items("persistentvolumeclaims")) == 3
