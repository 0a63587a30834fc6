"""Asks the pod of a Job how far it is: a percentage at a port, and nothing else.

The pod has no rights at the API server, so it cannot write it anywhere itself.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp

from quorate.facts.addresses import bracketed
from quorate_operator.jobs.job import PROGRESS_PORT
from quorate_operator.kube.sockets import connector

TIMEOUT_S = 2.0
ANSWER_BYTES_MAX = 16

Json = Mapping[str, Any]


def running_at(pods: Sequence[Json]) -> str:
    """Return the address of the pod that runs; empty if there is none."""
    for pod in pods:
        status = pod.get("status") or {}
        if status.get("phase") == "Running" and status.get("podIP"):
            return str(status["podIP"])
    return ""


async def percent_at(address: str, port: int = PROGRESS_PORT) -> int | None:
    """Return how far the pod at this address is, in percent; None if it does not answer so."""
    url = f"http://{bracketed(address)}:{port}/"
    try:
        async with (
            aiohttp.ClientSession(
                connector=connector(), timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)
            ) as session,
            session.get(url, allow_redirects=False) as answer,
        ):
            text = await answer.content.read(ANSWER_BYTES_MAX)
    except (aiohttp.ClientError, TimeoutError, OSError):
        return None
    digits = text.decode("ascii", "replace").strip()
    percent = int(digits) if answer.status == 200 and digits.isdecimal() else -1
    return percent if 0 <= percent <= 100 else None
