"""Proven connections that this side refuses: a reason that stays the same is logged once a minute.

A refused process dials again twice a second, for as long as the reason lasts.
"""

import logging
from collections.abc import Callable

from quorate.protocol.messages.handshake import Hello, Refused
from quorate_link.link import Link
from quorate_link.settings import LinkCounters

_log = logging.getLogger("quorate.link")

LOGGED_AGAIN_S = 60.0
"""Least seconds between two warnings about one process with the same reason."""

NOTED_MAX = 1_000
"""The most processes whose last reason is noted; of more, the earliest may be logged again."""


class Refusals:
    """The last refusals. `counters.refused` counts all of them."""

    def __init__(self, counters: LinkCounters, now_s: Callable[[], float]) -> None:
        self._counters = counters
        self._now_s = now_s
        # By host, role and node, the reason and when it was logged; the earliest first.
        self._logged: dict[tuple[str, str, str], tuple[str, float]] = {}

    def add(self, link: Link, hello: Hello, refused: Refused) -> None:
        """Count and log that `link`, whose other side says `hello`, is refused."""
        self._counters.refused += 1
        level = logging.WARNING if self._is_news(link, hello, refused) else logging.DEBUG
        name = hello.node or hello.role
        _log.log(level, "link to %s at %s refused: %s", name, link.peer_name, refused.reason)

    def forget(self, link: Link, hello: Hello) -> None:
        """Note that the other side of `link` is refused no more."""
        self._logged.pop((link.host, hello.role, hello.node), None)

    def _is_news(self, link: Link, hello: Hello, refused: Refused) -> bool:
        name, now_s = (link.host, hello.role, hello.node), self._now_s()
        reason, at_s = self._logged.get(name, ("", 0.0))
        if reason == refused.reason and now_s - at_s < LOGGED_AGAIN_S:
            return False
        self._logged.pop(name, None)
        self._logged[name] = (refused.reason, now_s)
        if len(self._logged) > NOTED_MAX:
            del self._logged[next(iter(self._logged))]
        return True
