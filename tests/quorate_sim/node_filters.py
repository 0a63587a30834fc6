"""The attributes of agents, and filters of zones, which users change now and then."""

from collections.abc import Callable

from quorate.facts.zone import ZoneRecord

FILTERS: dict[str, Callable[[int], bool]] = {
    "": lambda number: True,
    "nothing": lambda number: False,
    "parity=odd": lambda number: number % 2 == 1,
    "number notin (1,3)": lambda number: number not in (1, 3),
    "$[?(@.number > 2)]": lambda number: number > 2,
    "$[?@.parity != 'odd' || @.number >= 5]": lambda number: number % 2 == 0 or number >= 5,
}
"""Each with the numbers of the agents that match."""


def attributes(name: str) -> dict[str, str]:
    """The words of agent a1, a2, … about itself."""
    number = int(name.removeprefix("a"))
    return {"number": str(number), "parity": ("even", "odd")[number % 2]}


def fits(name: str, record: ZoneRecord) -> bool:
    """Whether the agent of that name may hold the zone's copies."""
    return FILTERS[record.filter](int(name.removeprefix("a")))
