"""How a client is told what it did not ask for: whole frames between whole replies.

A frame may be a push of RESP3 or a message of publish/subscribe in RESP2: bytes ready to be sent.
What a connection sends is a row of whole replies at any moment, so a frame behind the last of them
cuts none in two; replies that still wait follow it, or go before it, as the caller wants.  A client
that reads nothing is cut off at the bound of all its output (clients/connection.py).
"""

from __future__ import annotations

from quorate_agent.clients.connection import OUTPUT_BYTES_MAX, ClientConnection

WAITING_MAX = 100_000
"""A connection is cut off when so many replies and frames wait in its queue: one that waits for
ever (WAIT 1 0) must not gather what it is told for ever."""


def push(client: ClientConnection, frame: bytes) -> None:
    """Send `frame` now: behind the replies that are ready, ahead of those that still wait.

    Nothing happens when the connection is closing.  Several frames at once are one call with all
    of their bytes: each call is a write.
    """
    if not _is_closing(client):
        client.out.append(frame)
        client.write()
        _cut_off_unless_read(client)


def push_in_order(client: ClientConnection, frame: bytes) -> None:
    """Send `frame` behind every reply that the client still waits for, such as the confirmation of
    what it subscribed to."""
    if _is_closing(client):
        return
    client.told_behind = client.told_behind + len(frame) if client.queue else 0
    if client.told_behind > OUTPUT_BYTES_MAX:  # most of it has left since, perhaps
        waiting = [place for place in client.queue if isinstance(place, bytes)]
        client.told_behind = sum(map(len, waiting)) + len(frame)
    if len(client.queue) >= WAITING_MAX or client.told_behind > OUTPUT_BYTES_MAX:
        client.transport.abort()
        return
    client.answer(frame)
    if client.out:
        client.write()
        _cut_off_unless_read(client)


def _cut_off_unless_read(client: ClientConnection) -> None:
    if client.unread_since_ms and client.transport.get_write_buffer_size() > OUTPUT_BYTES_MAX:
        client.transport.abort()


def _is_closing(client: ClientConnection) -> bool:
    return client.state.closing or client.transport.is_closing()
