"""Which small clusters are explored, each from a zone that serves."""

from typing import NamedTuple

from quorate_exhaustive.explorer import Budget, Explorer, Found

ABC = ("a", "b", "c")
ABCD = ("a", "b", "c", "d")


class Exploration(NamedTuple):
    """A cluster, what may happen in it, and how many states a test run looks at at most."""

    names: tuple[str, ...]
    replicas: int
    budget: Budget
    states_in_tests: int

    def run(self, states_max: int | None = None) -> Found:
        """Explore all of it, or so much."""
        explorer = Explorer(self.names, self.replicas, self.budget)
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
}
