"""The agents that report to the master that they have no room for more of one zone, and why."""

from quorate.protocol.members.cluster import Cluster
from quorate.protocol.messages.events import Reason


class FullStorages:
    """The full agents of one zone. Agents report twice a second; users get events of changes."""

    def __init__(self, cluster: Cluster, uid: str) -> None:
        self._cluster = cluster
        self._uid = uid
        self._full: dict[str, str] = {}

    def reported(self, node: str, why: str) -> bool:
        """Take the report of `node`: why it has no room, or "". Return whether that is new."""
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

    def by_node(self) -> dict[str, str]:
        """Return the reasons by node, without offline agents: these may have room by now."""
        agents = self._cluster.agents
        online = [node for node in sorted(self._full) if node in agents and agents[node].online]
        return {node: self._full[node] for node in online}
