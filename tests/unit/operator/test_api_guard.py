"""The embedded operator's API answers its owner alone: not the machine's users, not web pages."""

import asyncio
import stat
from pathlib import Path

import aiohttp
import pytest

from quorate_loopback.embedded_api import ROOT, Server
from quorate_operator.embedded.api_guard import TOKEN_FILE, made_token

CHANGES = [
    ("POST", "/nodes/agent-1/drain"),
    ("POST", "/nodes/agent-1/undrain"),
    ("DELETE", "/nodes/agent-1"),
    ("PUT", f"{ROOT}/zones/z"),
    ("DELETE", f"{ROOT}/zones/z"),
    ("POST", "/judge"),
    ("POST", "/zones/z/recover"),
]
SHOWS = [("GET", "/status"), ("GET", "/events"), ("GET", f"{ROOT}/zones"), ("GET", "/plan/z")]


async def asked(
    root: str, method: str, path: str, headers: dict[str, str]
) -> tuple[int, str, dict[str, str]]:
    """Status, body and headers of an answer."""
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, root + path, headers=headers) as answer,
    ):
        return answer.status, await answer.text(), dict(answer.headers)


async def test_without_the_token_nothing_is_changed_and_nothing_shown(server: Server) -> None:
    root = await server.start()
    for method, path in (*CHANGES, *SHOWS, ("GET", "/no-such-path")):
        for shown in ({}, {"Authorization": "Bearer x"}, {"Authorization": "Basic eDp4"}):
            status, text, headers = await asked(root, method, path, shown)

            assert status == 401, (method, path)
            assert "send Authorization: Bearer TOKEN, with the contents of the file" in text
            assert headers["WWW-Authenticate"] == "Bearer"
    _, metrics, _ = await asked(root, "GET", "/metrics", {})
    assert f"requests_total {3.0 * (len(CHANGES) + len(SHOWS) + 1)}" in metrics


async def test_a_page_from_elsewhere_is_refused_also_with_the_token(server: Server) -> None:
    root = await server.start()
    own = root
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", "https" + own[4:]):
        for method, path in (*CHANGES, *SHOWS, ("GET", "/metrics")):
            status, text, _ = await asked(root, method, path, {**server.headers, "Origin": origin})

            assert status == 403, (method, path, origin)
            assert "requests from other origins are refused" in text
    assert (await asked(root, "GET", "/status", {**server.headers, "Origin": own}))[0] == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:1", "127.0.0.1.evil.example", "10.0.0.1", "", "[::2]", "["],
)
async def test_a_foreign_name_that_leads_here_is_refused(server: Server, host: str) -> None:
    root = await server.start()

    for path in ("/status", "/metrics"):
        status, text, _ = await asked(root, "GET", path, {**server.headers, "Host": host})

        assert status == 403
        assert "use 127.0.0.1, [::1] or localhost" in text


@pytest.mark.parametrize("host", ["localhost:7600", "127.0.0.1", "[::1]:7600", "127.8.8.8:1"])
async def test_names_of_this_machine_are_answered(server: Server, host: str) -> None:
    root = await server.start()

    assert (await asked(root, "GET", "/status", {**server.headers, "Host": host}))[0] == 200


async def test_what_watches_the_process_needs_no_token(server: Server) -> None:
    root = await server.start()

    for path in ("/metrics", "/healthz", "/processz", "/readyz"):
        assert (await asked(root, "GET", path, {}))[0] == 200


def test_the_token_is_drawn_once_and_for_its_owner(tmp_path: Path) -> None:
    token = made_token(tmp_path)
    file = tmp_path / TOKEN_FILE
    file.chmod(0o644)

    assert made_token(tmp_path) == token
    assert len(token) == 64
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("left", ["", "\n", "short"])
async def test_a_token_file_without_a_token_gets_one(
    server: Server, tmp_path: Path, left: str
) -> None:
    (tmp_path / TOKEN_FILE).write_text(left)
    assert len(made_token(tmp_path)) == 64

    root = await server.start()

    status, _, _ = await asked(root, "GET", "/status", {"Authorization": "Bearer"})
    assert status == 401


async def test_a_token_that_is_no_text_is_refused(server: Server) -> None:
    root = await server.start()
    host, port = root.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    asks = b"GET /status HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n" % root[7:].encode()
    writer.write(asks + b"Authorization: Bearer \xff\xfe\r\n\r\n")

    assert (await reader.readline()).split()[1] == b"401"
    writer.close()
