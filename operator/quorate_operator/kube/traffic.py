"""Traffic between this process and the API server: requests by answer, and ages of watches.

A watch's age counts from its last sign of life: the answer with which it began, or, of declared
kinds, an event.  Each is begun again every minute (handlers.py, watch.py), so an old one is refused
or stuck.
"""

import time
from types import SimpleNamespace

import aiohttp
from prometheus_client import Counter

UNANSWERED = "none"


class Traffic:
    """Counts the requests of the sessions that it traces."""

    def __init__(self, requests: Counter) -> None:
        self._requests = requests
        self._seen_s: dict[tuple[str, str], float] = {}

    def trace(self) -> aiohttp.TraceConfig:
        """Return the trace configuration for a session."""
        trace = aiohttp.TraceConfig()
        trace.on_request_end.append(self._ended)
        trace.on_request_exception.append(self._failed)
        return trace

    def watch_seen(self, place: str, plural: str) -> None:
        """Note a sign of life of the watch of this kind in a namespace ("": in all)."""
        self._seen_s[place, plural] = time.monotonic()

    def watch_left_out(self, place: str, plural: str) -> None:
        """Note that there is no such watch: it has no age until the next sign of life."""
        self._seen_s.pop((place, plural), None)

    def watch_ages_s(self) -> dict[tuple[str, str], float]:
        """Return (namespace or "", kind) -> seconds since that watch's last sign of life."""
        now_s = time.monotonic()
        return {watch: now_s - seen_s for watch, seen_s in sorted(self._seen_s.items())}

    async def _ended(
        self,
        session: aiohttp.ClientSession,
        context: SimpleNamespace,
        parameters: aiohttp.TraceRequestEndParams,
    ) -> None:
        status = parameters.response.status
        self._requests.labels(parameters.method, str(status)).inc()
        if status < 300 and parameters.url.query.get("watch") in ("true", "1"):
            before, _, plural = parameters.url.path.rpartition("/")
            self.watch_seen(before.partition("/namespaces/")[2], plural)

    async def _failed(
        self,
        session: aiohttp.ClientSession,
        context: SimpleNamespace,
        parameters: aiohttp.TraceRequestExceptionParams,
    ) -> None:
        self._requests.labels(parameters.method, UNANSWERED).inc()
