"""Where the control plane's binaries are: $KUBEBUILDER_ASSETS, PATH, or the cache of built ones."""

import os
import platform
import shutil
from pathlib import Path

from kept_builds import cache_folder

KUBERNETES_VERSION = "v1.36.3"
"""Of which every test has a control plane."""
OTHER_VERSIONS = ("v1.34.4", "v1.35.4", "v1.37.2")
"""Of which a machine may have one as well: `make control-plane VERSION=v1.34.4`."""
ETCD_VERSION = "v3.6.14"
BINARIES = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")


def built_folder(version: str = KUBERNETES_VERSION) -> Path:
    """The folder of the cache for built binaries; its name tells what is in it."""
    versions = f"kubernetes-{version}-etcd-{ETCD_VERSION}-{platform.machine()}"
    return cache_folder() / "control-plane" / versions


def find_binaries(version: str = KUBERNETES_VERSION) -> dict[str, Path] | None:
    """Name -> path of all four programs from the first place that has all of them, else None.

    Of another version than every test's only built ones are taken."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    places = [*([Path(assets)] if assets else []), None]
    for folder in [*(places if version == KUBERNETES_VERSION else ()), built_folder(version)]:
        found = {name: shutil.which(name, path=folder) for name in BINARIES}
        if all(found.values()):
            return {name: Path(path).absolute() for name, path in found.items() if path}
    return None
