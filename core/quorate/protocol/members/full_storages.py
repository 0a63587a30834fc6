"""Which agents have no room for more of one zone, and why, as they tell the master."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate.protocol.messages.events import Reason

if TYPE_CHECKING:
    from quorate.protocol.master.master import Master


class FullStorages:
    """One zone's.  An agent reports twice a second; users are told when it begins and ends."""

    def __init__(self, master: Master, uid: str) -> None:
        self._master = master
        self._uid = uid
        self._full: dict[str, str] = {}

    def reported(self, node: str, why: str) -> bool:
        """`node` reports why it has no room; empty: it has.  Whether that is new."""
        was_full = node in self._full
        if why:
            self._full[node] = why
        else:
            self._full.pop(node, None)
        is_new = bool(why) != was_full
        if is_new:
            reason = Reason.STORAGE_FULL if why else Reason.STORAGE_HAS_ROOM
            text = f"agent {node}: {why}" if why else f"agent {node} has room again"
            self._master.event(self._uid, None, reason, text, "Warning" if why else "Normal")
        return is_new

    def by_node(self) -> dict[str, str]:
        """Why, by node; an agent that is away cannot say that it has room by now."""
        agents = self._master.agents
        online = [node for node in sorted(self._full) if node in agents and agents[node].online]
        return {node: self._full[node] for node in online}
