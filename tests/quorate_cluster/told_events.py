"""What those who follow events are told: waited for while it comes, and judged when it has come."""

from typing import Any

from quorate_cluster.background import Background
from quorate_cluster.waiting import wait_until

Told = dict[str, Any]

_STEPS = ["MigrationStarted", "MigrationCaughtUp", "MigrationSwitched", "MigrationFinished"]


class Follower(Background):
    """Somebody who is told events: its roads put them into `told`, as they come."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Told] = []
        self.errors = ""
        """What else it was told."""

    def wait(self, reason: str, since: int = 0) -> Told:
        """Until this was told; it."""
        return wait_until(
            lambda: next((each for each in self.told[since:] if each["reason"] == reason), None),
            f"{reason} told",
            60,
            lambda: (self.told[-5:], self.errors),
        ) or {}  # fmt: skip


def assert_whole(told: list[Told]) -> None:
    """Behind the state, which is first: no gap, and every migration whole."""
    sequences = [each["sequence"] for each in told[1:]]
    assert sequences == [*range(sequences[0], sequences[0] + len(sequences))]
    of_partition: dict[int, list[str]] = {}
    for each in told:
        if each["reason"].startswith("Migration"):
            of_partition.setdefault(each["partition"], []).append(each["reason"])
    assert of_partition
    for reasons in of_partition.values():
        assert reasons == _STEPS * (len(reasons) // len(_STEPS))
