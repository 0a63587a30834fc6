"""What was answered to a request that may be asked again: a row beside those that it wrote.

The row is written in the request's own update and goes wherever its partition goes, so that whoever
is primary then knows the first answer.  It expires by itself.  Source: docs/protocol.md, section 8.
"""

import dataclasses
from collections.abc import Callable

from quorate.facts.keyspace import RESERVED
from quorate_agent.resp.command import Command
from quorate_agent.resp.replies import error
from quorate_agent.resp.transaction import Gathered
from quorate_agent.resp.view import KeyView

KEPT_MS = 30_000
"""Longer than any request is asked again, with room for clocks that differ."""

REPLY_BYTES_MAX = 1024 * 1024
"""An update carries the reply beside its rows; what is longer is not worth that."""

REPLY_NOT_KEPT = error(b"ERR the command was executed; its reply was too long to be kept")


def request_key(process: str, number: int) -> bytes:
    """The key of the row that remembers this request."""
    return RESERVED + process.encode() + number.to_bytes(8, "big")


def remembering(command: Command, key: bytes, no_room: Callable[[], bytes] = bytes) -> Command:
    """`command`, whose first reply is remembered under `key`, also when it has written nothing: who
    was told so must not find later that it wrote after all.  `no_room` is asked only for what has
    not happened yet."""
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
