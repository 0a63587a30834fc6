"""Which writes of a pipeline become one update: one counter, one entry of every log, one answer."""

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from quorate.facts.keyspace import is_reserved, key_slot
from quorate.protocol.primary import Primary
from quorate_agent.alike import is_served, partitions_of
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
    of another key, or putting a value whatever the key had; they are taken from `commands`, the
    last of the list first.  The replies to all, the first one's among them, and how many they are.

    A handler that changes nothing has run for nothing, and does so again in its own turn."""
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


class Puts(NamedTuple):
    """Commands that put values: which one, and how many; the partition of each, or one of all; by
    partition its keys, each with its last value."""

    command: Command
    number: int
    partitions: list[int]
    by_partition: dict[int, dict[bytes, bytes]]


def join_puts(
    commands: Sequence[list[bytes]],
    primaries: Sequence[Primary | None],
    shift: int,
    now: int,
) -> Puts | None:
    """Gather the first of `commands`, which begin at the end of the list, as long as they put a
    value in the same words whatever the key had, when their partitions serve.  None: they are to be
    executed one by one."""
    first = commands[-1]
    command = DISPATCH.get(first[0])
    if command is None or command.puts_each is None or len(first) != command.usual_words:
        return None
    try:
        names, keys, values = zip(*reversed(commands), strict=True)
        alike = names.count(first[0]) == len(names)
    except ValueError:
        alike = False  # not three words each
    if not alike:
        run = list(
            takewhile(lambda args: args[0] == first[0] and len(args) == 3, reversed(commands))
        )
        if len(run) < 2:
            return None
        names, keys, values = zip(*run, strict=True)
    if sum(map(len, keys + values)) > JOINED_BYTES_MAX:
        return None
    partitions = partitions_of(keys, shift)
    puts: dict[int, dict[bytes, bytes]] = {partition: {} for partition in partitions}
    for partition in puts:
        if not is_served(primaries[partition], now):
            return None
    put = command.puts_each(values)
    if len(partitions) == 1:
        puts[partitions[0]] = dict(zip(keys, put, strict=True))
    elif not partitions:
        return None
    else:
        for partition, key, value in zip(partitions, keys, put, strict=True):
            puts[partition][key] = value
    return Puts(command, len(keys), partitions, puts)
