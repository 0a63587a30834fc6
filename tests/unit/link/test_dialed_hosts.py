"""Names that are dialed: looked up anew each time, one look-up at a time, every address tried."""

import asyncio
import errno
import socket
import threading
from typing import Any

import pytest

from quorate_link.dialed_hosts import DialedHosts
from quorate_loopback.sides import HOST, Side
from quorate_loopback.waiting import until

NAME = "agent-1.main.svc"


def _found(*hosts: str, port: int) -> list[Any]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in hosts]


class _Names:
    """What the name server says; None: it is silent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hosts: list[str] | None = []
        self.asked = 0
        self._known = socket.getaddrinfo
        self.answers = threading.Event()
        monkeypatch.setattr(DialedHosts, "_system", staticmethod(self._look_up))

    def _look_up(self, host: str, port: int) -> Any:
        if host != NAME:
            return self._known(host, port, type=socket.SOCK_STREAM)
        self.asked += 1
        if self.hosts is None:
            self.answers.wait(30)
        if not self.hosts:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return _found(*self.hosts, port=port)


def test_a_name_is_looked_up_again_when_its_host_has_gone(run, monkeypatch) -> None:
    names = _Names(monkeypatch)

    async def scenario() -> None:
        first, second, client = Side("agent-1"), Side("agent-1"), Side("", role="master")
        port = await first.listen()
        names.hosts = [HOST]
        peer = client.open().dial(NAME, port, "agent-1")
        await until(lambda: client.count("up", "agent-1"))
        names.hosts = ["127.0.0.2"]
        await second.open().listen("127.0.0.2", port)

        await first.endpoint.close()

        await until(lambda: client.count("up", "agent-1") == 2)
        assert second.endpoint.links
        assert peer.problem == ""

    run(scenario)


def test_a_link_that_is_given_up_is_dialed_where_the_name_leads_now(run, monkeypatch) -> None:
    names = _Names(monkeypatch)

    async def scenario() -> None:
        first, second, client = Side("agent-1"), Side("agent-1"), Side("agent-2")
        port = await first.listen()
        names.hosts = [HOST]
        peer = client.open().dial(NAME, port, "agent-1")
        await until(lambda: peer.link)
        names.hosts = ["127.0.0.2"]
        await second.open().listen("127.0.0.2", port)

        peer.redial("its node has a later process")  # the host of the first does not say a word

        await until(lambda: second.endpoint.links)
        assert not client.count("gone", "agent-1")

    run(scenario)


def test_a_name_that_cannot_be_one_is_told_as_such_and_dialed_on(run) -> None:
    async def scenario() -> None:
        peer = Side("", role="master").open().dial("a" * 64, 7100)

        await until(lambda: peer.problem)
        assert peer.problem.startswith("the name cannot be looked up: ")
        peer.problem = ""
        await until(lambda: peer.problem)

    run(scenario)


def test_a_name_that_is_not_known_is_told_as_such(run, monkeypatch) -> None:
    names = _Names(monkeypatch)

    async def scenario() -> None:
        client = Side("", role="master")
        peer = client.open().dial(NAME, 7100)

        await until(lambda: peer.problem)
        assert peer.problem == "the name cannot be looked up: Name or service not known"
        assert names.asked

    run(scenario)


def test_every_address_of_a_name_is_tried(run, monkeypatch) -> None:
    names = _Names(monkeypatch)

    async def scenario() -> None:
        server, client = Side("agent-1"), Side("", role="master")
        port = await server.open().listen("127.0.0.2", 0)
        names.hosts = [HOST, "127.0.0.2"]  # at the first nobody listens

        client.open().dial(NAME, port)

        await until(lambda: client.count("up", "agent-1"))
        assert not client.endpoint.counters.dials_refused

    run(scenario)


def test_only_what_all_addresses_refuse_is_refused(run, monkeypatch) -> None:
    names = _Names(monkeypatch)
    free = socket.socket()
    free.bind((HOST, 0))
    port = free.getsockname()[1]
    free.close()

    async def scenario() -> None:
        hosts = DialedHosts(asyncio.get_running_loop())
        names.hosts = [HOST, "127.0.0.2"]
        with pytest.raises(ConnectionRefusedError):
            await hosts.connect(NAME, port, 5)
        names.hosts = [HOST, "255.255.255.255", "127.0.0.2"]
        with pytest.raises(OSError, match=r"Errno (101|13|22|110)") as met:
            await hosts.connect(NAME, port, 5)
        assert met.value.errno != errno.ECONNREFUSED

    run(scenario)


def test_a_silent_name_server_is_asked_once_at_a_time(run, monkeypatch) -> None:
    names = _Names(monkeypatch)
    names.hosts = None

    async def scenario() -> None:
        hosts = DialedHosts(asyncio.get_running_loop())
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await hosts.connect(NAME, 7100, 0.05)
        names.answers.set()
        assert names.asked == 1

    run(scenario)
