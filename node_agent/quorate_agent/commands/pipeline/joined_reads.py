"""Answers simple reads in one step: those of a pipeline together, or a single one on a short path.

The interpreter's overhead is then paid once for a whole pipeline instead of once per command.
"""

from binascii import crc_hqx
from collections.abc import Container, Sequence

from quorate.facts.keyspace import FIRST_UNRESERVED, TAG, key_slot
from quorate.protocol.copies.primary import Primary
from quorate_agent.commands.pipeline.alike import ENDS_AGENT, is_served, partitions_of, shows_expiry
from quorate_agent.resp.session import Connection
from quorate_agent.resp.tables.table import DISPATCH
from quorate_agent.resp.view import View, live_values


def join_reads(
    view: View,
    commands: list[list[bytes]],
    primaries: Sequence[Primary | None],
    surveys: Container[int],
    shift: int,
    now: int,
) -> bytes | None:
    """Answer all `commands` together if each reads the value of one key by the same command word.

    The commands are in reverse order and are removed from the list.  Their partitions must be
    served, without waiters.  Returns the replies; None if the commands must be executed one by one.
    """
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
        if not is_served(role, now) or role.waiters or shows_expiry(role, surveys, view.now_ms):
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
    except ENDS_AGENT:
        raise
    except Exception:  # NotTogether, or a defect: each is answered in its own turn
        return None
    commands.clear()
    return replies


def read_one(
    state: Connection,
    view: View,
    args: list[bytes],
    primaries: Sequence[Primary | None],
    surveys: Container[int],
    shift: int,
    now: int,
) -> bytes | None:
    """Answer a single command if it only reads the value of one key.

    The key's partition must be served without waiters, and the connection must not be in a mode.
    Returns the reply; None if the command must be executed as others are."""
    command = DISPATCH.get(args[0])
    if command is None or command.each is None or len(args) != 2:
        return None
    # `state.in_mode`, inlined to save the call.
    if state.transaction is not None or state.tracking is not None or state.subscribed:
        return None
    key = args[1]
    role = primaries[(key_slot(key) if TAG in key else crc_hqx(key, 0) & 16383) >> shift]
    if not is_served(role, now) or role.waiters:
        return None
    if key < FIRST_UNRESERVED or shows_expiry(role, surveys, view.now_ms):
        return None
    view.is_pending, view.copy = None, role.copy
    try:
        reply: bytes = command.handler(view, args)
    except ENDS_AGENT:
        raise
    except Exception:  # it fails again as others do, and is answered there
        return None
    return reply
