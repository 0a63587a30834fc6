"""Stores the reply to a request that may be repeated, as a row in the request's own update.

The row moves with its partition, so the next primary knows the first reply.  It expires by itself.
Source: docs/protocol.md, section 8.
"""

import dataclasses
from collections.abc import Callable

from quorate.facts.keyspace import RESERVED
from quorate_agent.resp.command import Command
from quorate_agent.resp.replies import error
from quorate_agent.resp.transaction import Gathered
from quorate_agent.resp.view import KeyView

KEPT_MS = 30_000
"""Longer than any request is repeated, with a margin for clocks that differ."""

REPLY_BYTES_MAX = 1024 * 1024
"""The update carries the reply along with its rows; a longer one is not worth that."""

REPLY_NOT_KEPT = error(b"ERR the command was executed; its reply was too long to be kept")


def request_key(process: str, number: int) -> bytes:
    """Return the key of the row that remembers this request."""
    return RESERVED + process.encode() + number.to_bytes(8, "big")


def remembering(command: Command, key: bytes, no_room: Callable[[], bytes] = bytes) -> Command:
    """Return `command` with a handler that stores its first reply under `key` and repeats it.

    The reply is stored even if the command wrote nothing: a client that was told so must not find
    later that it wrote after all.  `no_room` is only asked if there is no stored reply yet."""
    handler = command.handler
    flags = tuple([flag for flag in command.flags if flag != "denyoom"])

    def run(view: KeyView, args: list[bytes]) -> bytes:
        first = view.get(key)
        if first is not None and first.value is not None:
            return first.value
        if command.grows and (problem := no_room()):
            return problem
        gathered = Gathered(view)
        reply: bytes = handler(gathered, args)
        gathered.hand_over()
        kept = reply if len(reply) <= REPLY_BYTES_MAX else REPLY_NOT_KEPT
        view.put(key, kept, view.now_ms + KEPT_MS)
        return reply

    return dataclasses.replace(command, handler=run, flags=flags)
