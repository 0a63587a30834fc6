"""Which seeds a run of the tests simulates, and what it says of them."""

import subprocess
from pathlib import Path

import pytest

from fresh_seeds import SEEDS_EACH, VARIABLE, draw
from quorate.facts.errors import InvariantError
from quorate_sim import soak
from quorate_sim.changed import changed
from quorate_sim.cluster import Cluster
from quorate_sim.faults import replay_command, run_seed


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A project without git."""
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "a.py").write_text("a = 1\n")
    return tmp_path


@pytest.mark.needs("git")
def test_each_commit_has_seeds_of_its_own(sources: Path) -> None:
    git(sources, "init")
    seen = set()
    for number in range(3):
        git(sources, "commit", "--allow-empty", f"--message={number}")
        drawn = draw(sources, None)
        assert drawn == draw(sources, None)
        assert "drawn from commit " in drawn.origin
        assert drawn.first % SEEDS_EACH == 0
        seen.add(drawn.first)
    assert len(seen) == 3


def test_without_git_the_sources_have_seeds_of_their_own(sources: Path) -> None:
    drawn = draw(sources, None)
    assert drawn == draw(sources, None)
    assert "drawn from the sources themselves: " in drawn.origin
    (sources / "core" / "a.py").write_text("a = 2\n")
    assert draw(sources, None).first != drawn.first


@pytest.mark.needs("git")
def test_the_commit_of_a_repository_around_an_archive_is_not_its_own(sources: Path) -> None:
    git(sources, "init")
    git(sources, "commit", "--allow-empty", "--message=another project")
    archive = sources / "archive"
    archive.mkdir()
    assert "the repository here is another one" in draw(archive, None).origin


def test_a_run_begins_where_it_is_told(sources: Path) -> None:
    assert draw(sources, "1234567").first == 1234567
    with pytest.raises(pytest.UsageError, match=VARIABLE):
        draw(sources, "first")


def test_a_seed_that_fails_is_named_with_the_command_that_replays_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(cluster: Cluster) -> None:
        raise InvariantError("planted")

    with changed(Cluster, "finish", broken), pytest.raises(InvariantError) as failed:
        run_seed(7)
    assert f"replay: {replay_command(7)}" in failed.value.__notes__

    def fails(number: int) -> None:
        raise ValueError("planted")

    monkeypatch.setattr(soak, "run_seed", fails)
    assert not soak.soak(40, 10, minutes=0, workers=1)
    told = capsys.readouterr().out
    assert all(replay_command(number) in told for number in range(40, 50))
