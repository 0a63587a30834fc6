"""Where HSCAN and SSCAN stand: which fields or members the next page has.

They are taken in the order of a 32-bit checksum, and a cursor is one more than the last one that
was returned.  So nothing is remembered, whoever changes the collection or serves it next, and what
is there throughout is returned exactly once.
"""

from collections.abc import Collection
from typing import Final
from zlib import crc32

PAGE_MIN: Final = 1_000
"""COUNT is a wish: sorting costs more than such a page does."""


def member_page(members: Collection[bytes], cursor: int, count: int) -> tuple[int, list[bytes]]:
    """The next cursor, 0 at the end, and about `count` of `members`."""
    count = max(count, PAGE_MIN)
    if cursor == 0 and len(members) <= count:
        return 0, list(members)
    ahead = sorted((place, member) for member in members if (place := crc32(member)) + 1 > cursor)
    if len(ahead) <= count:
        return 0, [member for _, member in ahead]
    last = ahead[count - 1][0]
    end = count
    while end < len(ahead) and ahead[end][0] == last:  # of one checksum: all or none
        end += 1
    page = [member for _, member in ahead[:end]]
    return (0 if end == len(ahead) else last + 1), page
