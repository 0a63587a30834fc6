"""Which writes of a pipeline become one update: one counter, one entry of every log, one answer."""

from itertools import repeat

from quorate.facts.keyspace import FIRST_UNRESERVED, is_reserved, key_slot, slot_of_range
from quorate.protocol.storage import Operation
from quorate_agent.resp.command import Command
from quorate_agent.resp.replies import OK
from quorate_agent.resp.table import DISPATCH
from quorate_agent.resp.view import View

JOINED_BYTES_MAX = 64 * 1024
"""Of keys and values: behind so many an update ends.  Longer ones cost so much by themselves that
sharing saves nothing, and one such fits into a frame between agents beside them."""

ALIKE_MIN = 3
"""So many commands are looked at in one step; fewer are as quick one by one."""


def join_writes(
    view: View,
    commands: list[list[bytes]],
    first: Command,
    reply: bytes,
    partition: int,
    shift: int,
) -> tuple[bytes, int]:
    """Gather, behind a write that `view` has gathered, those that follow it in its partition, each
    of another key, or putting a value whatever the key had; they are taken from `commands`, the
    last of the list first.  The replies to all, the first one's among them, and how many they are.

    A handler that changes nothing has run for nothing, and does so again in its own turn."""
    operations = view.operations
    if first.puts_each is not None and reply == OK and len(commands) >= ALIKE_MIN:
        count = _join_alike(operations, commands, first, partition, shift)
        if count:
            return OK * count, count
    key, value, _ = operations[0]
    places = {key: 0}
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
            place = places.get(later)
            if place is not None and command.puts_each is None:
                break
            if is_reserved(later) or key_slot(later) >> shift != partition:
                break
            gathered = len(operations)
            answer = command.handler(view, args)
            if len(operations) == gathered:
                break
            commands.pop()
            replies.append(answer)
            size += len(later) + len(operations[-1][1] or b"")
            if place is None:
                places[later] = gathered
            else:
                operations[place] = operations.pop()
    except BaseException:
        operations.clear()  # or the next command of anybody would write them
        raise
    return b"".join(replies), len(replies)


def _join_alike(
    operations: list[Operation],
    commands: list[list[bytes]],
    first: Command,
    partition: int,
    shift: int,
) -> int:
    """As `join_writes` when all of `commands` are what `first` is and put a value whatever the key
    had, in one step for all of them.  How many writes these are; 0: it is to be done one by one."""
    last = commands[0]  # two of many that are not all alike, or not in one partition, tell it soon
    if len(last) != first.usual_words or key_slot(last[1]) >> shift != partition:
        return 0
    try:
        names, keys, values = zip(*reversed(commands), strict=True)
    except ValueError:
        return 0  # not three words each
    low, high = min(keys), max(keys)
    if names.count(names[0]) != len(names) or DISPATCH.get(names[0]) is not first:
        return 0
    slot = slot_of_range(low, high)
    if slot < 0 and any(key_slot(each) >> shift != partition for each in keys):
        return 0
    key, value, _ = operations[0]
    size = sum(map(len, keys + values)) + len(key or b"") + len(value or b"")
    if low < FIRST_UNRESERVED or size > JOINED_BYTES_MAX or first.puts_each is None:
        return 0
    last_values = dict(zip(keys, first.puts_each(values), strict=True))
    if key in last_values:
        operations.clear()
    operations.extend(zip(last_values, last_values.values(), repeat(0)))
    commands.clear()
    return 1 + len(keys)
