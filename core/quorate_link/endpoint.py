"""All links of one process: where it listens, which peers it dials, when its bytes leave."""

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress

from quorate.facts.addresses import join_address
from quorate.protocol.messages.handshake import Hello, RefusalCode, Refused
from quorate_link.dialed_hosts import DialedHosts
from quorate_link.handler import Handler
from quorate_link.link import Link
from quorate_link.refusals import Refusals
from quorate_link.secret import RoleKeys
from quorate_link.settings import LinkCounters, LinkSettings
from quorate_link.strangers import Strangers

_log = logging.getLogger("quorate.link")

LISTEN_BACKLOG = 512

Accept = Callable[[Hello], Refused | None]
"""Returns why the process that says this Hello is refused, or None."""


class DialedPeer:
    """An address that is dialed as long as the endpoint has it.

    A name is looked up at each attempt. `problem`: why the last attempt made no connection; "" if
    it made one. `accept`: returns why the process that answers there is refused, or None.
    """

    def __init__(
        self,
        endpoint: "Endpoint",
        host: str,
        port: int,
        node: str | None,
        accept: Accept | None = None,
    ) -> None:
        self.address = (host, port)
        self.node = node
        self.link: Link | None = None
        self.refused: Refused | None = None
        self.problem = ""
        self._endpoint = endpoint
        self._accept = accept or (lambda _: None)
        self._lost: Link | None = None  # the last lost link, until another is up
        self._wake = asyncio.Event()
        self._attempts = 0
        self._stopped = False
        self._connecting = False
        self._taking = False
        self._task = endpoint.loop.create_task(self._keep_dialing())

    def move(self, host: str, port: int) -> None:
        """Set the peer's new address, and close a link to the old one."""
        if (host, port) == self.address:
            return
        self.address = (host, port)
        self._lost = None  # a refusal there says nothing of the old process
        self._dial_anew("the peer has moved")

    def redial(self, why: str) -> None:
        """Close a present link and dial at once: the peer has another process now."""
        self._lost = None
        self._dial_anew(why)

    def _dial_anew(self, why: str) -> None:
        self._attempts = 0
        link, self.link = self.link, None
        if link is not None:
            link.abort(why)
        self._wake.set()
        if self._connecting and not self._stopped:  # at an address that may never answer
            self._connecting = False
            self._task.cancel()

    def judge(self, hello: Hello) -> Refused | None:
        """Return a refusal if another node, or another process of it, than expected answers."""
        if self.node is None or hello.node == self.node:
            return self._accept(hello)
        return Refused(
            f"node {hello.node!r} answers at {join_address(*self.address)},"
            f" {self.node!r} was expected there",
            RefusalCode.NODE,
        )

    def link_up(self, link: Link) -> None:
        """Note that the handshake is done."""
        self.link = link
        self._lost = None
        self.refused = None
        self._attempts = 0

    def stop(self) -> None:
        """Dial no more."""
        self._stopped = True
        if not self._taking:
            self._task.cancel()

    async def stopped(self) -> None:
        """Wait for the end after `stop`."""
        await asyncio.wait([self._task])

    async def _keep_dialing(self) -> None:
        settings = self._endpoint.settings
        while not self._stopped:
            try:
                link = await self._dial_once()
            except Exception:  # whatever it is: nobody else would dial this peer again
                _log.exception("dialing %s: a defect; trying again", join_address(*self.address))
                link = None
            if link is not None:
                if self._stopped:
                    link.abort("no longer needed")
                await link.ended.wait()
            if self._attempts:
                doubled = settings.redial_first_ms << min(self._attempts - 1, 16)
                await self._pause(min(doubled, settings.redial_max_ms) / 1000)
            self._attempts += 1

    async def _dial_once(self) -> Link | None:
        """Try once. None if no connection was made."""
        endpoint = self._endpoint
        self._connecting = True
        try:
            bound_s = endpoint.settings.connect_timeout_ms / 1000
            connection = await endpoint.hosts.connect(*self.address, bound_s)
        except asyncio.CancelledError:
            if self._stopped or self._connecting or self._task.uncancel():
                raise
            return None  # only this attempt was cancelled, by `_dial_anew`
        except ConnectionRefusedError:
            self.problem = ""
            endpoint.counters.dials_refused += 1
            lost, self._lost = self._lost, None
            if lost is not None:
                endpoint.handler.on_gone(lost)
            return None
        except OSError as error:  # a TimeoutError is one
            self.problem = _words_of(error)
            _log.debug("dialing %s: %s", join_address(*self.address), self.problem)
            return None
        finally:
            self._connecting = False
        self.problem = ""
        # If it were cancelled in here, uvloop would drop the transport and never report it lost.
        self._taking = True
        try:
            made, link = await endpoint.loop.create_connection(
                lambda: Link(endpoint, self), sock=connection
            )
            if made.is_closing():
                await link.ended.wait()
                # It ended before uvloop had taken it from its object: the descriptor is closed. The
                # object would close the number again, when it is another connection's or a file's.
                connection.detach()
        except (OSError, RuntimeError) as error:  # the latter: uvloop's word for one that has ended
            _log.debug("dialing %s: %s", join_address(*self.address), error)
            connection.detach()
            return None
        finally:
            self._taking = False
        return link

    async def _pause(self, seconds: float) -> None:
        self._wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def link_lost(self, link: Link, refused: Refused | None) -> None:
        """Note that the connection has ended, after a handshake or before one."""
        if refused is not None:
            self.refused = refused
            self._lost = None  # a process answers there
            self._attempts = 16  # the reason will hardly be gone in a moment
        if self.link is link:
            self.link = None
            if refused is None:
                self._lost = link


class Endpoint:
    """The links of one process. It must be made inside the event loop that it runs in."""

    def __init__(
        self,
        hello: Callable[[], Hello],
        handler: Handler,
        keys: RoleKeys,
        settings: LinkSettings | None = None,
        accept: Accept | None = None,
    ) -> None:
        self.hello = hello
        self.handler = handler
        self.keys = keys
        self.settings = settings or LinkSettings()
        self.accept: Accept = accept or (lambda _: None)
        self.counters = LinkCounters()
        self.loop = asyncio.get_running_loop()
        self.hosts = DialedHosts(self.loop)
        self._servers: list[asyncio.Server] = []
        self._peers: list[DialedPeer] = []
        self._connections: dict[Link, None] = {}  # all, in order of their making
        self._up: dict[Link, None] = {}
        self._members: dict[Link, None] = {}  # dialed, or accepted and proven
        self._strangers = Strangers(self.settings.strangers_max, self.counters, self.loop.time)
        self._refusals = Refusals(self.counters, self.loop.time)
        self._dirty: list[Link] = []
        self._flush_scheduled = False
        self._closed = False

    # --- links

    async def listen(self, host: str, port: int) -> int:
        """Accept links at host:port (0: a free port). Return the port."""
        server = await self.loop.create_server(
            lambda: Link(self, None), host, port, backlog=LISTEN_BACKLOG
        )
        self._servers.append(server)
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    def dial(
        self, host: str, port: int, node: str | None = None, accept: Accept | None = None
    ) -> DialedPeer:
        """Keep a link up to the process at host:port. `node`: the name that it must have."""
        peer = DialedPeer(self, host, port, node, accept)
        self._peers.append(peer)
        return peer

    def undial(self, peer: DialedPeer) -> None:
        """Close the peer's link, after what was sent, and dial it no more."""
        if peer in self._peers:
            self._peers.remove(peer)
        peer.stop()
        for link in list(self._connections):
            if link.peer is peer:
                link.close("no longer needed", RefusalCode.GOODBYE)

    @property
    def links(self) -> list[Link]:
        """Links that are up, oldest first."""
        return list(self._up)

    async def close(self, patience_ms: int = 1_000, *, at_once: bool = False) -> None:
        """Close everything. What was sent has `patience_ms` to leave.

        `at_once`: what has not left is dropped, and peers see what they see of a crash.
        The handler gets no calls afterwards.
        """
        if not at_once:
            self.flush()
        self._closed = True
        for server in self._servers:
            server.close()
        for peer in self._peers:
            peer.stop()
        for link in list(self._connections):
            if at_once:
                link.abort("this process has failed")
            else:
                link.close("this process is stopping", RefusalCode.GOODBYE)
        await self._all_ended(patience_ms)
        for link in list(self._connections):
            link.kill()
        await self._all_ended(100)
        self._peers.clear()

    async def _all_ended(self, patience_ms: int) -> None:
        """Wait for the end of every connection and every dialer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_ms / 1000):
                for peer in self._peers:
                    await peer.stopped()
                for link in list(self._connections):
                    await link.ended.wait()

    # --- sending

    def flush(self) -> None:
        """Write every link's buffer now, as far as its peer takes it."""
        self._flush_scheduled = False
        dirty, self._dirty = self._dirty, []
        for link in dirty:
            link.flush()

    def gather(self) -> None:
        """Hold what is sent from here on until the owner calls `flush`."""
        self._flush_scheduled = True

    def flush_later(self, link: Link) -> None:
        """Flush this link at the end of the turn."""
        self._dirty.append(link)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self.loop.call_soon(self.flush)

    # --- what links report

    def admit(self, link: Link) -> bool:
        """Take one more connection. False: this endpoint is closed.

        An accepted one gets a place among those that have proven nothing; another may have to make
        room.
        """
        if self._closed:
            return False
        self._connections[link] = None
        if link.dialed:
            self._members[link] = None
            return True
        removed = self._strangers.add(link)
        if removed is not None:
            removed.abort("others came")
        return True

    def why_full(self) -> Refused | None:
        """Return why there is no place for an accepted and proven connection, or None."""
        if len(self._members) < self.settings.links_max:
            return None
        return Refused(
            f"all {self.settings.links_max} places for links of {self.hello().node} are taken. Way"
            " out: end tools that keep connections, or start it with a higher limit of open files"
        )

    def stranger(self, link: Link, reason: str) -> None:
        """Count and log a connection whose other side has not proven that it knows the secret."""
        self._strangers.close(link, reason)

    def refuse(self, link: Link, hello: Hello, refused: Refused) -> None:
        """Count and log a connection whose other side has proven itself and is refused."""
        self._refusals.add(link, hello, refused)

    def proven(self, link: Link) -> None:
        """Count a connection as a member's: its other side is proven, even if it gets refused."""
        self._strangers.discard(link)
        self._members[link] = None

    def link_up(self, link: Link, hello: Hello) -> None:
        """Note that the handshake is done."""
        if self._closed:
            return
        self._refusals.forget(link, hello)
        if link.peer is not None:
            link.peer.link_up(link)
        elif hello.role == "agent":
            for other in self.links:
                if not other.dialed and _is_replaced_by(other.peer_hello, hello):
                    other.abort("replaced by a newer connection")
                    self._report_down(other, None)
        self._up[link] = None
        self.counters.links_opened += 1
        self.handler.on_up(link, hello)

    def link_lost(self, link: Link, refused: Refused | None) -> None:
        """Note that the connection has ended."""
        self._connections.pop(link, None)
        self._members.pop(link, None)
        self._strangers.lost(link)
        if link.peer is not None:
            link.peer.link_lost(link, refused)
        if self._closed:
            return
        if link in self._up:
            self._report_down(link, refused)
        elif link.peer is not None and refused is not None:
            self.handler.on_refused(link, refused)

    def _report_down(self, link: Link, refused: Refused | None) -> None:
        del self._up[link]
        self.counters.links_lost += 1
        self.handler.on_down(link, refused)


def _words_of(error: OSError) -> str:
    """Return the error of an attempt as a part of a sentence."""
    if isinstance(error, TimeoutError):
        return "nobody answers there in time"
    if isinstance(error, socket.gaierror):
        return f"the name cannot be looked up: {error.strerror}"
    return error.strerror or str(error)


def _is_replaced_by(hello: Hello | None, newer: Hello) -> bool:
    """Return whether a new link is of the same process, or of a later one of the same store.

    Another store, or a copy of the folder, may still run under that name. Both keep their links:
    if each ended the other's, both would dial again at once, for ever.
    """
    if hello is None or hello.role != newer.role:
        return False
    if (hello.node, hello.store) != (newer.node, newer.store):
        return False
    if hello.incarnation == newer.incarnation:
        return hello.process == newer.process
    return hello.incarnation < newer.incarnation
