"""Sends clients frames that they did not ask for, between whole replies.

A frame is a push of RESP3 or a message of publish/subscribe in RESP2, encoded.  A connection always
sends whole replies, so a frame behind the last one cuts none in two.  The caller chooses whether it
goes before or behind the replies that still wait.  A client that does not read is disconnected at
the bound of all its output (clients/connection.py).
"""

from __future__ import annotations

from quorate_agent.clients.connection import OUTPUT_BYTES_MAX, ClientConnection

WAITING_MAX = 100_000
"""Replies and frames in a queue at which its connection is closed: one that waits for ever (WAIT 1
0) must not gather frames for ever."""


def push(client: ClientConnection, frame: bytes) -> None:
    """Send `frame` now: behind the replies that are ready, ahead of those that still wait.

    Does nothing if the connection is closing.  Each call is a write: pass several frames as one.
    """
    if not _is_closing(client):
        client.out.append(frame)
        client.write()
        _cut_off_unless_read(client)


def push_in_order(client: ClientConnection, frame: bytes) -> None:
    """Send `frame` behind every reply that the client still waits for, such as the confirmation of
    a subscription."""
    if _is_closing(client):
        return
    client.told_behind = client.told_behind + len(frame) if client.queue else 0
    if client.told_behind > OUTPUT_BYTES_MAX:  # some of it may have left since
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
