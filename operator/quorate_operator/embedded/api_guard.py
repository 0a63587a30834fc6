"""Checks HTTP requests to the embedded operator.

Listening on loopback does not keep strangers out: other users of the machine reach it, and so does
any web page that the user's browser opens.  So each request must have

- a Host that means this machine, to stop DNS rebinding (a foreign name that leads here);
- no Origin but the API's own: browsers name the page that a request comes from;
- `Authorization: Bearer TOKEN`, with the token of the file `api-token` in the operator's folder,
  which only its owner may read.

Metrics and health need no token: monitoring has none, and they show names, counts and sentences, no
data.
"""

import hmac
import ipaddress
import logging
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from quorate_link.secret import write_private
from quorate_operator.process.metrics import Metrics

_log = logging.getLogger("quorate.api")

TOKEN_FILE = "api-token"
TOKEN_LENGTH_MIN = 32
OPEN_PATHS = ("/metrics", "/healthz", "/processz", "/readyz")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def made_token(folder: Path) -> str:
    """Return the token of the operator in `folder`; draw one if it is missing or short enough to
    guess.

    An empty file would let everybody in.
    """
    file = folder / TOKEN_FILE
    if not file.exists() or len(file.read_bytes().strip()) < TOKEN_LENGTH_MIN:
        write_private(file, secrets.token_hex(32) + "\n")
    file.chmod(0o600)
    return file.read_text().strip()


def make_guard(token: str, metrics: Metrics) -> Middleware:
    """Return the middleware that refuses requests that fail the checks."""

    @web.middleware
    async def guarded(request: web.Request, handler: _Handler) -> web.StreamResponse:
        refused = _refusal(request, token)
        if refused is None:
            return await handler(request)
        status, message = refused
        metrics.refused_requests.inc()
        _log.warning("%s %s refused: %s", request.method, request.path, message)
        headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
        return web.json_response({"message": message}, status=status, headers=headers)

    return guarded


def _refusal(request: web.Request, token: str) -> tuple[int, str] | None:
    host = request.headers.get("Host", "")
    if not _is_loopback(host):
        return 403, f"Host is {host!r}: use 127.0.0.1, [::1] or localhost"
    origin = request.headers.get("Origin")
    if origin is not None and origin != f"http://{host}":
        return 403, f"Origin is {origin!r}: requests from other origins are refused"
    if request.path in OPEN_PATHS:
        return None
    kind, _, shown = request.headers.get("Authorization", "").partition(" ")
    shown_bytes = shown.strip().encode(errors="surrogateescape")  # the bytes as sent
    if kind.lower() != "bearer" or not hmac.compare_digest(shown_bytes, token.encode()):
        found = "is not the operator's" if shown else "is missing"
        return 401, (
            f"the token {found}: send Authorization: Bearer TOKEN, with the contents of the file"
            f" {TOKEN_FILE} in the operator's folder"
        )
    return None


def _is_loopback(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
