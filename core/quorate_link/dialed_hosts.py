"""Connect to hosts by name or address. A name is looked up anew at each attempt."""

import asyncio
import errno
import socket
from typing import Any, NamedTuple

from quorate.facts.addresses import is_ip


class Address(NamedTuple):
    """A destination of a socket."""

    family: socket.AddressFamily
    sockaddr: tuple[object, ...]


class DialedHosts:
    """Looks names up and connects.

    Each name has one look-up at a time, because each look-up blocks a thread for as long as a name
    server is silent.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._looking: dict[tuple[str, int], asyncio.Task[list[Address]]] = {}

    async def connect(self, host: str, port: int, bound_s: float) -> socket.socket:
        """Return a socket that is connected to one of the host's addresses.

        The addresses are tried in the order of the name server, each for an equal part of the time
        left of `bound_s` seconds. Raises ConnectionRefusedError if all refuse; else the last
        problem that was no refusal, an OSError or TimeoutError.
        """
        problem: OSError | None = None
        refused: OSError | None = None
        deadline = self._loop.time() + bound_s
        async with asyncio.timeout_at(deadline):
            addresses = await self._look_up(host, port)
        for at, address in enumerate(addresses):
            share_s = (deadline - self._loop.time()) / (len(addresses) - at)
            try:
                async with asyncio.timeout(share_s):
                    return await self._connect(address)
            except ConnectionRefusedError as error:
                refused = error
            except OSError as error:  # a TimeoutError is one
                problem = error
        raise problem or refused or OSError(errno.EADDRNOTAVAIL, "the name has no address")

    async def _look_up(self, host: str, port: int) -> list[Address]:
        looking = self._looking.get((host, port))
        if looking is None:
            looking = self._loop.create_task(self._addresses(host, port))
            self._looking[host, port] = looking
            looking.add_done_callback(lambda ended: self._looked_up(host, port, ended))
        return await asyncio.shield(looking)  # the others that wait still need it

    def _looked_up(self, host: str, port: int, ended: asyncio.Task[list[Address]]) -> None:
        self._looking.pop((host, port), None)
        if not ended.cancelled():
            ended.exception()  # marks it as seen; callers still waiting get it

    async def _addresses(self, host: str, port: int) -> list[Address]:
        if is_ip(host):
            found = self._system(host, port)
        else:
            found = await self._loop.run_in_executor(None, self._system, host, port)
        return list(dict.fromkeys(Address(family, at) for family, _, _, _, at in found))

    @staticmethod
    def _system(host: str, port: int) -> list[tuple[Any, ...]]:
        try:
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError as error:  # no DNS name: it has a label that is too long, for example
            raise socket.gaierror(socket.EAI_NONAME, str(error)) from error

    async def _connect(self, address: Address) -> socket.socket:
        connection = socket.socket(address.family, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.sock_connect(connection, address.sockaddr)
        except BaseException:
            connection.close()
            raise
        return connection
