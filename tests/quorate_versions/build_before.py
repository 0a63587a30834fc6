"""The build before this one: which commit it is, and its sources in a folder.

`QUORATE_BUILD_BEFORE` names another commit, the last release for example.
"""

import os
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from quorate_cluster.processes import environment, python

_ROOT = Path(__file__).parents[2]
SOURCES = ("core", "operator", "node_agent")
"""What agents and operators are made of."""
_PROGRAMS = ("quorate_agent", "quorate_operator")


@cache
def commit_before() -> str | None:
    """The newest commit whose sources are others than those of this folder and whose programs
    start; None: the history is not there.

    A change of many files may take several commits, of which only the last is whole: nobody ran
    those between.
    """
    try:
        if named := os.environ.get("QUORATE_BUILD_BEFORE"):
            return _said("rev-parse", "--verify", f"{named}^{{commit}}")
        changed = (_said("rev-list", "--first-parent", "HEAD", "--", *SOURCES) or "").split()
        if not _git("diff", "--quiet", "HEAD", "--", *SOURCES).returncode:
            changed = changed[1:]  # the newest are those of this folder
        return next(filter(_starts, changed), None)
    except OSError:  # there is no git
        return None


def has_commit_before() -> bool:
    """Whether the build before can be run here."""
    return commit_before() is not None


def unpack_build_before(folder: Path) -> Path:
    """Write the sources of the build before into `folder`, which is made."""
    commit = commit_before()
    assert commit is not None
    return _unpack(commit, folder)


def _starts(commit: str) -> bool:
    with TemporaryDirectory(prefix="quorate-before-") as folder:
        sources = _unpack(commit, Path(folder) / "sources")
        helped = (
            subprocess.run(
                [*python(program), "--help"], env=environment(sources), capture_output=True
            )
            for program in _PROGRAMS
        )
        return not any(each.returncode for each in helped)


def _unpack(commit: str, folder: Path) -> Path:
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
