"""Checks a RocksDB log for kinds of records that our databases never write.

A log consists of blocks, and a block of records: checksum (4 bytes), length (2, little-endian),
kind (1), then as many bytes, never beyond the block's end.  Some kinds are for recycled log files,
which we never use.  If a flipped bit makes a record one of these, the engine takes it for a record
of an older log and its opening never ends, so such damage is refused before.
"""

from pathlib import Path
from typing import Final

BLOCK_BYTES: Final = 32 * 1024
HEADER_BYTES: Final = 7
OF_LOGS_USED_AGAIN: Final = frozenset({5, 6, 7, 8, 11, 131})


def find_foreign_record(log: Path) -> int | None:
    """Return the offset of the first record of a recycled log; None if there is none.

    Checksums are left to the engine; at a damaged length it stops before this would.
    """
    with log.open("rb") as file:
        begins = 0
        while block := file.read(BLOCK_BYTES):
            at, last = 0, len(block) - HEADER_BYTES
            while at <= last:
                if block[at + 6] in OF_LOGS_USED_AGAIN:
                    return begins + at
                at += HEADER_BYTES + block[at + 4] + (block[at + 5] << 8)
            begins += BLOCK_BYTES
    return None
