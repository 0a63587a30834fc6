"""Seeds that nobody has run before: most of those that a run of the tests simulates.

A pytest plugin.  Each commit has seeds of its own, so that no seed is tested for ever and the
others never, and one commit is tested with the same seeds on every machine.  The last lines of the
run say which they were; QUORATE_FIRST_SEED has a run begin at another one.
"""

import hashlib
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

SEEDS_EACH = 10_000
"""So many belong to one commit."""
VARIABLE = "QUORATE_FIRST_SEED"
SOURCES = ("core", "operator", "tests")

_ROOT = Path(__file__).parents[1]
_drawn = pytest.StashKey["Drawn"]()
_used = pytest.StashKey[bool]()


class Drawn(NamedTuple):
    """The first seed of a run, and where it comes from."""

    first: int
    origin: str


def draw(root: Path, said: str | None) -> Drawn:
    """The seeds of the sources in `root`; `said` is what the environment asks for."""
    if said:
        if not said.isdecimal():
            raise pytest.UsageError(f"{VARIABLE} is {said!r}: write the number of a seed")
        return Drawn(int(said), f"as {VARIABLE} says")
    commit, why = _commit(root)
    if commit:
        return Drawn(_number(commit), f"drawn from commit {commit[:12]}")
    digest = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(path.read_bytes())
    return Drawn(_number(digest.hexdigest()), f"drawn from the sources themselves: {why}")


def _number(digits: str) -> int:
    return int(digits[:7], 16) * SEEDS_EACH


def _commit(root: Path) -> tuple[str, str]:
    """The commit that is checked out in `root`, or why there is none."""
    command = ["git", "-C", str(root), "rev-parse", "--show-toplevel", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return "", f"git cannot be run ({error})"
    if done.returncode:
        return "", f"there is no commit here ({(done.stderr.splitlines() or ['git is silent'])[0]})"
    top, commit = done.stdout.splitlines()
    if Path(top).resolve() != root.resolve():
        return "", f"the repository here is another one, {top}"
    return commit, ""


def drawn(config: pytest.Config) -> Drawn:
    """The first seed of this run."""
    if _drawn not in config.stash:
        config.stash[_drawn] = draw(_ROOT, os.environ.get(VARIABLE))
    return config.stash[_drawn]


@pytest.fixture(scope="session")
def fresh_seed(request: pytest.FixtureRequest) -> int:
    """The first of the seeds that this run draws."""
    request.config.stash[_used] = True
    return drawn(request.config).first


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if config.stash.get(_used, False):
        first, origin = drawn(config)
        terminalreporter.section("fresh seeds", sep="-")
        terminalreporter.line(f"from {first} on, {origin}")
        terminalreporter.line(f"{VARIABLE}={first} runs the same ones again")
