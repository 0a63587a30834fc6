"""The traps of a repository with a folder called `operator`, and what the entry points refuse."""

import operator
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPONENTS = ("core", "operator", "node_agent", "spark", "cli")
ENTRY_POINTS = (
    "quorate_agent",
    "quorate_operator",
    "quorate_spark",
    "quorate_cli",
    "quorate_cli.kubectl",
)


@pytest.mark.parametrize("component", COMPONENTS)
def test_component_folders_are_not_packages(component: str) -> None:
    assert (ROOT / component).is_dir()
    assert not (ROOT / component / "__init__.py").exists()
    assert not (ROOT / f"{component}.py").exists()


def test_operator_is_the_standard_librarys() -> None:
    assert Path(operator.__file__).parent == Path(sysconfig.get_path("stdlib"))


def test_operator_is_the_standard_librarys_for_a_python_started_in_the_project() -> None:
    found = subprocess.run(
        [sys.executable, "-c", "import operator; print(operator.__file__)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    assert Path(found.stdout.strip()).parent == Path(sysconfig.get_path("stdlib"))


@pytest.mark.parametrize("package", ENTRY_POINTS)
def test_entry_points_refuse_to_start_without_assertions(package: str) -> None:
    refused = subprocess.run(
        [sys.executable, "-O", "-m", package, "--help"], capture_output=True, text=True
    )

    assert refused.returncode != 0
    assert "-O" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_page_about_the_architecture_names_every_folder() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    named: set[Path] = set()
    parents: list[str] = []
    for line in page.split("```")[1].splitlines():
        if (found := re.match(r"( *)([\w/]+)/ ", line)) is not None:
            parents = [*parents[: len(found[1]) // 2], found[2]]
            named.add(ROOT.joinpath(*parents))

    packages = {
        file.parent
        for component in COMPONENTS
        for file in (ROOT / component).glob("quorate*/**/__init__.py")
    }
    assert named == packages
