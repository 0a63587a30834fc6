"""Checks shared by joined reads and writes: the partition of each key, and whether it is served."""

from binascii import crc_hqx
from collections.abc import Container, Sequence
from typing import TypeGuard

from quorate.facts.errors import QuorateError
from quorate.facts.keyspace import FIRST_UNRESERVED, TAG, key_slot
from quorate.protocol.copies.primary import Primary
from quorate.protocol.storage import StorageFull

ENDS_AGENT = (QuorateError, StorageFull, MemoryError)
"""Errors of a handler that are not the command's: the agent cannot go on."""


def partitions_of(keys: Sequence[bytes], shift: int) -> list[int]:
    """Return the partition of each key; an empty list if one of them may be reserved."""
    if min(keys) < FIRST_UNRESERVED:
        return []
    return [(key_slot(key) if TAG in key else crc_hqx(key, 0) & 16383) >> shift for key in keys]


def is_served(role: Primary | None, now: int) -> TypeGuard[Primary]:
    """Return whether this agent serves the partition and no transaction holds locks in it."""
    return not (role is None or role.lease.ms <= now or role.frozen or role.locks)


def shows_expiry(role: Primary, surveys: Container[int], now_ms: int) -> bool:
    """Return whether a key may have expired without the clients that cache it having been told.

    `surveys`: partitions of which not all expiries are known yet."""
    if role.changed is None:
        return False
    if role.copy.partition in surveys:
        return True
    expiring = role.copy.expiring.heap
    return bool(expiring) and expiring[0][0] < now_ms
