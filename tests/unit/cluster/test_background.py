"""What goes on beside a test must not fail unseen."""

import threading

import pytest

from quorate_cluster import background
from quorate_cluster.background import Background


def test_what_a_road_raised_is_raised_at_the_end() -> None:
    beside = Background()

    def road() -> None:
        raise ValueError("of the road")

    beside.add_road(road)

    with pytest.raises(ValueError, match="of the road"), beside:
        beside.stop.wait(0.001)


def test_neither_a_failure_of_the_block_nor_one_of_a_road_hides_the_other() -> None:
    beside = Background()

    def road() -> None:
        raise ValueError("of the road")

    beside.add_road(road)

    with pytest.raises(KeyError, match="of the block") as caught, beside:
        raise KeyError("of the block")

    assert caught.value.__notes__ == ["a road beside it ended with ValueError('of the road')"]


def test_a_road_that_does_not_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "END_S_MAX", 0.01)
    never = threading.Event()
    beside = Background()

    def road() -> None:
        never.wait(10)

    beside.add_road(road)

    try:
        with pytest.raises(TimeoutError, match="a road still runs"), beside:
            pass
    finally:
        never.set()
