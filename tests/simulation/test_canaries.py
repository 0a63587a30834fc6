"""The table of planted defects tells the truth, and its exit code too."""

from collections.abc import Callable
from contextlib import nullcontext

import pytest

from quorate_sim import canaries
from quorate_sim.planted import DEFECTS, STORIES

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(300)]
BY_STORY = "transfer-from-unrepaired"


def test_a_defect_that_only_its_story_finds_is_told_so_and_counts_as_found(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert canaries.main([BY_STORY, "--workers", "1"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if BY_STORY in line)
    assert "by its story" in line
    assert "has not adopted term" in line


@pytest.mark.parametrize("name", sorted(STORIES))
def test_each_story_finds_its_defect(name: str) -> None:
    found = canaries.hunt(name)
    assert found.by_story, found.broke


def test_a_story_that_holds_with_the_defect_has_not_found_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(DEFECTS, BY_STORY, nullcontext)
    assert canaries.main([BY_STORY, "--workers", "1"]) == 1
    assert "the story holds with the defect" in capsys.readouterr().out


def _fails() -> None:
    raise AssertionError("always")


def _errs() -> None:
    raise TypeError("no such argument")


@pytest.mark.parametrize("story", [_fails, _errs])
def test_a_story_that_fails_without_the_defect_has_not_found_it(
    story: Callable[[], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(STORIES, BY_STORY, story)
    assert canaries.main([BY_STORY, "--workers", "1"]) == 1
    assert "the story fails without the defect" in capsys.readouterr().out


def test_a_defect_that_no_seed_finds_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(DEFECTS, "harmless", nullcontext)
    assert canaries.main(["harmless", "--seeds", "2", "--workers", "1"]) == 1
    said = capsys.readouterr().out
    assert "NOTHING" in said
    assert "found neither within 2 seeds nor by a story: harmless" in said


def test_a_mistake_in_the_defect_itself_is_no_find(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> nullcontext[None]:
        monkeypatch.setattr(canaries, "run_seed", lambda number: _errs())
        return nullcontext()

    monkeypatch.setitem(DEFECTS, "broken", broken)
    assert canaries.main(["broken", "--seeds", "2", "--workers", "1"]) == 1
    assert "a mistake in the defect itself" in capsys.readouterr().out


def test_every_story_has_its_defect() -> None:
    assert set(STORIES) <= set(DEFECTS)
