"""docs/kubernetes.md and docs/operations.md, run command by command as a reader types them.

The API server is real, pods are processes of this machine: the operator's, once its Deployment is
there, and those of managed agents.  `NOT_RUN` says what needs a kubelet or more, and why.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quorate_cluster.names import Names
from quorate_cluster.road import Road, sound_operator
from quorate_control_plane.binaries import find_binaries
from quorate_control_plane.control_plane import ControlPlane
from quorate_documented.commands import Command, commands_of, run
from quorate_helm.build import helm_path
from quorate_owned.pod_processes import PodProcesses

pytestmark = [
    pytest.mark.integration,
    pytest.mark.process,
    pytest.mark.needs("helm", "own-names"),
    pytest.mark.timeout(300),
]

ROOT = Path(__file__).parents[3]
NAMESPACE = "storage"
KEYS = 300
INSTALL = ("## Install", "## A cluster and a zone")
"""The sections of kubernetes.md that operations.md builds on."""
NOT_RUN = {
    "docker build": "builds images and pushes them to a registry; `images` tests build them",
    "kubectl --namespace storage rollout status": "waits for pods that only a kubelet starts",
    "helm test": "starts a pod; test_zone_check.py runs its program with the account of that pod",
    "quorate-agent --name": "has an address that the reader chooses; `process` tests start agents",
    "kubectl drain": "needs nodes with a kubelet",
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
            run(command, ROOT, self._environment)
            self._keep_operator()

    def _keep_operator(self) -> None:
        wanted = self.road.get("deployment", "quorate-operator") is not None
        if wanted and not self.road.operators:
            self.pods.start()
            self.road.start_operator(
                program=lambda *words: [*self._names.prefix, *sound_operator(*words)]
            )
        for each in self.road.operators.values():
            if wanted:
                each.start()
            else:
                each.terminate()


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Reader]]:
    made: list[Reader] = []
    binaries = find_binaries()
    assert binaries is not None
    with ControlPlane(binaries) as plane:

        def make(helm: str) -> Reader:
            made.append(Reader(plane, helm, tmp_path, Names(tmp_path / "hosts", monkeypatch)))
            return made[-1]

        try:
            yield make
        finally:
            for each in made:
                each.close()


def test_the_commands_of_kubernetes_md_do_what_it_says(reader: Callable[[str], Reader]) -> None:
    here = reader("helm4")
    document = (ROOT / "docs" / "kubernetes.md").read_text()

    for command in commands_of(document):
        here.type(command)

    gone = ("deployment", "serviceaccount", "role")
    assert all(here.road.get(kind, "quorate-operator") is None for kind in gone)
    assert here.road.get("zone", "library") is not None, "kept by helm uninstall"
    assert len(here.road.items("persistentvolumeclaims")) == 3


def test_the_commands_of_operations_md_show_what_it_says(reader: Callable[[str], Reader]) -> None:
    here = reader("helm3")
    install = (ROOT / "docs" / "kubernetes.md").read_text()
    document = (ROOT / "docs" / "operations.md").read_text()
    for heading in INSTALL:
        section = install.partition(f"\n{heading}\n")[2].partition("\n## ")[0]
        assert section, heading
        for command in commands_of(section):
            here.type(command)
    with here.road.client("library") as client:
        for number in range(KEYS):
            client.set(f"key-{number}", number)

    for command in commands_of(document):
        here.type(command)

    with here.road.client("library") as client:
        found = [client.get(f"key-{number}") for number in range(KEYS)]
    assert found == [b"%d" % number for number in range(KEYS)], "data is lost by what it says"


def test_each_reason_is_about_a_command_that_is_there() -> None:
    texts = [
        command.text
        for name in ("kubernetes.md", "operations.md")
        for command in commands_of((ROOT / "docs" / name).read_text())
    ]

    idle = [begin for begin in NOT_RUN if not any(text.startswith(begin) for text in texts)]
    assert idle == []
