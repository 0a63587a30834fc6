"""Where the control plane's binaries are: $KUBEBUILDER_ASSETS, PATH, or the cache of built ones."""

import os
import platform
import shutil
from pathlib import Path

from kept_builds import cache_folder

KUBERNETES_VERSION = "v1.36.3"
ETCD_VERSION = "v3.6.14"
BINARIES = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")


def built_folder() -> Path:
    """The folder of the cache for built binaries; its name tells what is in it."""
    versions = f"kubernetes-{KUBERNETES_VERSION}-etcd-{ETCD_VERSION}-{platform.machine()}"
    return cache_folder() / "control-plane" / versions


def find_binaries() -> dict[str, Path] | None:
    """Name -> path of all four programs from the first place that has all of them, else None."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    for folder in ([Path(assets)] if assets else []) + [None, built_folder()]:
        found = {name: shutil.which(name, path=folder) for name in BINARIES}
        if all(found.values()):
            return {name: Path(path).absolute() for name, path in found.items() if path}
    return None
