"""Where HSCAN and SSCAN stand: which fields or members the next page has.

A page has those whose 32-bit checksum lies between two bounds, and a cursor is the next bound.  So
nothing is remembered and nothing sorted, whoever changes the collection or serves it next, and
what is there throughout is returned exactly once.
"""

from collections.abc import Collection
from typing import Final
from zlib import crc32

PAGE_MIN: Final = 1_000
"""COUNT is a wish: looking at all members costs more than such a page does."""

_CHECKSUMS: Final = 2**32


def member_page(members: Collection[bytes], cursor: int, count: int) -> tuple[int, list[bytes]]:
    """The next cursor, 0 at the end, and about `count` of `members`."""
    count = max(count, PAGE_MIN)
    if cursor == 0 and len(members) <= count:
        return 0, list(members)
    end = cursor + max(_CHECKSUMS * count // max(len(members), 1), 1)
    page = [member for member in members if cursor <= crc32(member) < end]
    return (0 if end >= _CHECKSUMS else end), page
