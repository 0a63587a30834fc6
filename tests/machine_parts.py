"""Which programs of the machine a test needs, and saying at the end of a run which were lacking.

A pytest plugin.  A test says `@pytest.mark.needs("redis-server")`; a fixture that finds out late
calls `needs("redis-server")`.  Levels imply parts: `integration` the control plane, `e2e` nodes,
`spark` Java.  A missing part means that the test does not run and that the run ends with lines that
name part, tests and way out; where the environment says CI=true it is a failure: there
everything was meant to be installed.  Client libraries are not: their registries may be out of CI's
reach.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import pytest

from quorate_clients.installed import is_installed
from quorate_clients.libraries import LIBRARIES
from quorate_cluster.names import may_have_names, may_have_networks
from quorate_control_plane.binaries import BINARIES, OTHER_VERSIONS, find_binaries
from quorate_dashboard_types.installed import is_installed as has_dashboard_types
from quorate_helm.build import has_helm
from quorate_images.storage import can_have_images
from quorate_nodes.programs import WAY_OUT as WAY_OUT_NODES
from quorate_nodes.programs import can_have_nodes
from quorate_porcupine.build import can_have_judge
from quorate_s3.server import is_installed as has_s3_server
from quorate_versions.build_before import has_commit_before


@dataclass(frozen=True, slots=True)
class Part:
    """A program that tests may need; `find` answers whether the machine has it."""

    find: Callable[[], bool]
    way_out: str
    everywhere: bool = True  # also CI may lack what comes from a registry that it cannot reach


def _on_path(name: str) -> Callable[[], bool]:
    return lambda: shutil.which(name) is not None


def _may_mount_a_small_disk() -> bool:
    own_user = ["--map-root-user"] if os.getuid() else []
    command = ["unshare", *own_user, "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


def _java_is_new_enough() -> bool:
    home = os.environ.get("JAVA_HOME")
    program = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if program is None:
        return False
    try:
        text = subprocess.run([program, "-version"], capture_output=True, text=True).stderr
    except OSError:
        return False
    found = re.search(r'version "(\d+)', text)
    return found is not None and int(found.group(1)) >= 17


PARTS = {
    "git": Part(_on_path("git"), "apt-get install git"),
    "build-before": Part(has_commit_before, "a whole clone: git fetch --unshallow"),
    "redis-server": Part(_on_path("redis-server"), "apt-get install redis-server"),
    "redis-cli": Part(_on_path("redis-cli"), "apt-get install redis-tools"),
    "redis-benchmark": Part(_on_path("redis-benchmark"), "apt-get install redis-tools"),
    "strace": Part(_on_path("strace"), "apt-get install strace"),
    "prometheus": Part(_on_path("prometheus"), "apt-get install prometheus"),
    "promtool": Part(_on_path("promtool"), "apt-get install prometheus, which has it"),
    "openssl": Part(_on_path("openssl"), "apt-get install openssl"),
    "small-disk": Part(_may_mount_a_small_disk, "run as root, or allow user namespaces: unshare"),
    "helm": Part(has_helm, "make helm, which builds it"),
    "images": Part(can_have_images, "as root: apt-get install buildah debootstrap runc"),
    "nodes": Part(can_have_nodes, WAY_OUT_NODES),
    "own-names": Part(may_have_names, "run as root, or allow user namespaces: unshare"),
    "own-network": Part(
        may_have_networks,
        "run as root, or allow user namespaces; apt-get install iproute2; a kernel with IPv6",
    ),
    "go": Part(
        can_have_judge,
        "make history-judge, which builds it, with the Go on PATH or else the Python package of it",
    ),
    "java": Part(_java_is_new_enough, "version 17 or later: apt-get install default-jre-headless"),
    "control-plane": Part(
        lambda: find_binaries() is not None,
        f"make control-plane, which finds or builds {', '.join(BINARIES)}",
    ),
}
PARTS["s3-server"] = Part(has_s3_server, "make s3-server", everywhere=False)
PARTS["dashboard-types"] = Part(has_dashboard_types, "make dashboard-types", everywhere=False)
PARTS |= {
    library.part: Part(partial(is_installed, library), "make client-libraries", everywhere=False)
    for library in LIBRARIES
}


def _is_built(version: str) -> bool:
    return find_binaries(version) is not None


PARTS |= {
    f"kubernetes-{version}": Part(
        partial(_is_built, version),
        f"make control-plane VERSION={version}, which builds it",
        everywhere=False,
    )
    for version in OTHER_VERSIONS
}
IMPLIED = {
    "integration": ("control-plane", "openssl"),
    "e2e": ("control-plane", "openssl", "helm", "images", "nodes"),
    "spark": ("java",),
}


@cache
def _has(part: str) -> bool:
    return PARTS[part].find()


_Lacking = dict[str, set[str]]
"""What was lacking, with the way out -> the tests that did not run for want of it."""

_lacking = pytest.StashKey[_Lacking]()
_current_test = pytest.StashKey[str]()


def note_lacking(config: pytest.Config, what: str) -> None:
    """The last lines name the current test: it does not run for want of `what`."""
    config.stash[_lacking].setdefault(what, set()).add(config.stash[_current_test])


def _stop_without(config: pytest.Config, parts: tuple[str, ...]) -> None:
    """End the current test here, and remember it, where one of `parts` is missing."""
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        pytest.fail(f"needs({unknown[0]!r}): the parts known to {__name__} are {[*PARTS]}")
    missing = [part for part in parts if not _has(part)]
    if not missing:
        return
    for part in missing:
        note_lacking(config, f"{part} ({PARTS[part].way_out})")
    reason = "; ".join(f"needs {part} ({PARTS[part].way_out})" for part in missing)
    expected = any(PARTS[part].everywhere for part in missing)
    if expected and os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(f"under CI nothing may be missing: {reason}", pytrace=False)
    pytest.skip(reason)  # not silently: the last lines of the run name it


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_lacking] = {}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.config.stash[_current_test] = item.nodeid
    parts = [part for mark in item.iter_markers("needs") for part in mark.args]
    for level, implied in IMPLIED.items():
        if item.get_closest_marker(level):
            parts.extend(implied)
    _stop_without(item.config, tuple(dict.fromkeys(parts)))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    lacking = config.stash[_lacking]
    if not lacking:
        return
    terminalreporter.section("did not run", sep="-", yellow=True)
    for what in sorted(lacking):
        tests = lacking[what]
        files = sorted({test.partition("::")[0] for test in tests})
        terminalreporter.line(f"{len(tests)} for want of {what}:")
        for file in files:
            terminalreporter.line(f"    {file}")


@pytest.fixture(scope="session")
def needs(pytestconfig: pytest.Config) -> Callable[..., None]:
    """`needs("strace")`: like the marker, for fixtures."""
    return lambda *parts: _stop_without(pytestconfig, parts)
