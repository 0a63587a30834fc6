"""What commands of a pipeline that are alike are asked for together: their partitions, and whether
those serve."""

from binascii import crc_hqx
from collections.abc import Sequence
from typing import TypeGuard

from quorate.facts.keyspace import FIRST_UNRESERVED, TAG, key_slot, slot_of_range
from quorate.protocol.copies.primary import Primary


def partitions_of(keys: Sequence[bytes], shift: int) -> list[int]:
    """The partition of each key, or one of all of them; none at all when a key may be reserved."""
    low, high = min(keys), max(keys)
    if low < FIRST_UNRESERVED:
        return []
    slot = slot_of_range(low, high)
    if slot >= 0:
        return [slot >> shift]
    return [(key_slot(key) if TAG in key else crc_hqx(key, 0) & 16383) >> shift for key in keys]


def is_served(role: Primary | None, now: int) -> TypeGuard[Primary]:
    """Whether a partition is served here, and no transaction has locks there."""
    return not (role is None or role.lease.ms <= now or role.frozen or role.locks)


def shows_expiry(role: Primary, now_ms: int) -> bool:
    """Whether a key may have expired of which somebody who caches it has not been told."""
    if role.changed is None:
        return False
    expiring = role.copy.expiring
    return bool(expiring) and expiring[0][0] < now_ms
