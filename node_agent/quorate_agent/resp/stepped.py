"""Commands that look at rows in steps until they have their reply: no step looks at many.

The first step is made at once.  If it does not suffice, the endpoint makes the others in later
turns.
"""

import random

from quorate.facts.keyspace import key_slot, slot_shift
from quorate_agent.resp.replies import CLUSTERDOWN, bulk, error, integer, null
from quorate_agent.resp.scan import BYTES_MAX, PARTITIONS_MAX
from quorate_agent.resp.session import Session

FIRST_ROWS = 1_000
"""Rows of the first step."""

NOT_AT_ONCE = error(b"ERR too many rows to look at in a transaction")
"""The reply in a transaction, where nothing may wait, if the first step does not suffice."""


class RandomKey:
    """RANDOMKEY: draws from the first live keys of a random partition."""

    __slots__ = ("_after", "_partitions", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._partitions = list(session.agent.primaries())
        random.shuffle(self._partitions)
        self._after: bytes | None = None  # where to go on in the last of them

    def step(self, rows_max: int) -> bytes:
        """Look at so many rows at most; return the reply, or b"" if more are to be looked at."""
        agent, partitions = self._session.agent, self._partitions
        left_rows, left_bytes = rows_max, BYTES_MAX
        for _ in range(PARTITIONS_MAX):
            if not partitions:
                return null(self._session.connection.resp3)
            if left_rows <= 0 or left_bytes <= 0:
                break
            last = None
            if agent.is_primary(partitions[-1]):
                if not agent.is_here(partitions[-1]):
                    return CLUSTERDOWN
                chunk = agent.scan(partitions[-1], self._after, left_rows, left_bytes)
                if chunk.live:
                    return bulk(random.choice(chunk.live))
                last = chunk.last
                left_rows -= len(chunk.looked_at)
                left_bytes -= chunk.read_bytes
            self._after = last
            if last is None:
                partitions.pop()
        return b""


class SlotCount:
    """CLUSTER COUNTKEYSINSLOT: counts a slot's keys among those of its partition.

    As in Redis, those that have expired count until they are removed.  The count is 0 if another
    agent is primary by the time of the reply; if this one's lease is over, there is none."""

    __slots__ = ("_after", "_count", "_partition", "_session", "_slot")

    def __init__(self, session: Session, slot: int) -> None:
        self._session = session
        self._slot = slot
        self._partition = slot >> slot_shift(session.agent.partition_count())
        self._after: bytes | None = None
        self._count = 0

    def step(self, rows_max: int) -> bytes:
        """Look at so many rows at most; return the reply, or b"" if more are to be looked at."""
        agent = self._session.agent
        if not agent.is_primary(self._partition):
            return integer(0)
        if not agent.is_here(self._partition):
            return CLUSTERDOWN
        chunk = agent.scan(self._partition, self._after, rows_max, BYTES_MAX, with_expired=True)
        self._count += sum(key_slot(key) == self._slot for key in chunk.live)
        self._after = chunk.last
        return b"" if chunk.last is not None else integer(self._count)


Stepped = RandomKey | SlotCount


def begin(stepped: Stepped) -> bytes | Stepped:
    """Make the first step; return the reply, or the command if it has more steps."""
    return stepped.step(FIRST_ROWS) or stepped
