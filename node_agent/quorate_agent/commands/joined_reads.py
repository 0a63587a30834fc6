"""Which reads are answered in one step: those of a pipeline together, and one alone, past all that
only other commands need.

A step of the interpreter that is taken once for sixteen commands is not taken sixteen times.
"""

from binascii import crc_hqx
from collections.abc import Sequence

from quorate.facts.keyspace import FIRST_UNRESERVED, TAG, key_slot
from quorate.protocol.copies.primary import Primary
from quorate_agent.commands.alike import is_served, partitions_of, shows_expiry
from quorate_agent.resp.replies import LongReplies
from quorate_agent.resp.session import Connection
from quorate_agent.resp.tables.table import DISPATCH
from quorate_agent.resp.view import View, live_values


def join_reads(
    view: View,
    commands: list[list[bytes]],
    primaries: Sequence[Primary | None],
    shift: int,
    now: int,
) -> bytes | None:
    """The replies to `commands`, the last of the list first, which are taken from it, when all of
    them only read a value of one key, in the same words, and their partitions are free.  None: they
    are to be executed one by one."""
    command = DISPATCH.get(commands[-1][0])
    if command is None or command.each is None:
        return None
    try:
        names, keys = zip(*reversed(commands), strict=True)
    except ValueError:
        return None  # not two words each
    if names.count(names[0]) != len(names):
        return None
    partitions = partitions_of(keys, shift)
    spaces = {}
    for partition in set(partitions):
        role = primaries[partition]
        if not is_served(role, now) or role.waiters or shows_expiry(role, view.now_ms):
            return None
        spaces[partition] = role.copy.get
    if not spaces:
        return None
    if len(spaces) == 1:
        rows = map(spaces[partitions[0]], keys)
    else:
        rows = map(lambda partition, key: spaces[partition](key), partitions, keys)
    try:
        replies = command.each(live_values(rows, view.now_ms), view.resp3)
    except LongReplies:
        return None  # one by one, as far as the client reads them
    commands.clear()
    return replies


def read_one(
    state: Connection,
    view: View,
    args: list[bytes],
    primaries: Sequence[Primary | None],
    shift: int,
    now: int,
) -> bytes | None:
    """The reply to a command alone when it only reads a value of one key, the key's partition is
    free and the connection is in no mode.  None: it is to be executed as others are."""
    command = DISPATCH.get(args[0])
    if command is None or command.each is None or len(args) != 2:
        return None
    # `state.in_mode` would be a call.
    if state.transaction is not None or state.tracking is not None or state.subscribed:
        return None
    key = args[1]
    role = primaries[(key_slot(key) if TAG in key else crc_hqx(key, 0) & 16383) >> shift]
    if not is_served(role, now) or role.waiters:
        return None
    if key < FIRST_UNRESERVED or shows_expiry(role, view.now_ms):
        return None
    view.is_pending, view.copy = None, role.copy
    reply: bytes = command.handler(view, args)
    return reply
