"""The client ports of zones, and the sockets bound to them.

A port is chosen by the agent or given to the zone by the master.  A zone without a port is not
opened: as a primary that no client can reach, the agent would be of no use.
"""

import asyncio
import errno
import socket

from quorate.protocol.storage import ZoneRefused

PORTS_TRIED = 2000
"""More than the zones of one machine plus the ports of other programs between them, but few enough
that a machine without free ports is noticed soon."""

BACKLOG = 1024

Address = tuple[socket.AddressFamily, str]


class ClientPorts:
    """The client ports of one agent, from `base` up."""

    def __init__(self, host: str, base: int, external_offset: int = 0) -> None:
        """`external_offset`: external listeners have each port plus this; 0: there are none."""
        self._external_offset = external_offset
        self._host = host
        self._base = base
        self._addresses: list[Address] = []
        self._problem = "not looked up yet"
        self._taken: dict[str, int] = {}

    async def look_up(self) -> bool:
        """Resolve the addresses of the host; return whether it has any."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(
                self._host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        except (OSError, UnicodeError) as error:  # a UnicodeError: it cannot be a DNS name
            self._problem = str(error)
            return False
        self._addresses = list(dict.fromkeys((family, str(at[0])) for family, *_, at in found))
        return True

    def bind(self, uid: str, wanted: int) -> list[socket.socket]:
        """Return listening sockets for a zone: on port `wanted` if it is free, else on the first
        free one.

        `wanted` 0 means any.  Sockets of the external port follow.  Raises ZoneRefused if none is
        free."""
        last = min(self._base + PORTS_TRIED, 65536 - self._external_offset)
        used = set(self._taken.values())
        tried = [port for port in (wanted, *range(self._base, last)) if port and port not in used]
        problem = "every port is used by another zone"
        for port in tried:
            try:
                return self._listen(uid, port)
            except OSError as error:
                problem = f"port {port}: {error.strerror or error}"
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    break
        raise ZoneRefused(
            f"no port to listen on for its clients from {self._base} to {last - 1}, the last tried:"
            f" {problem}. Way out: free some, or start the agent with another --client-port-base"
        )

    def bind_given(self, uid: str, port: int) -> list[socket.socket]:
        """Return listening sockets for a zone on the port that the master gave it.

        Raises ZoneRefused if the master gave none, or the port is not free."""
        if not port:
            raise ZoneRefused(
                "the master has given it no client port, and this agent uses no other one: it is"
                " opened when there is one. Way out: look at the zone's conditions, or start the"
                " agent without --client-ports-from-master"
            )
        if port in self._taken.values():
            raise ZoneRefused(
                f"client port {port}, which the master gave it, is still another zone's here: it is"
                " opened when that one has closed"
            )
        try:
            return self._listen(uid, port)
        except OSError as error:
            outside = f" or {port + self._external_offset}, the external one" * self._has_external
            raise ZoneRefused(
                f"client port {port}, which the master gave it{outside}, cannot be listened on:"
                f" {error.strerror or error}. Way out: end what has the port at {self._host}"
            ) from error

    @property
    def _has_external(self) -> bool:
        return self._external_offset > 0

    def _listen(self, uid: str, port: int) -> list[socket.socket]:
        """Listen on the port at all addresses; after an OSError none of the sockets is kept."""
        if not self._addresses:
            raise ZoneRefused(
                f"the client host {self._host} has no address: {self._problem}. Way out: start the"
                " agent with another --client-host"
            )
        sockets: list[socket.socket] = []
        try:
            for at in [port, port + self._external_offset][: 1 + self._has_external]:
                for family, host in self._addresses:
                    sockets.append(_listening(family, host, at))
        except OSError:
            for each in sockets:
                each.close()
            raise
        self._taken[uid] = port
        return sockets

    def give_back(self, uid: str) -> None:
        """Free the port of a zone that is closed."""
        self._taken.pop(uid, None)


def _listening(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((host, port))
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    return made
