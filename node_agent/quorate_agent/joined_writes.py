"""Which writes of a pipeline become one update: one counter, one entry of every log, one answer."""

from quorate.facts.keyspace import key_slot
from quorate_agent.resp.command import Command
from quorate_agent.resp.table import DISPATCH
from quorate_agent.resp.view import View

JOINED_BYTES_MAX = 64 * 1024
"""Of values: longer ones cost so much by themselves that sharing an update saves nothing."""


def join_writes(
    view: View,
    commands: list[list[bytes]],
    first: Command,
    key: bytes,
    reply: bytes,
    shift: int,
) -> tuple[bytes, int]:
    """Gather, behind a write that `view` has gathered, those that follow it in its partition, each
    of another key; they are taken from `commands`, the last of the list first.  The replies to all,
    the first one's among them, and how many they are.

    A handler that ran and whose command does not join runs again, with nothing gathered."""
    operations = view.operations
    partition = key_slot(key) >> shift
    keys = {key}
    handed = [reply]
    size = len(operations[0][1] or b"")
    while commands:
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
        key = args[1]
        if key in keys or key < b"\1" or key_slot(key) >> shift != partition:
            break  # reserved keys begin with 0
        gathered = len(operations)
        reply = command.handler(view, args)
        if len(operations) == gathered:
            break  # it changes nothing
        size += len(operations[-1][1] or b"")
        if size > JOINED_BYTES_MAX:
            operations.pop()
            break
        commands.pop()
        keys.add(key)
        handed.append(reply)
    return b"".join(handed), len(handed)
