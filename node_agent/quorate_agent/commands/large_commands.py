"""Large commands are executed one after the other, in all zones of an agent.

A turn encodes and sends all that its commands wrote.  For one value of 64 MiB that takes some
tenths of a second; several in one turn, here and on the agents that hold the other copies, would
make small writes wait for all of them.  So a connection whose large command is complete waits until
those before it are acknowledged, the other agents have taken what they were sent, and none of them
is sending a large one itself.  One that could not execute it now (its client reads nothing, a
command before it waits) is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from quorate.facts.topology import NodeRecord
from quorate_agent.clients.connection import ClientConnection, Slot
from quorate_link import Link

LARGE_BYTES = 1024 * 1024
"""A command of so many bytes waits for its turn."""

TOGETHER_BYTES = 4 * 1024 * 1024
"""Commands that have no more than this between them are executed together."""

PATIENCE_MS = 10_000
"""What is not acknowledged by then, or not taken by another agent, holds up others no more."""


ON_ITS_WAY_BYTES = 4 * 1024 * 1024
"""Beside more than this on one link another large value would only lengthen everybody's turns."""


def is_clear(is_held: bool, links: Iterable[Link], members: Mapping[str, NodeRecord]) -> bool:
    """Whether hardly anything large is on its way to or from agents that take part; `is_held`:
    long values are being written, or long updates of others wait for that."""
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
    """Who waits with a large command, and whose are executed.  `is_clear`: whether hardly
    anything large is on its way between agents."""

    def __init__(self, is_clear: Callable[[], bool] = lambda: True) -> None:
        self._is_clear = is_clear
        self.waiting: dict[ClientConnection, _Large] = {}
        self.running: dict[ClientConnection, _Large] = {}
        self._admitted_ms = -PATIENCE_MS

    def __bool__(self) -> bool:
        """Whether time, or an acknowledgement, may let somebody go on."""
        return bool(self.waiting or self.running)

    def wait(self, client: ClientConnection, args: list[bytes], size: int, now_ms: int) -> None:
        """The connection's backlog has a large command: block it until it is its turn."""
        running = self.running.get(client)
        if client in self.waiting or (running is not None and _is_in_backlog(client, running)):
            return  # it goes with the one before it, which this must not hold up
        client.blocked += 1
        self.waiting[client] = _Large(args, size, now_ms)
        self.look(now_ms)

    def look(self, now_ms: int) -> None:
        """Let those go on whose turn has come."""
        for client, large in list(self.running.items()):
            if _is_done(client, large) or now_ms - large.since_ms >= PATIENCE_MS:
                del self.running[client]
            elif _cannot_go_on(client) and _is_in_backlog(client, large):
                del self.running[client]  # what is before it blocks: others first
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
        """A client went away."""
        self.running.pop(client, None)
        if self.waiting.pop(client, None) is not None:
            client.blocked -= 1
        self.look(now_ms)


def _cannot_go_on(client: ClientConnection, but_for: int = 0) -> bool:
    """Whether the connection executes nothing now, also if it were blocked so many times less."""
    return client.blocked > but_for or not client.has_room()


def is_exec(args: list[bytes]) -> bool:
    """Whether it executes what was queued before, which may be large."""
    return bool(args) and args[0].upper() == b"EXEC"


def _is_in_backlog(client: ClientConnection, large: _Large) -> bool:
    return any(command is large.args for _, command in client.backlog)


def _is_done(client: ClientConnection, large: _Large) -> bool:
    """Whether the command was executed and waits for no acknowledgement; one that is parked waits
    for something else.  What an EXEC waits with has other words."""
    is_any = is_exec(large.args)
    return not _is_in_backlog(client, large) and not any(
        isinstance(place, Slot)
        and (is_any or place.args is large.args)
        and not (place.done or place.deadline_ms)
        for place in client.queue
    )
