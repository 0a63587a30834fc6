"""One node: network, process, mount and host-name namespaces with one process as their number 1.

Its disk is a folder; memory, mounts, addresses and processes are gone when it is powered off.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quorate_cluster.waiting import wait_until
from quorate_control_plane.components import Component
from quorate_control_plane.control_plane import ControlPlane
from quorate_control_plane.kept_folder import KeptFolder
from quorate_nodes import cgroups, configuration, inside
from quorate_nodes.network import Network
from quorate_nodes.programs import SYSTEM_PATH

# Everything else that the programs write has a folder of its own by their settings.
_FRESH = ("/run", "/var/lib", "/var/log")
_KEPT = {
    "/var/lib/kubelet": "kubelet",
    "/var/lib/containerd": "containerd",
    "/var/log/pods": "pods",
}
_SETTINGS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}


class Node:
    """Node `number`, off at first.  `power_on` and `power_off` by turns, as often as one likes."""

    def __init__(
        self,
        number: int,
        count: int,
        kept: KeptFolder,
        disks: Path,
        network: Network,
        plane: ControlPlane,
        proxy_kubeconfig: Path,
        programs: Mapping[str, Path],
    ) -> None:
        self.number = number
        self.name = configuration.node_name(number)
        self.zone = f"zone-{number}"
        self._folder = disks / self.name
        self._logs = kept.path / "log" / self.name
        self._network = network
        self._cgroup = f"{network.name}-{number}"
        for path in (self._folder, self._logs):
            path.mkdir(parents=True)
        for name in (*_KEPT.values(), "cni", "settings", "volumes"):
            (self._folder / name).mkdir()
        others = [each for each in range(1, count + 1) if each != number]
        told = self._folder / "inside.json"
        told.write_text(json.dumps(self._told(others, plane, proxy_kubeconfig, programs)))
        kept.undo_at_end(sys.executable, "-I", cgroups.__file__, self._cgroup)
        self.process = Component(self.name, kept.path, self._command(told), system_environment())

    @property
    def address(self) -> str:
        return self._network.node(self.number)

    @property
    def is_on(self) -> bool:
        return self.process.is_alive()

    def volume(self, number: int) -> Path:
        """A folder on the node's disk for a local volume."""
        path = self._folder / "volumes" / str(number)
        path.mkdir(exist_ok=True)
        return path

    def power_on(self) -> None:
        """Start it; its kubelet comes up by and by."""
        cgroups.make(self._cgroup)
        self.process.start()
        process = self.process.pid
        own = os.readlink("/proc/self/ns/net")
        wait_until(lambda: self._network_of(process) != own, f"namespaces of {self.name}")
        self._network.plug_in(self.number, process)

    def power_off(self) -> None:
        """Everything that runs there is gone at once, without a farewell; the disk stays."""
        self._network.unplug(self.number)
        self.process.kill()
        cgroups.remove(self._cgroup)

    def run(self, *command: str, stdin: Path | None = None) -> str:
        """Run a command in the node; RuntimeError with what it said when it fails."""
        enter = self.enter("mount", "net", "pid", "uts")
        with (stdin or Path(os.devnull)).open("rb") as given:
            done = subprocess.run(
                [*enter, *command],
                stdin=given,
                capture_output=True,
                text=True,
                env=system_environment(),
            )
        if done.returncode != 0:
            raise RuntimeError(f"{self.name}: {' '.join(command)}: {done.stderr}")
        return done.stdout

    def enter(self, *namespaces: str) -> list[str]:
        """The words before a command that runs in these namespaces of the node."""
        first = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return ["nsenter", "--target", first.split()[0], *(f"--{each}" for each in namespaces)]

    def load_image(self, archive: Path) -> None:
        """Take the images of a docker-archive into containerd."""
        self.run("ctr", "--namespace", "k8s.io", "images", "import", "-", stdin=archive)

    def tag_image(self, name: str, another: str) -> None:
        """Give an image that is there another name."""
        self.run("ctr", "--namespace", "k8s.io", "images", "tag", "--force", name, another)

    def remove_image(self, name: str) -> None:
        """Take the name from an image, which may have others."""
        self.run("ctr", "--namespace", "k8s.io", "images", "remove", name)

    def has_runtime(self) -> bool:
        """Whether containerd answers."""
        try:
            self.run("ctr", "version")
        except RuntimeError:
            return False
        return True

    def log_tails(self, line_count: int = 8) -> str:
        """The last lines of what its programs said."""
        parts = [self.process.log_tail(line_count)]
        for path in sorted(self._logs.glob("*.log")):
            lines = path.read_text(errors="replace").splitlines()[-line_count:]
            parts.append("\n".join([f"--- {self.name}: {path.stem} ---", *lines]))
        return "\n".join(parts)

    def _network_of(self, process: int) -> str:
        if not self.process.is_alive():
            raise RuntimeError(f"{self.name} ended: {self.process.log_tail()}")
        return os.readlink(f"/proc/{process}/ns/net")

    def _command(self, told: Path) -> list[str]:
        procs = f"/sys/fs/cgroup/pids/{self._cgroup}/system/cgroup.procs"
        join = ["sh", "-c", f'echo $$ >{procs} && exec "$@"', "sh"]
        # The kernel ends what is left in the namespaces when unshare's process is gone.
        separate = ["unshare", "--net", "--pid", "--mount", "--uts", "--fork", "--kill-child"]
        separate += ["--mount-proc", "--propagation", "private"]
        return [*join, *separate, sys.executable, "-I", inside.__file__, str(told)]

    def _told(
        self,
        others: list[int],
        plane: ControlPlane,
        proxy_kubeconfig: Path,
        programs: Mapping[str, Path],
    ) -> dict[str, Any]:
        return {
            "name": self.name,
            "address": self.address,
            "routes": {self._network.pods(each): self._network.node(each) for each in others},
            "fresh": _FRESH,
            "folders": {place: str(self._folder / name) for place, name in _KEPT.items()},
            "resolv_conf": str(self._write("resolv.conf", f"nameserver {self._network.machine}\n")),
            "settings": {
                name: str(self._write(f"settings/{name.replace('/', '-')}", f"{value}\n"))
                for name, value in _SETTINGS.items()
            },
            "logs": str(self._logs),
            "programs": self._programs(plane, proxy_kubeconfig, programs),
        }

    def _programs(
        self, plane: ControlPlane, proxy_kubeconfig: Path, programs: Mapping[str, Path]
    ) -> dict[str, list[str]]:
        """In the order of their start."""
        network, number = self._network, self.number
        user = f"system:node:{self.name}"
        serving = plane.serving_pair(self.name, f"DNS:{self.name},IP:{self.address}")
        kubelet = configuration.kubelet(
            network,
            number,
            cgroup=self._cgroup,
            authority=plane.authority,
            key=serving.key,
            certificate=serving.certificate,
            resolv_conf=self._folder / "resolv.conf",
        )
        self._write("cni/10-pods.conflist", configuration.pod_network(network, number))
        containerd = self._write("containerd.toml", configuration.containerd(self._folder / "cni"))
        proxy = configuration.kube_proxy(network, number, proxy_kubeconfig)
        labels = f"topology.kubernetes.io/zone={self.zone},topology.kubernetes.io/region=test"
        return {
            "containerd": ["containerd", f"--config={containerd}"],
            "kube-proxy": [
                str(programs["kube-proxy"]),
                f"--config={self._write('kube-proxy.json', proxy)}",
            ],
            "kubelet": [
                str(programs["kubelet"]),
                f"--config={self._write('kubelet.json', kubelet)}",
                f"--kubeconfig={plane.kubeconfig_for(user, 'system:nodes')}",
                f"--hostname-override={self.name}",
                f"--node-ip={self.address}",
                f"--node-labels={labels}",
                "--v=1",
            ],
        }

    def _write(self, name: str, text: str) -> Path:
        path = self._folder / name
        path.write_text(text)
        return path


def system_environment() -> dict[str, str]:
    """That of this process, with the system's programs."""
    return {**os.environ, "PATH": SYSTEM_PATH}
