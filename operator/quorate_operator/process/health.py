"""The HTTP answers of every operator process about itself.

/metrics; and what is wrong, if anything: /healthz and /processz with the process alone, for probes,
/readyz also with what it serves, for people.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import web
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from quorate_operator.process.metrics import Led, Metrics


class Observed(Protocol):
    """An operator, with or without Kubernetes."""

    metrics: Metrics

    def clusters(self) -> list[Led]:
        """Return every led cluster."""

    def unhealthy(self) -> str:
        """Return why this process must be restarted; empty if it need not be."""

    def process_not_ready(self) -> str:
        """Return why this process could not lead, whatever it leads; empty if it could."""

    def not_ready(self) -> str:
        """Return why it does not do all it should; empty if it does."""


def add_health(app: web.Application, observed: Observed) -> None:
    """Add the routes to `app`.  Once per process."""
    observed.metrics.observe(observed.clusters)

    async def metrics(request: web.Request) -> web.Response:
        body = generate_latest(observed.metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    app.add_routes(
        [
            web.get("/metrics", metrics),
            web.get("/healthz", _answer(observed.unhealthy)),
            web.get("/processz", _answer(observed.process_not_ready)),
            web.get("/readyz", _answer(observed.not_ready)),
        ]
    )


def _answer(problem_of: Callable[[], str]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        problem = problem_of()
        return web.Response(text=f"{problem or 'ok'}\n", status=503 if problem else 200)

    return answer
