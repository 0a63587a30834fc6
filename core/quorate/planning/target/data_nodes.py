"""A zone's data nodes: which nodes may hold its copies, and when that changes.

A node *fits* a zone if it offers the zone's storage profile and the zone's filter matches its
attributes. No other node is a data node.

Source: the scale-up and scale-down timers of IEP-131 and of Ignite 3's distribution zones;
docs/protocol.md, section 7. A node that joins becomes a data node when the zone's scale-up timer
fires, a node that leaves stops being one when the scale-down timer fires. A zone has one timer of
each kind. It counts from the last of the nodes that wait for it, and when it fires it takes in all
of them in one step. A changed filter takes effect at once.

`settle` is stateless: it looks at who is a data node, who is there, and since when. So a changed
time counts from what started the timer, and a new master goes on where the last one was.
"""

import enum
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from quorate.facts.topology import Happening
from quorate.facts.zone import NEVER_MS, DataNodes


class TimerKind(enum.StrEnum):
    """The timers of a zone."""

    SCALE_UP = "ScaleUp"
    SCALE_DOWN = "ScaleDown"
    RESET = "Reset"
    """Of a HIGH_AVAILABILITY zone: partitions without a majority narrow to what is left."""


class Member(NamedTuple):
    """A registered node as a zone's timers see it.

    `since`: the last time that it joined or, if it is away, that it left; its age is of now.
    `is_there`: it has not left. `is_voter`: a row of the zone names it. `fits`: see above.
    """

    name: str
    is_there: bool
    is_voter: bool
    since: Happening
    fits: bool = True


class Timer(NamedTuple):
    """A timer that runs.

    `nodes`: those that it will add or remove; `left_ms`: until it fires, NEVER_MS: never.
    """

    kind: TimerKind
    nodes: tuple[str, ...]
    left_ms: int

    @property
    def is_set(self) -> bool:
        """Whether it will ever fire."""
        return self.left_ms < NEVER_MS


def first_data_nodes(
    members: Collection[Member], node_filter: str = "", storage_profile: str = ""
) -> DataNodes:
    """Return the first data nodes of a zone: all that fit, and are there or hold copies."""
    names = [each.name for each in members if each.fits and (each.is_there or each.is_voter)]
    return _data_nodes(names, members, node_filter, storage_profile)


def chosen_anew(
    known: DataNodes, members: Collection[Member], node_filter: str, storage_profile: str
) -> DataNodes:
    """Return the data nodes after a change of the filter: all that fit and are there.

    Former data nodes that fit and are away go on waiting for the scale-down timer.
    """
    fitting = [member for member in members if member.fits]
    names = [each.name for each in fitting if each.is_there or each.name in known.nodes]
    return _data_nodes(names, members, node_filter, storage_profile)


def _data_nodes(
    names: Iterable[str], members: Collection[Member], node_filter: str, storage_profile: str
) -> DataNodes:
    revision = max((member.since.revision for member in members), default=0)
    return DataNodes(tuple(sorted(names)), revision, node_filter, storage_profile)


def settle(
    known: DataNodes, members: Collection[Member], up_ms: int, down_ms: int
) -> tuple[DataNodes, tuple[Timer, ...]]:
    """Return the data nodes now, and the timers that run.

    `members`: all registered nodes; a node that is no longer registered, or does not fit, is no
    data node. `up_ms`, `down_ms`: the zone's times, 0: at once, NEVER_MS: never. A node that holds
    copies, and is back, is a data node without waiting.
    """
    fitting = [member for member in members if member.fits]
    back = {member.name for member in fitting if member.is_there and member.is_voter}
    nodes = ({*known.nodes} & {member.name for member in fitting}) | back
    timers: list[Timer] = []
    up = _timer(
        TimerKind.SCALE_UP, [m for m in fitting if m.is_there and m.name not in nodes], up_ms
    )
    if up is not None and up.left_ms <= 0:
        nodes |= {*up.nodes}
    elif up is not None:
        timers.append(up)
    down = _timer(
        TimerKind.SCALE_DOWN, [m for m in fitting if not m.is_there and m.name in nodes], down_ms
    )
    if down is not None and down.left_ms <= 0:
        nodes -= {*down.nodes}
    elif down is not None:
        timers.append(down)
    if nodes == {*known.nodes}:
        return known, tuple(timers)
    changed = _data_nodes(nodes, members, known.filter, known.storage_profile)
    return changed, tuple(timers)


def _timer(kind: TimerKind, waiting: Sequence[Member], after_ms: int) -> Timer | None:
    """Return the timer that `waiting` wait for; None if there are none.

    The last of them counts. Absences that are over do not: they would put off for ever what a node
    that is gone for good needs.
    """
    if not waiting:
        return None
    last_ms = min(member.since.age_ms for member in waiting)
    left_ms = NEVER_MS if after_ms >= NEVER_MS else max(after_ms - last_ms, 0)
    return Timer(kind, tuple(sorted(member.name for member in waiting)), left_ms)
