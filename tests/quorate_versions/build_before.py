"""The build before this one: which commit it is, and its sources in a folder.

`QUORATE_BUILD_BEFORE` names another commit, the last release for example.
"""

import os
import subprocess
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).parents[2]
SOURCES = ("core", "operator", "node_agent")
"""What agents and operators are made of."""


@cache
def commit_before() -> str | None:
    """The newest commit whose sources are others than those of this folder; None: the history is
    not there."""
    try:
        if named := os.environ.get("QUORATE_BUILD_BEFORE"):
            return _said("rev-parse", "--verify", f"{named}^{{commit}}")
        if _git("diff", "--quiet", "HEAD", "--", *SOURCES).returncode:
            return _said("rev-parse", "HEAD")  # what is here was not committed yet
        changed = _said("rev-list", "--max-count=1", "HEAD", "--", *SOURCES)
        return _said("rev-parse", "--verify", f"{changed}~1^{{commit}}") if changed else None
    except OSError:  # there is no git
        return None


def has_commit_before() -> bool:
    """Whether the build before can be run here."""
    return commit_before() is not None


def unpack_build_before(folder: Path) -> Path:
    """Write the sources of the build before into `folder`, which is made."""
    commit = commit_before()
    assert commit is not None
    folder.mkdir()
    archive = _git("archive", commit, *SOURCES)
    archive.check_returncode()
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


def _said(*arguments: str) -> str | None:
    done = _git(*arguments)
    return done.stdout.decode().strip() or None if done.returncode == 0 else None


def _git(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True)
