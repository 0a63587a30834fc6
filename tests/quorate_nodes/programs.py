"""Which programs nodes need, where they are, and how those that Debian lacks are built.

The programs of Kubernetes come from their Go modules, a few minutes each on two cores where Go's
caches are warm from the control plane.  The cluster's DNS, the container that holds a pod's
namespaces and what enforces NetworkPolicies are small programs of ours beside this file.
"""

import os
import platform
import shutil
from functools import partial
from pathlib import Path

from kept_builds import build_go, cache_folder, keep, version_of
from quorate_control_plane.binaries import KUBERNETES_VERSION, find_binaries
from quorate_control_plane.build import Say, build_kubernetes
from quorate_control_plane.go_toolchain import fetch_go

BUILT = ("kubelet", "kube-proxy", "kube-scheduler")
_OWN = ("dns", "pause", "firewall")
_PACKAGES = {
    "containerd": ("containerd", "containerd-shim-runc-v2", "ctr"),
    "runc": ("runc",),
    "iproute2": ("ip",),
    "nftables": ("nft",),
    "iptables": ("iptables",),
    "conntrack": ("conntrack",),
    "ipset": ("ipset",),
}
CNI_PLUGINS = Path("/usr/lib/cni")
_CNI_NAMES = ("bridge", "host-local", "loopback", "portmap")
_CGROUPS = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "pids")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
WAY_OUT = (
    f"as root, with cgroup v1: apt-get install {' '.join(_PACKAGES)} containernetworking-plugins;"
    " then make nodes"
)


def can_have_nodes() -> bool:
    """Whether this machine can run nodes: root, cgroups of version 1, Debian's and built programs.

    Nodes have been run with version 1 only."""
    return (
        os.getuid() == 0
        and all((_CGROUPS / name).is_dir() for name in CONTROLLERS)
        and all(
            shutil.which(each, path=SYSTEM_PATH) for names in _PACKAGES.values() for each in names
        )
        and all((CNI_PLUGINS / name).exists() for name in _CNI_NAMES)
        and find_programs() is not None
    )


def find_programs() -> dict[str, Path] | None:
    """Name -> path of the control plane's and the nodes' programs; None when one was not built."""
    binaries = find_binaries()
    if binaries is None:
        return None
    found = {name: _built_folder() / name for name in BUILT}
    found |= {name: _own_program(name) for name in _OWN}
    return {**binaries, **found} if all(path.exists() for path in found.values()) else None


def build_programs(say: Say) -> None:
    """Build what is not there yet; BuildError says which step failed."""
    build_kubernetes(BUILT, _built_folder(), say)
    for name in _OWN:
        if not _own_program(name).exists():
            say(f"cluster's {name}")
            keep(_own_program(name), partial(build_go, fetch_go(), _sources(name)))


def _built_folder() -> Path:
    return cache_folder() / "nodes" / f"kubernetes-{KUBERNETES_VERSION}-{platform.machine()}"


def _sources(name: str) -> Path:
    return Path(__file__).parent / name


def _own_program(name: str) -> Path:
    version = version_of(sorted(_sources(name).iterdir()))
    return cache_folder() / f"nodes-{name}" / version / name
