"""How a library comes into the cache, and the command line of the program that uses it from there.

Everything comes from the package registries that pip, npm, go and mvn are set to, in the versions
that `tests/clients` pins, each library into a folder of its own that its pins and sources name.
"""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from kept_builds import BuildError, build_go, cache_folder, keep, run_checked, version_of
from quorate_clients import node_toolchain
from quorate_clients.libraries import PROGRAMS, Library
from quorate_control_plane.go_toolchain import find_go


def command(library: Library) -> tuple[list[str], dict[str, str]]:
    """The program's command line without its arguments, and what it wants in its environment.

    The library is installed first where the cache has it not; BuildError says what was lacking.
    """

    def install(partial: Path) -> None:
        partial.mkdir()
        _INSTALL[library.language](library, partial)

    folder = keep(_folder(library), install)
    return _COMMAND[library.language](library, folder)


def is_installed(library: Library) -> bool:
    """Whether the cache has it, so that nothing needs to be fetched or built."""
    return _folder(library).exists()


def _folder(library: Library) -> Path:
    name = f"{library.name}-{version_of(library.sources)}"
    if library.language == "python":
        name += f"-{sys.version_info.major}.{sys.version_info.minor}"
    return cache_folder() / "clients" / name


# -- Python ---------------------------------------------------------------------------------------


def _install_python(library: Library, folder: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    install += ["--no-deps", "--require-hashes", "--requirement", str(library.pinned_by)]
    run_checked([*install, "--target", str(folder)], folder)


def _command_python(library: Library, folder: Path) -> tuple[list[str], dict[str, str]]:
    # Without this interpreter's own packages: hiredis among them would be used unasked.
    program = str(PROGRAMS / "python" / "counters.py")
    return [sys.executable, "-S", "-P", program], {"PYTHONPATH": str(folder)}


# -- JavaScript -----------------------------------------------------------------------------------


def _install_node(library: Library, folder: Path) -> None:
    node_toolchain.install_pinned(library.pinned_by, folder)


def _command_node(library: Library, folder: Path) -> tuple[list[str], dict[str, str]]:
    program = str(library.pinned_by.parent / "counters.js")
    found = {"NODE_PATH": str(folder / "node_modules")}
    return [node_toolchain.node().program, program], found


# -- Go -------------------------------------------------------------------------------------------


def _install_go(library: Library, folder: Path) -> None:
    go = find_go()
    if go is None:
        raise BuildError("no Go on PATH or in the cache: make client-libraries")
    build_go(go, library.pinned_by, folder / "counters")


def _command_go(library: Library, folder: Path) -> tuple[list[str], dict[str, str]]:
    return [str(folder / "counters")], {}


# -- Java -----------------------------------------------------------------------------------------

_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def _install_java(library: Library, folder: Path) -> None:
    if not (shutil.which("mvn") and shutil.which("javac")):
        raise BuildError("no mvn or no javac on PATH: apt-get install maven default-jdk-headless")
    jars = folder / "jars"
    maven = ["mvn", "--quiet", "--batch-mode", "--file", str(library.pinned_by / "pom.xml")]
    run_checked([*maven, _COPY, f"-DoutputDirectory={jars}"], folder)
    sources = [str(each) for each in library.sources if each.suffix == ".java"]
    compiler = ["javac", "-classpath", f"{jars}/*", "-d", str(folder / "classes")]
    run_checked([*compiler, *sources], folder)


def _command_java(library: Library, folder: Path) -> tuple[list[str], dict[str, str]]:
    path = f"{folder / 'classes'}{os.pathsep}{folder / 'jars'}/*"
    return ["java", "-Xmx128m", "-classpath", path, "Counters"], {}


_INSTALL: dict[str, Callable[[Library, Path], None]] = {
    "python": _install_python,
    "node": _install_node,
    "go": _install_go,
    "java": _install_java,
}
_COMMAND: dict[str, Callable[[Library, Path], tuple[list[str], dict[str, str]]]] = {
    "python": _command_python,
    "node": _command_node,
    "go": _command_go,
    "java": _command_java,
}
