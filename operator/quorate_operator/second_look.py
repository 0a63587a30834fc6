"""What another has stored behind the master's back: rows that it did not write and has not read.

A master that lost the mandate may have one write under way that arrives after the next one has
read everything.  The next one meets it as a conflict when it writes that object, but of an object
that it has no reason to write it would never hear.
"""

from collections.abc import Awaitable, Callable, Mapping

from quorate.protocol.metastore import Key, Revision, ShardKey, Stored

PAUSES_S = (2.0, 5.0, 15.0)
"""Looks after a start, when such a write is likely; then one a minute."""
PAUSE_LATER_S = 60.0


def unread(
    stored: Mapping[Key, Stored], revisions: Mapping[Key, Revision], touched: set[Key]
) -> list[tuple[Key, Stored]]:
    """Rows whose revision is not the one known; not those that were being written meanwhile."""
    return [
        (key, each)
        for key, each in stored.items()
        if isinstance(key, ShardKey)
        and key in revisions
        and key not in touched
        and revisions[key] != each.revision
    ]


async def keep_looking(
    look: Callable[[], Awaitable[None]], sleep: Callable[[float], Awaitable[None]]
) -> None:
    """Look again and again."""
    for pause in PAUSES_S:
        await sleep(pause)
        await look()
    while True:
        await sleep(PAUSE_LATER_S)
        await look()
