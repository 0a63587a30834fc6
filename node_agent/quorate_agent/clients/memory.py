"""One agent's memory budget for its clients, over all zones and connections.

What counts: commands that were sent and are not answered (a large one counts whole from its first
header on, because its memory is promised then), and replies that their client has not read.  Above
the budget:

1. A large command is refused with `-OOM` as soon as its size is known, and its bytes are dropped.
2. If that is not enough, because of unread replies, connections are closed until the budget is
   kept, beginning with the one that holds the most beside admitted commands.

Each connection may hold `WATCHED_BYTES` outside the budget.  Connections that hold less are not
looked at, so commands and replies of usual size cost nothing here.
"""

from __future__ import annotations

import ctypes
import logging
from asyncio import WriteTransport
from collections.abc import Callable
from typing import Protocol

from quorate_agent.resp.replies import error
from quorate_agent.resp.session import Connection

_log = logging.getLogger("quorate.agent.memory")

WATCHED_BYTES = 256 * 1024
"""A connection that holds more than this counts."""

GIVEN_BACK_BYTES = 32 * 1024 * 1024
"""After this much was freed, the allocator is told to return free memory to the system."""

UNLIMITED = 1 << 62

SETTING = "--client-memory-share"


class CountedConnection(Protocol):
    """A connection, as far as the budget needs it.  `charged`: the bytes counted for it."""

    charged: int

    @property
    def state(self) -> Connection:
        """The connection as its commands see it."""

    @property
    def transport(self) -> WriteTransport:
        """Its socket."""

    def held_bytes(self) -> int:
        """Return the bytes that the agent holds for this connection: unanswered commands and
        replies."""

    def admitted_bytes(self) -> int:
        """Return the bytes it holds of large commands that the memory budget has admitted."""


class ClientMemory:
    """The budget and what counts in it.  `named`: the budget in words, with its source."""

    def __init__(self, bytes_max: int = UNLIMITED, named: str = "") -> None:
        self.bytes_max = bytes_max
        self.held = 0
        self.refused = 0
        self.closed = 0
        self._named = named
        self._watched: dict[CountedConnection, None] = {}
        self._most = 0  # the highest `held` since memory was given back

    def admit(self, client: CountedConnection, more: int) -> bytes:
        """Count `more` bytes of a large command that is arriving.

        Returns b"", or the error reply that refuses the command."""
        if self.held + more > self.bytes_max:
            self.measure()  # some may have been freed since the last count
            if self.held + more > self.bytes_max:
                self.refused += 1
                return error(
                    b"OOM clients hold %d MiB of this agent's memory, a command of %d MiB exceeds"
                    b" %b: try again later"
                    % (self.held >> 20, max(1, more >> 20), self._named.encode())
                )
        self._count(client, client.charged + more)
        return b""

    def watch(self, client: CountedConnection) -> None:
        """Count what the connection holds, for as long as that is more than `WATCHED_BYTES`."""
        self._measure(client)

    def forget(self, client: CountedConnection) -> None:
        """Stop counting a connection that has ended."""
        self._count(client, 0)

    def measure(self) -> None:
        """Count again what each watched connection holds."""
        for client in list(self._watched):
            self._measure(client)

    def keep(self) -> None:
        """Close connections until the budget is kept, those first that hold the most apart from
        admitted commands.

        That is mostly unread replies.  Admitted commands never close a connection."""
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
        """Return True once after much memory was freed since the last time it was given back."""
        if self._most - self.held < GIVEN_BACK_BYTES:
            return False
        self._most = self.held
        return True

    def _measure(self, client: CountedConnection) -> None:
        held = client.held_bytes()
        self._count(client, held if held > WATCHED_BYTES else 0)

    def _count(self, client: CountedConnection, size: int) -> None:
        if size:
            self._watched[client] = None
        else:
            self._watched.pop(client, None)
        self.held += size - client.charged
        client.charged = size
        self._most = max(self._most, self.held)


def budget(share: float, limit_bytes: int, limit_source: str) -> ClientMemory:
    """Return the budget: the share `share` of the memory limit."""
    bytes_max = int(share * limit_bytes)
    return ClientMemory(
        bytes_max,
        f"{bytes_max >> 20} MiB ({SETTING} {share:g} of {limit_bytes >> 20} MiB: {limit_source})",
    )


def _trim_of_this_process() -> Callable[[], None]:
    """Return the function that returns free memory to the system.

    By itself glibc keeps the free blocks below one that is in use."""
    try:
        malloc_trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # another C library: left to its allocator
        return lambda: None
    malloc_trim.argtypes = [ctypes.c_size_t]

    def trim() -> None:
        malloc_trim(0)

    return trim


give_back: Callable[[], None] = _trim_of_this_process()
"""Returns free memory to the system.  Blocks, but releases the GIL: call it on a worker thread."""
