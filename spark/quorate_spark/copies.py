"""A reading of a zone's copies: every copy at about one moment, and the process that answered."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from quorate.facts.keyspace import is_partition_count
from quorate.protocol.messages.tools import CopyState


class CopySeen(NamedTuple):
    """One copy of one partition, and the process that answered for it."""

    address: str
    node: str
    store: str
    incarnation: int
    state: CopyState

    @property
    def process(self) -> tuple[str, int]:
        """The identity of the process that answered."""
        return self.store, self.incarnation

    @property
    def owner_facts(self) -> tuple[str, str, int, int, int, int, bool]:
        """The facts that must stay the same for two readings to be of one copy."""
        state = self.state
        return (
            self.node,
            self.store,
            self.incarnation,
            state.replica_index,
            state.version,
            state.term,
            state.adopted,
        )


class AgentTimes(NamedTuple):
    """Commands of the zone's clients since the agent's process began, counted by time: at most so
    many microseconds, or longer than all that are told (-1)."""

    store: str
    incarnation: int
    reads: Mapping[int, int]
    writes: Mapping[int, int]

    def is_of(self, earlier: "AgentTimes") -> bool:
        """Return whether both are of one process."""
        return (self.store, self.incarnation) == (earlier.store, earlier.incarnation)


class Reading(NamedTuple):
    """All copies at about one moment.

    `owned[partition]` is hottest first; `strays` are copies on nodes that do not own their
    partition (filling, or about to be deleted); `nodes` all that answered.  `partitions`: of the
    zone; 0: no agent says.  `uids`: of the zone, as agents tell them; an empty one: one tells none.
    `times`: of the agents that tell them, by name.
    """

    owned: dict[int, tuple[CopySeen, ...]]
    strays: tuple[CopySeen, ...]
    nodes: tuple[str, ...]
    partitions: int = 0
    uids: frozenset[str] = frozenset()
    times: Mapping[str, AgentTimes] = MappingProxyType({})


def absence(reading: Reading, zone: str, partitions: int, replicas: int) -> str:
    """Return why missing copies forbid a verdict; empty if none is known to be missing.

    `partitions` and `replicas`: as the zone declares them, 0 if not known.  Then the number of
    partitions is that which agents tell.  Where they do not, the copies found must at least be of a
    number of partitions that a zone can have.
    """
    owned = reading.owned
    if not owned:
        return f"no agent asked ({', '.join(reading.nodes)}) owns a copy of zone {zone}"
    partitions = partitions or reading.partitions
    count = partitions or max(owned) + 1
    missing = [partition for partition in range(count) if partition not in owned]
    if missing:
        return told_absent(missing)
    if not is_partition_count(count) or len(owned) > count:
        return (
            f"the agents asked own copies of {len(owned)} partitions, which is not"
            f" {partitions or 'a number a zone can have'}: name every agent"
        )
    few = [partition for partition, copies in owned.items() if len(copies) < replicas]
    if few:
        return (
            f"{_listed(few)} with fewer than {replicas} copies (partition {few[0]}:"
            f" {', '.join(copy.node for copy in owned[few[0]])}): name every agent, or wait until"
            " the zone is fully replicated"
        )
    return ""


def told_absent(missing: list[int]) -> str:
    """Return that these partitions have no copy, in words; empty if there are none."""
    if not missing:
        return ""
    return (
        f"no agent asked owns a copy of {_listed(missing)}: name every agent, or wait until the"
        " zone is available"
    )


def _listed(partitions: list[int]) -> str:
    shown = ", ".join(map(str, partitions[:10])) + (", …" if len(partitions) > 10 else "")
    return f"{len(partitions)} partitions ({shown})"
