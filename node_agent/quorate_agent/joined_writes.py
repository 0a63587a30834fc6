"""Which writes of a pipeline become one update: one counter, one entry of every log, one answer."""

from quorate.facts.keyspace import is_reserved, key_slot
from quorate_agent.resp.command import Command
from quorate_agent.resp.table import DISPATCH
from quorate_agent.resp.view import View

JOINED_BYTES_MAX = 64 * 1024
"""Of keys and values: behind so many an update ends.  Longer ones cost so much by themselves that
sharing saves nothing, and one such fits into a frame between agents beside them."""


def join_writes(
    view: View,
    commands: list[list[bytes]],
    first: Command,
    reply: bytes,
    partition: int,
    shift: int,
) -> tuple[bytes, int]:
    """Gather, behind a write that `view` has gathered, those that follow it in its partition, each
    of another key; they are taken from `commands`, the last of the list first.  The replies to all,
    the first one's among them, and how many they are.

    A handler that changes nothing has run for nothing, and does so again in its own turn."""
    operations = view.operations
    key, value, _ = operations[0]
    keys = {key}
    replies = [reply]
    size = len(key or b"") + len(value or b"")
    try:
        while commands and size < JOINED_BYTES_MAX:
            args = commands[-1]
            command = DISPATCH.get(args[0])
            if command is not first and (
                command is None
                or not command.joins
                or (command.grows and not first.grows)  # whether there is room was not asked
            ):
                break
            if len(args) != command.usual_words:
                break
            later = args[1]
            if later in keys or is_reserved(later) or key_slot(later) >> shift != partition:
                break
            gathered = len(operations)
            answer = command.handler(view, args)
            if len(operations) == gathered:
                break
            commands.pop()
            keys.add(later)
            replies.append(answer)
            size += len(later) + len(operations[-1][1] or b"")
    except BaseException:
        operations.clear()  # or the next command of anybody would write them
        raise
    return b"".join(replies), len(replies)
