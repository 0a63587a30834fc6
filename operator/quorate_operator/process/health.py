"""The HTTP answers of every operator process about itself: /metrics, /healthz, /readyz."""

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

    def not_ready(self) -> str:
        """Return why it does not do all it should; empty if it does."""


def add_health(app: web.Application, observed: Observed) -> None:
    """Add the three routes to `app`.  Once per process."""
    observed.metrics.observe(observed.clusters)

    async def metrics(request: web.Request) -> web.Response:
        body = generate_latest(observed.metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def healthz(request: web.Request) -> web.Response:
        problem = observed.unhealthy()
        return web.Response(text=f"{problem or 'ok'}\n", status=503 if problem else 200)

    async def readyz(request: web.Request) -> web.Response:
        problem = observed.not_ready()
        return web.Response(text=f"{problem or 'ok'}\n", status=503 if problem else 200)

    app.add_routes(
        [
            web.get("/metrics", metrics),
            web.get("/healthz", healthz),
            web.get("/readyz", readyz),
        ]
    )
