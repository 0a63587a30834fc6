"""Accepted connections whose other side has proven nothing yet: their number is limited.

They have places of their own, beside those of members' links. When there are too many, the oldest
one of the host with the most is closed, so that many connections from one host cost no other host
any.
"""

import logging
from collections.abc import Callable

from quorate_link.link import Link
from quorate_link.settings import LinkCounters

_log = logging.getLogger("quorate.link")

SAID_S = 1.0
"""Least seconds between two log lines about strangers, which may come by the thousand."""


class Strangers:
    """At most `places` connections. `counters.strangers` counts those that end without a proof."""

    def __init__(self, places: int, counters: LinkCounters, now_s: Callable[[], float]) -> None:
        self._places = places
        self._counters = counters
        self._now_s = now_s
        self._by_host: dict[str, dict[Link, None]] = {}  # by host, the oldest first
        self._count = 0
        self._said_at_s = now_s() - SAID_S
        self._unsaid = 0

    def add(self, link: Link) -> Link | None:
        """Count `link` from now on. Return the one that is to be closed for it, if any."""
        self._by_host.setdefault(link.host, {})[link] = None
        self._count += 1
        if self._count <= self._places:
            return None
        crowd = max(self._by_host.values(), key=len)
        oldest = next(iter(crowd))
        self.close(oldest, "others came that have proven nothing either")
        return oldest

    def discard(self, link: Link) -> bool:
        """Stop counting `link`, which is proven or gone. Return whether it was counted."""
        links = self._by_host.get(link.host, {})
        if link not in links:
            return False
        del links[link]
        self._count -= 1
        if not links:
            del self._by_host[link.host]
        return True

    def lost(self, link: Link) -> None:
        """Note that the connection has ended. Without a proof that is counted but not logged.

        A health probe hangs up like this.
        """
        if self.discard(link):
            self._counters.strangers += 1

    def close(self, link: Link, reason: str) -> None:
        """Count `link` as closed without a proof, and log the reason, at most once in SAID_S."""
        self.discard(link)
        self._counters.strangers += 1
        if self._now_s() - self._said_at_s < SAID_S:
            self._unsaid += 1
            return
        others = f" (and {self._unsaid} others before)" if self._unsaid else ""
        _log.warning("link to %s closed: %s%s", link.peer_name, reason, others)
        self._said_at_s, self._unsaid = self._now_s(), 0
