"""A control plane and its nodes: started, asked, and ended together."""

import contextlib
import json
import shutil
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from quorate_cluster.waiting import wait_until
from quorate_control_plane.components import Component
from quorate_control_plane.control_plane import ControlPlane, ForNodes
from quorate_control_plane.kept_folder import KeptFolder
from quorate_nodes import configuration
from quorate_nodes.archives import image_archive, program_archive, write_archive
from quorate_nodes.network import Network, run_ip
from quorate_nodes.node import Node

Json = dict[str, Any]

_READY_S_MAX = 120
_VOLUME_SIZE = "20Gi"  # nothing enforces it


class NodeCluster:
    """`count` nodes, each with a zone label of its own, led by a control plane of their own.

    `with NodeCluster(programs) as cluster:` starts all of it and ends it, whatever happens.  A
    StorageClass named `local` is the default one; each node has `volumes` volumes of it.
    """

    def __init__(self, programs: Mapping[str, Path], *, count: int = 3, volumes: int = 2) -> None:
        self.programs = programs
        self._count = count
        self._volumes = volumes
        self._kept: KeptFolder | None = None
        self.plane: ControlPlane
        self.network: Network
        self.nodes: list[Node] = []
        self._components: list[Component] = []

    def __enter__(self) -> Self:
        self._kept = KeptFolder("quorate-nodes-")
        self._folder = str(self._kept.path)
        try:
            self._start(self._kept)
        except BaseException as error:
            error.add_note(self.log_tails())
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process, remove networks, cgroups and folders; a second time does nothing."""
        if self._kept is None:
            return
        self._kept.close()
        self._kept = None
        for component in self._components:
            component.forget()
        if hasattr(self, "plane"):
            self.plane.stop()

    def left_behind(self) -> list[str]:
        """What of it is still on this machine: nothing, once it was closed."""
        return left_behind(self.network.name, self._folder)

    # -- asking it ---------------------------------------------------------------------------------

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Run kubectl as an administrator; a failure raises with what kubectl said."""
        return self.plane.kubectl(*arguments, stdin=stdin, check=check).stdout

    def get(self, *what: str) -> Json:
        """`kubectl get WHAT`, one kind and options to choose by, as JSON."""
        kind, *names = (word for word in what if not word.startswith("--"))
        told = dict(word[2:].split("=", 1) for word in what if word.startswith("--"))
        namespace = told.pop("namespace", "")
        if not names:
            selector, fields = told.pop("selector", ""), told.pop("field-selector", "")
            assert not told, told
            return {"items": self.plane.objects.items(kind, namespace, selector, fields)}
        (name,) = names
        found = self.found(kind, name, namespace)
        if found is None:
            raise RuntimeError(f"{kind} {name} not found")
        return found

    def found(self, kind: str, name: str, namespace: str = "") -> Json | None:
        """One object; nothing where there is none, which a deletion may make of it at any time."""
        return self.plane.objects.get(kind, name, namespace)

    def items(self, *what: str) -> list[Json]:
        """The same of a list."""
        return list(self.get(*what)["items"])

    def node(self, name: str) -> Node:
        """The node of this name."""
        return next(each for each in self.nodes if each.name == name)

    def work_folder(self, name: str) -> Path:
        """A new folder that goes with the cluster."""
        assert self._kept is not None
        path = self._kept.path / name
        path.mkdir()
        return path

    def component(self, name: str, command: list[str], environment: Mapping[str, str]) -> Component:
        """One more program, not started yet, that ends with the cluster at the latest."""
        assert self._kept is not None
        made = Component(name, self._kept.path, command, environment)
        self._components.append(made)
        return made

    def load_image(self, storage_name: str, name: str) -> None:
        """Put an image of the storage of buildah on every node, as `name`."""
        self._load(image_archive(storage_name, name))

    def load_large_image(self, storage_name: str, name: str, node: Node) -> None:
        """The same on one node, without keeping the archive.

        A node's disk has an image twice, as it came and unpacked, in memory.  Writing the archive
        again takes seconds, and the cache would have one for each state of the sources."""
        archive = self.work_folder(f"image-{node.name}") / "image.tar"
        try:
            write_archive(storage_name, name, archive)
            node.load_image(archive)
        finally:
            shutil.rmtree(archive.parent)

    def log_tails(self) -> str:
        """The last lines of what every program of the nodes said."""
        return "\n".join(node.log_tails() for node in self.nodes)

    def ready_nodes(self) -> list[str]:
        """Nodes whose kubelet has told the API server that it is well."""
        return [
            each["metadata"]["name"]
            for each in self.items("nodes")
            for condition in each["status"].get("conditions", [])
            if (condition["type"], condition["status"]) == ("Ready", "True")
        ]

    # -- how it comes up ---------------------------------------------------------------------------

    def _start(self, kept: KeptFolder) -> None:
        self.network = Network(kept)
        address = self.network.machine
        self.plane = ControlPlane(self.programs, for_nodes=ForNodes(address, self.network.services))
        self.plane.start()
        corefile = kept.path / "Corefile"
        corefile.write_text(configuration.dns(address, self.plane.kubeconfig))
        command = [str(self.programs["dns"]), "-conf", str(corefile)]
        dns = Component("dns", kept.path, command)
        dns.start()
        self._components.append(dns)
        proxy = self.plane.kubeconfig_for("system:kube-proxy")
        disks = _disks_in_memory(kept)
        self.nodes = [
            Node(number, self._count, kept, disks, self.network, self.plane, proxy, self.programs)
            for number in range(1, self._count + 1)
        ]
        self._components += [node.process for node in self.nodes]
        for node in self.nodes:
            node.power_on()
        self.network.reach_services_by(1)
        self._declare_volumes()
        pause = kept.path / "pause.tar"
        program_archive(self.programs["pause"], configuration.PAUSE_IMAGE, pause)
        for node in self.nodes:
            wait_until(node.has_runtime, f"containerd of {node.name}", 60, node.log_tails)
        self._load(pause)
        self.wait_nodes_ready()

    def power_all_on(self) -> None:
        """A test that failed may have left a node off."""
        off = [node for node in self.nodes if not node.is_on]
        for node in off:
            node.power_on()
        if off:
            self.wait_nodes_ready()

    def wait_nodes_ready(self) -> None:
        """Until every node is."""
        wait_until(
            lambda: len(self.ready_nodes()) == self._count,
            f"{self._count} ready nodes",
            _READY_S_MAX,
            self.log_tails,
        )

    def _load(self, archive: Path) -> None:
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            list(pool.map(lambda node: node.load_image(archive), self.nodes))

    def _declare_volumes(self) -> None:
        storage_class = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {
                "name": "local",
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        volumes = [
            _volume(node, number) for node in self.nodes for number in range(1, self._volumes + 1)
        ]
        declared = {"apiVersion": "v1", "kind": "List", "items": [storage_class, *volumes]}
        self.kubectl("apply", "--filename=-", stdin=json.dumps(declared))


def left_behind(name: str, folder: str) -> list[str]:
    """What this machine has of the cluster whose bridge and folder these are."""
    links = [line.split()[0] for line in run_ip("-brief", "link").splitlines()]
    found = [f"link {each}" for each in links if each.startswith(name)]
    found += [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/{name}-*")]
    found += [line for line in Path("/proc/mounts").read_text().splitlines() if folder in line]
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if folder.encode() in command.read_bytes():
                found.append(f"process {command.parent.name}")
    return found + ([folder] if Path(folder).exists() else [])


def _disks_in_memory(kept: KeptFolder) -> Path:
    """Where nodes have their disks: a gigabyte of images, which a real disk is slow to forget."""
    path = kept.path / "disks"
    path.mkdir()
    kept.undo_at_end("umount", "--lazy", str(path))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(path)], check=True)
    return path


def _volume(node: Node, number: int) -> Json:
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{node.name}-{number}"},
        "spec": {
            "capacity": {"storage": _VOLUME_SIZE},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "local",
            "local": {"path": str(node.volume(number))},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }
