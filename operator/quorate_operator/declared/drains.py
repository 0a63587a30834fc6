"""Drains agents that a StorageCluster says are to hold nothing; takes them back when it no longer
does.

What to do follows from the spec, the last written status and the registry.  A drain with another
cause (an address that is no longer declared) is left alone.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from quorate_operator.mastership.runner import Runner


class DrainView(NamedTuple):
    """The drains of a cluster now, by agent.  `held`: the zones that still name the agent.

    `refused`: why the master does not begin.  `unknown`: agents that are not registered.  `asked`:
    agents whose drain the spec asked for and that are not taken back yet.  `emptied`: agents that
    are drained and that no zone names.
    """

    held: tuple[tuple[str, tuple[str, ...]], ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    unknown: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    emptied: tuple[str, ...] = ()


class DeclaredDrains:
    """The drains of one cluster.  `told`: agents that the last status lists as drained."""

    def __init__(self, runner: Runner, told: Collection[str]) -> None:
        self._runner = runner
        self._asked = {*told}
        self._wanted: tuple[str, ...] | None = None

    def declare(self, wanted: Sequence[str]) -> None:
        """Set the agents that are to hold nothing."""
        self._wanted = tuple(wanted)

    def look(self) -> DrainView:
        """Begin and end drains as declared; return the state.  Idempotent."""
        runner = self._runner
        if self._wanted is None or not runner.is_leading:
            return DrainView(asked=tuple(sorted(self._asked)))
        for agent in sorted(self._asked - {*self._wanted}):
            record = runner.registration(agent)
            if record is None or not record.draining or not runner.ask_drain(agent, False):
                self._asked.discard(agent)
        refused: list[tuple[str, str]] = []
        unknown: list[str] = []
        for agent in self._wanted:
            record = runner.registration(agent)
            if record is None:
                unknown.append(agent)
                continue
            why = "" if record.draining else runner.ask_drain(agent, True)
            if why:
                refused.append((agent, why))
            else:
                self._asked.add(agent)
        named = [(agent, runner.zones_naming(agent)) for agent in self._wanted]
        others = {*unknown, *(agent for agent, _ in refused)}
        return DrainView(
            tuple((agent, zones) for agent, zones in named if zones),
            tuple(refused),
            tuple(unknown),
            tuple(sorted(self._asked)),
            tuple(agent for agent, zones in named if not zones and agent not in others),
        )
