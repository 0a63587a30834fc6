"""Watches whether a zone's storage has room: logs, reports and measures it, and tells the copies.

It looks once a second, not per command; a full disk is logged once when it begins and once when it
is over.  It is over after there was room for a while, because compaction takes and frees room all
the time.
"""

import logging
from typing import Final, Protocol

from quorate.protocol.agent.replicas import Replicas

_log = logging.getLogger("quorate.agent.room")

OVER_S: Final = 3.0
WHY_LENGTH_MAX: Final = 300


class Roomy(Protocol):
    """A storage engine, as far as room is concerned."""

    @property
    def full_reason(self) -> str:
        """Why nothing may grow; empty: it may."""

    @property
    def is_short(self) -> bool:
        """Whether copies must take no more updates."""


class RoomWatch:
    """Keeps one zone's `replicas.why_full`, which is reported to the master.

    It does not change while the room is lacking, so that a status with it is not rewritten with
    every byte."""

    def __init__(self, replicas: Replicas, storage: Roomy) -> None:
        self._replicas = replicas
        self._storage = storage
        self._full_at = 0.0

    def look(self, now_s: float) -> None:
        """Look once; `now_s` is monotonic."""
        replicas, why = self._replicas, self._storage.full_reason[:WHY_LENGTH_MAX]
        replicas.set_short_of_room(self._storage.is_short)
        who = (replicas.me.node, replicas.record.name)
        if why:
            if not replicas.why_full:
                _log.warning(
                    "agent %s, zone %s: no room, commands that need some are refused: %s", *who, why
                )
                replicas.why_full = why
            self._full_at = now_s
        elif replicas.why_full and now_s - self._full_at >= OVER_S:
            replicas.why_full = ""
            _log.info("agent %s, zone %s: there is room again", *who)
