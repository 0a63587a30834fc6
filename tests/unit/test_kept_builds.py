"""What tests keep outside the project is there whole, or not at all."""

from pathlib import Path
from threading import Thread

import pytest

from kept_builds import BuildError, keep, run_checked, version_of


def test_what_is_there_is_not_made_again(tmp_path: Path) -> None:
    target = tmp_path / "folder" / "program"
    made: list[Path] = []

    def make(partial: Path) -> None:
        made.append(partial)
        partial.write_text("built")
        assert not target.exists()

    makers = [Thread(target=keep, args=(target, make)) for _ in range(4)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()

    assert keep(target, make).read_text() == "built"
    assert len(made) == 1
    assert not made[0].parent.exists()


def test_a_build_that_fails_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    def make(partial: Path) -> None:
        partial.mkdir()
        run_checked(["sh", "-c", "echo no compiler >&2; exit 3"], partial)

    with pytest.raises(BuildError, match=r"ended with 3:\nno compiler"):
        keep(tmp_path / "program", make)

    assert [path.name for path in tmp_path.iterdir()] == ["program.lock"]


def test_other_sources_are_another_version(tmp_path: Path) -> None:
    source = tmp_path / "main.go"
    source.write_text("one")
    before = version_of([source])
    source.write_text("two")

    assert version_of([source]) != before
