"""Build helm 3 and helm 4 from their Go modules, once, into a cache outside the project.

About two minutes each on two cores when Go's own caches are warm from the control plane.
"""

import os
import platform
from collections.abc import Callable
from pathlib import Path

from kept_builds import cache_folder, keep, run_checked
from quorate_control_plane.binaries import KUBERNETES_VERSION
from quorate_control_plane.go_toolchain import fetch_go

VERSIONS = {"helm3": "v3.19.4", "helm4": "v4.2.4"}

Say = Callable[[str], None]


def helm_path(name: str) -> Path:
    """The program of this name (`VERSIONS`), built or not yet; another version, another path."""
    version = f"{VERSIONS[name]}-kubernetes-{KUBERNETES_VERSION}-{platform.machine()}"
    return cache_folder() / "helm" / version / name


def has_helm() -> bool:
    """Whether every version was built."""
    return all(helm_path(name).exists() for name in VERSIONS)


def build_helm(name: str, say: Say) -> Path:
    """The program, built first where it is not there; BuildError says what failed."""
    return keep(helm_path(name), lambda program: _build(name, program, say))


def _build(name: str, program: Path, say: Say) -> None:
    say(f"{name} {VERSIONS[name]}")
    go = fetch_go()
    folder = program.parent / "module"
    folder.mkdir()
    settings = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}
    module = f"helm.sh/helm/v{name.removeprefix('helm')}"
    run_checked([go, "mod", "init", f"example.invalid/{name}"], folder, settings)
    run_checked([go, "get", f"{module}@{VERSIONS[name]}"], folder, settings)
    command = [go, "build", "-trimpath", "-ldflags", _flags(name, module), "-o", str(program)]
    run_checked([*command, f"{module}/cmd/helm"], folder, settings)


def _flags(name: str, module: str) -> str:
    """Linker settings: the version of the program, and the Kubernetes that it renders for."""
    facts = {f"{module}/internal/version.version": VERSIONS[name]}
    _, minor, _ = KUBERNETES_VERSION.split(".")
    if name == "helm3":  # helm 4 reads it from the version of its Kubernetes client
        for package in ("pkg/chartutil", "pkg/lint/rules"):
            facts[f"{module}/{package}.k8sVersionMajor"] = "1"
            facts[f"{module}/{package}.k8sVersionMinor"] = minor
    return " ".join(["-s", "-w", *(f"-X {variable}={text}" for variable, text in facts.items())])
