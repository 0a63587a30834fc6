"""Groups writes of a pipeline into one update per partition: one counter, one log entry, one
answer."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, repeat, takewhile
from operator import add
from typing import NamedTuple

from quorate.facts.keyspace import is_reserved, key_slot
from quorate.protocol.copies.primary import Primary
from quorate.protocol.storage import Operation
from quorate_agent.clients.turn_share import LARGE_BYTES
from quorate_agent.commands.pipeline.alike import ENDS_AGENT, is_served, partitions_of
from quorate_agent.resp.command import Command
from quorate_agent.resp.tables.table import DISPATCH
from quorate_agent.resp.view import View

JOINED_BYTES_MAX = 64 * 1024
"""Bytes of keys and values after which an update ends.

Joining saves nothing for longer values, and one longer value still fits into a frame between agents
beside these."""


def join_writes(
    view: View,
    commands: list[list[bytes]],
    first: Command,
    reply: bytes,
    partition: int,
    shift: int,
) -> tuple[bytes, int, int]:
    """Join to a write that `view` has gathered the commands that follow it in its partition.

    Each must write another key, or put a value whatever the key had.  They are removed from
    `commands`, which is in reverse order.  Returns the replies to all, the first one's included,
    their number, and the bytes they write.

    The handler of a command that changes nothing, or much, runs here in vain, and again in its own
    turn."""
    operations = view.operations
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
                or (command.grows and not first.grows)  # the room for it was not checked
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
            try:
                answer = command.handler(view, args)
            except ENDS_AGENT:
                raise
            except Exception:  # it is answered in its own turn
                del operations[gathered:]
                break
            if len(operations) == gathered or len(operations[-1][1] or b"") >= LARGE_BYTES:
                del operations[gathered:]
                break
            commands.pop()
            replies.append(answer)
            size += len(later) + len(operations[-1][1] or b"")
            if place is None:
                places[later] = gathered
            else:
                operations[place] = operations.pop()
    except BaseException:
        operations.clear()  # else the next command, of any client, would write them
        raise
    return b"".join(replies), len(replies), size


class Puts(NamedTuple):
    """Commands that put values, as updates.

    `number` commands of `size` bytes; `roles` has the role of each command if there are several
    roles."""

    command: Command
    number: int
    size: int
    updates: list[tuple[Primary, tuple[Operation, ...]]]
    roles: list[Primary]


def join_puts(
    commands: Sequence[list[bytes]],
    primaries: Sequence[Primary | None],
    shift: int,
    now: int,
) -> Puts | None:
    """Group the first of `commands` that put a value, whatever the key had, by the same command
    word.

    The list is in reverse order and is not changed.  All their partitions must be served.  Each
    partition gets one update with the last value of each key.  Returns None if the commands must be
    executed one by one."""
    name = commands[-1][0]
    command = DISPATCH.get(name)
    if command is None or command.puts_each is None:
        return None
    try:
        names, keys, values = zip(*reversed(commands), strict=True)
        alike = names.count(name) == len(names)
    except ValueError:
        alike = False  # not three words each
    if not alike:
        run = list(takewhile(lambda args: args[0] == name and len(args) == 3, reversed(commands)))
        if len(run) < 2:
            return None
        names, keys, values = zip(*run, strict=True)
    size = sum(map(len, keys + values))
    if size > JOINED_BYTES_MAX:
        sizes = list(accumulate(map(add, map(len, keys), map(len, values))))
        number = bisect_right(sizes, JOINED_BYTES_MAX)
        if number < 2:
            return None
        keys, values, size = keys[:number], values[:number], sizes[number - 1]
    partitions = partitions_of(keys, shift)
    served: dict[int, Primary] = {}
    for partition in set(partitions):
        role = primaries[partition]
        if not is_served(role, now):
            return None
        served[partition] = role
    if not served:
        return None
    put = command.puts_each(values)
    if len(served) == 1:
        last = dict(zip(keys, put, strict=True))
        return Puts(command, len(keys), size, [(served[partitions[0]], _operations(last))], [])
    rows: dict[int, dict[bytes, bytes]] = {partition: {} for partition in served}
    for partition, key, value in zip(partitions, keys, put, strict=True):
        rows[partition][key] = value
    updates = [(served[partition], _operations(last)) for partition, last in rows.items()]
    roles = [served[partition] for partition in partitions]
    return Puts(command, len(keys), size, updates, roles)


def _operations(values: dict[bytes, bytes]) -> tuple[Operation, ...]:
    return tuple(zip(values, values.values(), repeat(0)))
