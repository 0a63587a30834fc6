"""Executes the large commands of a zone one after the other.

Zones do not wait for each other: one may have a stalled disk, or lack a quorum.

A command is large by its own bytes, or by what it writes: EXPIRE writes the whole value again.  An
EXEC counts as what its commands may write.

A turn encodes and sends all that its commands wrote, which takes some tenths of a second for one
value of 64 MiB.  Several in one turn, here and on the agents that hold the other copies, would make
small writes wait for all of them.  So a connection with a complete large command waits until the
earlier ones are acknowledged, the other agents have taken what they were sent, and none of them is
sending a large one itself.  A connection that could not execute it now (its client does not read,
or an earlier command waits) is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from quorate.facts.topology import NodeRecord
from quorate_agent.clients.connection import ClientConnection, Slot
from quorate_agent.clients.turn_share import LARGE_BYTES
from quorate_link import Link

TOGETHER_BYTES = 4 * 1024 * 1024
"""Commands with no more than this between them are executed together."""

PATIENCE_MS = 10_000
"""A command that is not acknowledged or not taken by another agent by then no longer holds up
others."""


ON_ITS_WAY_BYTES = 4 * 1024 * 1024
"""With more than this on one link, another large value would only make everybody's turns longer."""


def is_clear(is_held: bool, links: Iterable[Link], members: Mapping[str, NodeRecord]) -> bool:
    """Return whether hardly anything large is on its way to or from the agents that take part.

    `is_held`: long values are being written here, or long updates of other agents wait for that."""
    return not is_held and all(
        link.pending_bytes + link.incoming_bytes < ON_ITS_WAY_BYTES
        for link in links
        if link.peer_hello is not None
        and (member := members.get(link.peer_hello.node)) is not None
        and member.left_since_ms is None
    )


class _Large(NamedTuple):
    args: list[bytes]
    size: int
    since_ms: int


class LargeCommands:
    """The connections that wait with a large command, and those whose large command is executed.

    `is_clear` returns whether hardly anything large is on its way between agents."""

    def __init__(self, is_clear: Callable[[], bool] = lambda: True) -> None:
        self._is_clear = is_clear
        self.waiting: dict[ClientConnection, _Large] = {}
        self.running: dict[ClientConnection, _Large] = {}
        self._admitted_ms = -PATIENCE_MS

    def __bool__(self) -> bool:
        """Return whether time, or an acknowledgement, may let a connection go on."""
        return bool(self.waiting or self.running)

    def wait(self, client: ClientConnection, args: list[bytes], size: int, now_ms: int) -> None:
        """Block a connection with a large command in its backlog until its turn comes."""
        running = self.running.get(client)
        if client in self.waiting or (running is not None and _is_in_backlog(client, running)):
            return  # it goes with the earlier one, which it must not hold up
        client.blocked += 1
        self.waiting[client] = _Large(args, size, now_ms)
        self.look(now_ms)

    def admits(self, client: ClientConnection, args: list[bytes], size: int, now_ms: int) -> bool:
        """Return whether a command that would write `size` bytes is executed now.

        If not, its connection is blocked, and the command belongs at the front of its backlog."""
        running = self.running.get(client)
        if size < LARGE_BYTES or (running is not None and running.args is args):
            return True
        self.wait(client, args, size, now_ms)
        return client not in self.waiting

    def look(self, now_ms: int) -> None:
        """Let the connections go on whose turn has come."""
        for client, large in list(self.running.items()):
            if _is_done(client, large) or now_ms - large.since_ms >= PATIENCE_MS:
                del self.running[client]
            elif _cannot_go_on(client) and _is_in_backlog(client, large):
                del self.running[client]  # an earlier command blocks it: others go first
                client.blocked += 1
                self.waiting[client] = large
        for client, large in list(self.waiting.items()):
            if _cannot_go_on(client, but_for=1):
                continue  # it is looked at again within a tick
            if self.running:
                taken = sum(each.size for each in self.running.values())
                if client in self.running or taken + large.size > TOGETHER_BYTES:
                    return
            if not self._is_clear() and now_ms - self._admitted_ms < PATIENCE_MS:
                return
            del self.waiting[client]
            self.running[client] = large._replace(since_ms=now_ms)
            self._admitted_ms = now_ms
            client.blocked -= 1
            client.endpoint.go_on(client)

    def client_gone(self, client: ClientConnection, now_ms: int) -> None:
        """Forget a client that is gone."""
        self.running.pop(client, None)
        if self.waiting.pop(client, None) is not None:
            client.blocked -= 1
        self.look(now_ms)


def _cannot_go_on(client: ClientConnection, but_for: int = 0) -> bool:
    """Return whether the connection executes nothing now, ignoring `but_for` of the reasons it is
    blocked."""
    return client.blocked > but_for or not client.has_room()


def is_exec(args: list[bytes]) -> bool:
    """Return whether the command is EXEC, whose queued commands may be large."""
    return bool(args) and args[0].upper() == b"EXEC"


def _is_in_backlog(client: ClientConnection, large: _Large) -> bool:
    return any(command is large.args for _, command in client.backlog)


def _is_done(client: ClientConnection, large: _Large) -> bool:
    """Return whether the command was executed and waits for no acknowledgement.

    A parked command does not count: it waits for something else.  For an EXEC, any slot that waits
    counts, because its slot has other words."""
    is_any = is_exec(large.args)
    return not _is_in_backlog(client, large) and not any(
        isinstance(place, Slot)
        and (is_any or place.args is large.args)
        and not (place.done or place.deadline_ms)
        for place in client.queue
    )
