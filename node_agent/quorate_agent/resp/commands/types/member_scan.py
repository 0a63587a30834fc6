"""HSCAN and SSCAN: the next page of a key's fields or members.

A page holds the members whose 32-bit checksum lies between two bounds; the cursor is the next
bound.  So nothing is remembered or sorted, the collection or its primary may change meanwhile, and
a member that exists throughout is returned exactly once.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Collection as Members
from typing import Final, TypeVar
from zlib import crc32

from quorate_agent.resp.reading.scan_arguments import parse_cursor, parse_scan
from quorate_agent.resp.replies import INVALID_CURSOR, array, bulk, bulks
from quorate_agent.resp.values.collection import Collection
from quorate_agent.resp.view import KeyView

Value = TypeVar("Value")

PAGE_MIN: Final = 1_000
"""COUNT is only a hint: looking at all members costs more than a page of this size."""

_CHECKSUMS: Final = 2**32


def scan_members(
    view: KeyView,
    args: list[bytes],
    members_at: Callable[[KeyView, bytes], Collection[Mapping[bytes, Value]] | bytes],
    words: Callable[[bytes, Value], Iterable[bytes]],
) -> bytes:
    """Return the reply to `name key cursor [MATCH pattern] [COUNT members]`, with `words` of each
    member."""
    cursor = parse_cursor(args[2])
    if cursor is None:
        return INVALID_CURSOR
    found = members_at(view, args[1])
    if isinstance(found, bytes):
        return found
    if not found.exists:
        return array((bulk(b"0"), array(())))  # whatever else the call says
    asked = parse_scan(args[3:], with_type=False)
    if isinstance(asked, bytes):
        return asked
    cursor, page = member_page(found.items, cursor, asked.count, asked.names_bytes_max())
    matches = asked.matcher()
    shown = [
        word
        for member in page
        if matches is None or matches(member)
        for word in words(member, found.items[member])
    ]
    return array((bulk(b"%d" % cursor), bulks(shown)))


def member_page(
    members: Members[bytes], cursor: int, count: int, bytes_max: int
) -> tuple[int, list[bytes]]:
    """Return the next cursor, 0 at the end, and about `count` of `members`, of about `bytes_max`
    bytes at most."""
    count = max(count, PAGE_MIN)
    if cursor == 0 and len(members) <= count:
        page, end = list(members), _CHECKSUMS
    else:
        end = cursor + max(_CHECKSUMS * count // max(len(members), 1), 1)
        page = [member for member in members if cursor <= crc32(member) < end]
    if sum(map(len, page)) > bytes_max:
        end = _end_within(page, bytes_max)
        page = [member for member in page if crc32(member) < end]
    return (0 if end >= _CHECKSUMS else end), page


def _end_within(page: list[bytes], bytes_max: int) -> int:
    """Return the bound behind the first members of `page`, by checksum, with which `bytes_max` is
    reached."""
    left = bytes_max
    for checksum, length in sorted([(crc32(member), len(member)) for member in page]):
        left -= length
        if left <= 0:
            return checksum + 1
    return _CHECKSUMS
