"""Agents' reports on their storage of one zone: no room, and rows that are set aside."""

from collections.abc import Iterable

from quorate.protocol.members.cluster import Cluster
from quorate.protocol.messages.events import Reason
from quorate.protocol.messages.master import AgentReport, AsideReport

NOTHING_ASIDE = AsideReport()


class ReportedStorages:
    """The reports about one zone. Agents report twice a second; users get events of changes."""

    def __init__(self, cluster: Cluster, uid: str) -> None:
        self._cluster = cluster
        self._uid = uid
        self._full: dict[str, str] = {}
        self._aside: dict[str, AsideReport] = {}

    def reported(self, node: str, report: AgentReport) -> bool:
        """Take a report; return whether it is new that the agent has room, or that it has none."""
        self._note_aside(node, report.aside.get(self._uid, NOTHING_ASIDE))
        why = report.full.get(self._uid, "")
        was_full = node in self._full
        if why:
            self._full[node] = why
        else:
            self._full.pop(node, None)
        is_new = bool(why) != was_full
        if is_new:
            reason = Reason.STORAGE_FULL if why else Reason.STORAGE_HAS_ROOM
            text = f"agent {node}: {why}" if why else f"agent {node} has room again"
            self._cluster.event(self._uid, None, reason, text, "Warning" if why else "Normal")
        return is_new

    def _note_aside(self, node: str, aside: AsideReport) -> None:
        before = self._aside.get(node)
        self._aside[node] = aside
        if before is None or aside.dropped <= before.dropped:
            return  # the agent dropped it before this master or its own process began
        about = (
            f"agent {node} has dropped rows of {aside.dropped - before.dropped} copies that were"
            " set aside, before their time: they took more than its share of the disk for them"
            " (--aside-share), or a partition had too many"
        )
        self._cluster.event(self._uid, None, Reason.ASIDE_DROPPED, about, "Warning")

    def has_room(self, node: str) -> bool:
        """Return whether the agent has room for more."""
        return node not in self._full

    def full(self) -> dict[str, str]:
        """Return why agents have no room, without offline agents: these may have some by now."""
        return {node: self._full[node] for node in self._online(self._full)}

    def aside(self) -> dict[str, tuple[int, int]]:
        """Return (number of copies, bytes) set aside by agent, of agents that are there."""
        aside = self._aside
        nodes = [node for node in self._online(aside) if aside[node].copies]
        return {node: (aside[node].copies, aside[node].bytes) for node in nodes}

    def _online(self, nodes: Iterable[str]) -> list[str]:
        agents = self._cluster.agents
        return [node for node in sorted(nodes) if node in agents and agents[node].online]
