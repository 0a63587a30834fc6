"""One agent's budget for what its clients make it hold, over all zones and connections.

Held is: commands that were sent and are not answered (a large one counts whole from its first
header on, for its memory is promised then) and replies that their client has not read.  Above the
budget

1. a large command is refused with `-OOM` as soon as its size is known, and its bytes are dropped;
2. where that is not enough, because unread replies fill what commands leave, the connection that
   holds the most beside admitted commands is closed, until the budget is kept.

Connections that hold little are not looked at, so commands and replies of the usual size cost
nothing here: each connection may hold `WATCHED_BYTES` beside the budget.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from quorate_agent.resp.replies import error

if TYPE_CHECKING:
    from quorate_agent.clients.connection import ClientConnection

_log = logging.getLogger("quorate.agent.memory")

WATCHED_BYTES = 256 * 1024
"""A connection that holds more counts."""

GIVEN_BACK_BYTES = 32 * 1024 * 1024
"""When so much was let go, the allocator is told to give what is free back to the system."""

UNLIMITED = 1 << 62

SETTING = "--client-memory-share"


class ClientMemory:
    """What clients make the agent hold.  `named`: the budget in words, with where it comes from."""

    def __init__(self, bytes_max: int = UNLIMITED, named: str = "") -> None:
        self.bytes_max = bytes_max
        self.held = 0
        self.refused = 0
        self.closed = 0
        self._named = named
        self._watched: dict[ClientConnection, None] = {}
        self._most = 0  # held at any time since memory was given back

    def admit(self, client: ClientConnection, more: int) -> bytes:
        """Count `more` bytes of a large command of which the client has sent a part; else the
        error that refuses it."""
        if self.held + more > self.bytes_max:
            self.measure()  # some of it was let go since the last time
            if self.held + more > self.bytes_max:
                self.refused += 1
                return error(
                    b"OOM clients hold %d MiB of this agent's memory, a command of %d MiB exceeds"
                    b" %b: try again later"
                    % (self.held >> 20, max(1, more >> 20), self._named.encode())
                )
        self._count(client, client.charged + more)
        return b""

    def watch(self, client: ClientConnection) -> None:
        """Count what the connection holds, for as long as that is much."""
        self._measure(client)

    def forget(self, client: ClientConnection) -> None:
        """The connection has ended."""
        self._count(client, 0)

    def measure(self) -> None:
        """Count anew what each connection holds that held much."""
        for client in list(self._watched):
            self._measure(client)

    def keep(self) -> None:
        """Close connections until the budget is kept: those that hold the most which nobody was
        asked for, replies above all.  A command that was admitted closes none."""
        self.measure()
        if self.held <= self.bytes_max:
            return
        unasked = {client: client.charged - client.admitted_bytes() for client in self._watched}
        for worst in sorted(unasked, key=unasked.__getitem__, reverse=True):
            if self.held <= self.bytes_max or unasked[worst] <= WATCHED_BYTES:
                return
            self.closed += 1
            _log.warning(
                "client %s is closed: it holds %d bytes beside large commands, and all clients %d,"
                " more than %s",
                worst.state.addr,
                unasked[worst],
                self.held,
                self._named,
            )
            self._count(worst, 0)
            worst.transport.abort()

    def has_to_give_back(self) -> bool:
        """Whether much was let go since memory was given back; True once."""
        if self._most - self.held < GIVEN_BACK_BYTES:
            return False
        self._most = self.held
        return True

    def _measure(self, client: ClientConnection) -> None:
        held = client.held_bytes()
        self._count(client, held if held > WATCHED_BYTES else 0)

    def _count(self, client: ClientConnection, size: int) -> None:
        if size:
            self._watched[client] = None
        else:
            self._watched.pop(client, None)
        self.held += size - client.charged
        client.charged = size
        self._most = max(self._most, self.held)


def budget(share: float, limit_bytes: int, limit_source: str) -> ClientMemory:
    """The budget that is a share of the memory limit."""
    bytes_max = int(share * limit_bytes)
    return ClientMemory(
        bytes_max,
        f"{bytes_max >> 20} MiB ({SETTING} {share:g} of {limit_bytes >> 20} MiB: {limit_source})",
    )


def _trim_of_this_process() -> Callable[[], None]:
    """What gives free memory back to the system: glibc keeps the holes below what is in use."""
    try:
        malloc_trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # another C library: its allocator decides
        return lambda: None
    malloc_trim.argtypes = [ctypes.c_size_t]

    def trim() -> None:
        malloc_trim(0)

    return trim


give_back: Callable[[], None] = _trim_of_this_process()
"""Blocks, without the GIL: for a worker thread."""
