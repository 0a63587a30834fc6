"""Marks gaps in a database's logs, which the engine would otherwise go past without an error.

A log consists of blocks, and a block of records: checksum (4 bytes), length (2, little-endian),
kind (1), then as many bytes, never beyond the block's end.  The engine stops at a record that is
incomplete or has a wrong checksum, and goes on with the next log only if that one's first change
has the number that follows.  It does not stop

    at the end of a log, although a power loss may have taken its last records;
    at a header of zeros, which it takes for room that was reserved: it skips the rest of the block;
    at kinds for log files that are used again, which ours never are: at some it hangs.

So such a place is made a record that is incomplete, or one with a wrong checksum.
"""

import os
from pathlib import Path
from typing import Final, NamedTuple

BLOCK_BYTES: Final = 32 * 1024
HEADER_BYTES: Final = 7
KIND_AT: Final = 6
OF_LOGS_USED_AGAIN: Final = frozenset({5, 6, 7, 8, 11, 131})
NO_KIND: Final = b"\xff"


class _End(NamedTuple):
    """Where the records of a log end: at a header that the engine goes past, or at the end of the
    file.

    `is_whole`: the last record there is complete."""

    at: int
    is_header: bool
    is_whole: bool


class Mark(NamedTuple):
    """A byte of a log that was changed, or appended if there was none `before`."""

    log: Path
    at: int
    before: bytes

    def undo(self) -> None:
        """Have the log as it was."""
        with self.log.open("r+b") as file:
            if not self.before:
                file.truncate(self.at)
                return
            file.seek(self.at)
            file.write(self.before)


def stop_at_gaps(folder: Path) -> list[Mark]:
    """Have the engine stop at each place where the logs in its folder may lack some records.
    Return what was changed for that.

    Every log but the newest gets one byte more, the begin of a record.  It changes nothing that
    the engine would read, and need not be synced: the next start does it again.
    """
    logs = sorted(folder.glob("*.log"), key=lambda log: (len(log.name), log.name))
    marks: list[Mark] = []
    for log in logs:
        end = _end_of_records(log)
        if end.is_header:
            kind_at = end.at + KIND_AT
            with log.open("r+b") as file:
                file.seek(kind_at)
                marks.append(Mark(log, kind_at, file.read(1)))
                file.seek(kind_at)
                file.write(NO_KIND)
        elif end.is_whole and log is not logs[-1]:
            marks.append(Mark(log, end.at, b""))
            os.truncate(log, end.at + 1)
    return marks


def _end_of_records(log: Path) -> _End:
    """Find the end of a log's records.  Checksums are left to the engine.

    At a damaged length this loses its way, behind the record at which the engine stops."""
    begins = 0
    with log.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            at, last = 0, len(block) - HEADER_BYTES
            while at <= last:
                kind = block[at + KIND_AT]
                length = block[at + 4] + (block[at + 5] << 8)
                if kind in OF_LOGS_USED_AGAIN or not (kind or length):
                    return _End(begins + at, is_header=True, is_whole=False)
                at += HEADER_BYTES + length
            if len(block) < BLOCK_BYTES:
                # Fewer bytes than a header has are left free at a block's end.
                free = at > BLOCK_BYTES - HEADER_BYTES
                ends = begins + (BLOCK_BYTES if free else at)
                return _End(ends, is_header=False, is_whole=at == len(block))
            begins += BLOCK_BYTES
    return _End(begins, is_header=False, is_whole=True)
