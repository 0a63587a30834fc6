"""Which small clusters are explored, each from a zone that serves."""

from typing import NamedTuple

from quorate.facts.zone import ConsistencyMode
from quorate_exhaustive.explorer import Budget, Explorer, Found

HIGH = ConsistencyMode.HIGH_AVAILABILITY
AB = ("a", "b")
ABC = ("a", "b", "c")
ABCD = ("a", "b", "c", "d")


class Exploration(NamedTuple):
    """A cluster, what may happen in it, and how many states a test run looks at at most.

    `lost`: agents that crashed before; the others are what the zone narrowed to.
    """

    names: tuple[str, ...]
    replicas: int
    budget: Budget
    states_in_tests: int
    mode: ConsistencyMode = ConsistencyMode.STRONG_CONSISTENCY
    lost: tuple[str, ...] = ()

    def run(self, states_max: int | None = None) -> Found:
        """Explore all of it, or so much."""
        explorer = Explorer(self.names, self.replicas, self.budget, self.mode, self.lost)
        return explorer.explore(self.states_in_tests if states_max is None else states_max)


EXPLORATIONS = {
    "two writes, a message lost, one twice": Exploration(
        ABC, 3, Budget(writes=2, losses=1, repeats=1), 10_000
    ),
    "a backup crashes and returns": Exploration(
        ABC, 3, Budget(writes=1, crashes=1, victims=("b",)), 160_000
    ),
    "the primary crashes, another is activated, it returns": Exploration(
        ABC, 3, Budget(writes=1, crashes=1, victims=("a",)), 50_000
    ),
    "a backup moves": Exploration(ABCD, 3, Budget(writes=1, drains=("c",)), 20_000),
    "the primary moves": Exploration(ABC, 2, Budget(writes=1, drains=("a",)), 70_000),
    "a backup moves, a message lost or twice": Exploration(
        ABC, 2, Budget(writes=1, losses=1, repeats=1, drains=("b",)), 20_000
    ),
    "a backup moves, another master takes over": Exploration(
        ABC, 2, Budget(masters=1, drains=("b",)), 100_000
    ),
    "the primary moves, another master takes over": Exploration(
        ABC, 2, Budget(masters=1, drains=("a",)), 20_000
    ),
    "a backup moves, somebody crashes": Exploration(
        ABC, 2, Budget(writes=1, crashes=1, drains=("b",)), 20_000
    ),
    "narrowed to one copy, the others return": Exploration(
        ABC, 3, Budget(writes=1), 60_000, HIGH, lost=("b", "c")
    ),
    "one of two is lost, the other goes on, it returns": Exploration(
        AB, 2, Budget(writes=1, crashes=1, looks=1, victims=("b",)), 40_000, HIGH
    ),
    "narrowed to one copy, which restarts too": Exploration(
        AB, 2, Budget(writes=1, crashes=1, victims=("a",)), 40_000, HIGH, lost=("b",)
    ),
}
