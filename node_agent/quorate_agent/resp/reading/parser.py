"""Parses clients' bytes into commands: RESP arrays and inline commands.

There are two readers.  The strict one, here, is the authority: it keeps incomplete data, enforces
every limit and words errors as Redis does.  The quick one takes complete commands in their plainest
form, which is nearly all of them.

A command that is too large, or for which there is no memory now, is refused alone: its bytes are
read and dropped, and the client gets the error in the order of its commands.  Redis closes the
connection over a value that is too long; data that the client still sends then resets the
connection, and the client never sees the error.
"""

import mmap
from collections.abc import Callable
from contextlib import suppress

from quorate_agent.resp.command import ARGUMENTS_MAX, WORD_BYTES
from quorate_agent.resp.reading.inline import SplitRefused, split_words
from quorate_agent.resp.reading.integers import parse_integer
from quorate_agent.resp.reading.quick_reader import read_quickly
from quorate_agent.resp.replies import VALUE_BYTES_MAX, Refusal, RefusedWatch, error, until_nul

BULK_BYTES_MAX = VALUE_BYTES_MAX
# All arguments of one command.  Less than a frame between agents, so that every update fits into
# one.
QUERY_BYTES_MAX = 72 * 1024 * 1024
# A larger command is garbage, as in Redis: reading and dropping it would take too long.
DROPPED_BYTES_MAX = 512 * 1024 * 1024
# Up to this size, with WORD_BYTES for each word, commands need no permission from `admit`.
FREE_BYTES = 64 * 1024
# A line: an inline command, or the header of an array or a string.
INLINE_BYTES_MAX = 64 * 1024

# A longer string is gathered in pieces instead of being joined with every chunk.
_GATHERED_BYTES_MIN = 16 * 1024
# From this size on it is gathered in pages of its own, which are returned to the system with it;
# pieces among other allocations leave holes that the allocator keeps.
_MAPPED_BYTES_MIN = 1024 * 1024

_STAR = ord("*")
# Headers of nearly every command, parsed in one step.
_COUNTS = {b"*%d" % count: count for count in range(1, 128)}
_LENGTHS = {b"$%d" % length: length for length in range(1024)}


def _admits_all(_more: int) -> bytes:
    return b""


class CommandParser:
    """The reading side of one client connection.  `feed` never raises.

    `error` is set when the stream was garbage: after the commands of that `feed` the client gets
    this line (empty: nothing) and is disconnected; further bytes are ignored.

    While a command of more than FREE_BYTES comes in, `admit(more)` is asked whether so many more of
    its bytes may be kept; it returns b"", or the error that refuses the command.  `took_large` is
    set when `feed` has returned such a command; the owner resets it.
    """

    __slots__ = (
        "_admit",
        "_args",
        "_bulk_left",
        "_bytes",
        "_bytes_max",
        "_idle",
        "_left",
        "_mapped",
        "_pieces",
        "_refusal",
        "_rest",
        "_skip",
        "error",
        "took_large",
    )

    def __init__(self, admit: Callable[[int], bytes] = _admits_all) -> None:
        self.error: bytes | None = None
        self.took_large = False
        self._admit = admit
        self._bytes_max = FREE_BYTES  # of the present command, until `admit` must be asked
        self._refusal = b""  # the error that answers the present command, whose bytes are dropped
        self._idle = True  # at the end of a command, and without error
        self._rest = b""  # an incomplete line, or a short string and its header
        self._left = 0  # arguments that the present array still lacks
        self._args: list[bytes] = []
        # Of the arguments, including WORD_BYTES of each and missing bytes of a long string.
        self._bytes = 0
        self._pieces: list[bytes] = []  # of a long string
        self._mapped: mmap.mmap | None = None  # of a very long one
        self._bulk_left = 0  # bytes that it still lacks
        self._skip = 0  # bytes of its line end that are still to come

    @property
    def pending_bytes(self) -> int:
        """Bytes that an incomplete command takes by now; 0 between commands."""
        return len(self._rest) + self._bytes - self._bulk_left

    @property
    def reserved_bytes(self) -> int:
        """Bytes that an incomplete command holds or was promised."""
        return len(self._rest) + (0 if self._refusal else self._bytes)

    def close(self) -> None:
        """Drop everything, including the reference to `admit`; nothing more may be fed."""
        self._stop(b"")
        self._admit = _admits_all

    def feed(self, data: bytes) -> list[list[bytes]]:
        """Return the commands that `data` completes: each a list of words, the first the name as
        sent."""
        if self._idle:
            commands, cut = read_quickly(data)
            if cut == len(data):
                return commands
        else:
            commands, cut = [], 0
            if self.error is not None:
                return commands
            if self._skip or self._bulk_left:
                cut = self._gather(data)
                if self._skip or self._bulk_left:
                    return commands
            else:
                data, self._rest = self._rest + data, b""
        self._read(data, cut, commands)
        self._idle = not self._left and not self._rest and self.error is None
        return commands

    # --- the strict reader -----------------------------------------------------------------------

    def _read(self, data: bytes, at: int, commands: list[list[bytes]]) -> None:
        """Read `data` from `at` on, and keep what is incomplete."""
        size = len(data)
        while True:
            if self._left:
                at = self._read_arguments(data, at)
                if at < 0:
                    return
            if self._args:  # complete; the last argument may have been gathered
                if self._bytes_max != FREE_BYTES:
                    self._end_large()
                commands.append(self._args)
                self._args = []
                self._bytes = 0
            if at >= size:
                return
            if data[at] != _STAR:
                at = self._read_inline(data, at, commands)
                if at < 0:
                    return
                continue
            end = data.find(b"\r", at, at + INLINE_BYTES_MAX)
            if end < 0 or end + 1 >= size:
                self._keep_line(data, at, end)
                return
            header = data[at:end]
            count = _COUNTS.get(header)
            if count is None:
                if 0 in header:
                    self._keep_line(data, at, -1)
                    return
                count = parse_integer(header[1:])
                if count is None or count > ARGUMENTS_MAX:
                    self._refuse(b"invalid multibulk length")
                    return
            self._left = max(count, 0)
            at = end + 2

    def _read_arguments(self, data: bytes, at: int) -> int:
        """Read the missing strings of the array; return the offset behind them, negative if there
        is none yet."""
        size = len(data)
        find, known_length = data.find, _LENGTHS.get
        args, left, total = self._args, self._left, self._bytes
        if self._refusal:
            args.clear()
        while left:
            end = find(b"\r", at, at + INLINE_BYTES_MAX)
            if end < 0 or end + 1 >= size:
                self._left, self._bytes = left, total
                self._keep_line(data, at, end)
                return -1
            length = known_length(data[at:end])
            if length is None:
                length = self._checked_length(data, at, end)
                if length is None:
                    self._left, self._bytes = (0, 0) if self.error is not None else (left, total)
                    return -1
            start = end + 2
            stop = start + length
            total += length + WORD_BYTES
            if total > self._bytes_max:
                self._left, self._bytes = left, total - length - WORD_BYTES
                if not self._may_grow(total):
                    return -1
            if stop + 2 > size:
                self._left, self._bytes = left, total
                if length < _GATHERED_BYTES_MIN:
                    self._bytes -= length + WORD_BYTES
                    self._rest = data[at:]
                else:
                    self._bulk_left = length
                    self._skip = 2
                    if length >= _MAPPED_BYTES_MIN and not self._refusal:
                        self._mapped = _pages(length)
                    self._gather(data[start:])
                return -1
            args.append(data[start:stop])
            left -= 1
            at = stop + 2
        self._left, self._bytes = 0, total
        return at

    def _may_grow(self, total: int) -> bool:
        """Return whether the stream goes on although the present command has so many bytes with the
        next word.

        Decides whether they are kept or dropped."""
        if total > DROPPED_BYTES_MAX:
            self._refuse(b"command of more than %d bytes" % DROPPED_BYTES_MAX)
            return False
        if not self._refusal:
            if total - WORD_BYTES * (len(self._args) + 1) > QUERY_BYTES_MAX:
                self._drop(error(b"ERR command of more than %d bytes" % QUERY_BYTES_MAX))
                return True
            admitted = self._bytes_max if self._bytes_max != FREE_BYTES else 0
            bytes_max = max(total, self._bytes_max + FREE_BYTES)
            if refusal := self._admit(bytes_max - admitted):
                self._drop(refusal)
            else:
                self._bytes_max = bytes_max
        return True

    def _drop(self, refusal: bytes) -> None:
        """Keep nothing of the present command and answer `refusal`."""
        is_watch = bool(self._args) and self._args[0].lower() == b"watch"
        self._refusal = RefusedWatch(refusal) if is_watch else Refusal(refusal)
        self._bytes_max = DROPPED_BYTES_MAX
        self._args.clear()

    def _end_large(self) -> None:
        """Finish the present command, which had more than FREE_BYTES."""
        self._bytes_max = FREE_BYTES
        if self._refusal:
            self._args = [self._refusal]
            self._refusal = b""
        else:
            self.took_large = True

    def _keep_line(self, data: bytes, at: int, end: int) -> None:
        if end < 0 and len(data) - at >= INLINE_BYTES_MAX:
            kind = b"bulk" if self._left else b"mbulk"
            self._refuse(b"too big %b count string" % kind)
        else:
            self._rest = data[at:]

    def _checked_length(self, data: bytes, at: int, end: int) -> int | None:
        """Return the length in an uncommon string header; None if refused or incomplete."""
        header = data[at:end]
        if 0 in header:
            # As in Redis, whose lines are C strings, a line with a NUL never ends.
            self._keep_line(data, at, -1)
            return None
        if header[:1] != b"$":
            self._refuse(b"expected '$', got '%b'" % (header[:1] or b"\r"))
            return None
        length = parse_integer(header[1:])
        if length is None or not 0 <= length <= DROPPED_BYTES_MAX:
            self._refuse(b"invalid bulk length")
            return None
        if length > BULK_BYTES_MAX and not self._refusal:
            self._drop(
                error(b"ERR string of %d bytes: at most %d may be sent" % (length, BULK_BYTES_MAX))
            )
        return length

    def _gather(self, data: bytes) -> int:
        """Take the long string's bytes from the start of `data`; return the offset behind them."""
        at = min(self._bulk_left, len(data))
        if at:
            if self._mapped is not None:
                self._mapped.write(memoryview(data)[:at])
            elif not self._refusal:
                self._pieces.append(data[:at])
            self._bulk_left -= at
        if self._bulk_left == 0:
            skipped = min(self._skip, len(data) - at)
            self._skip -= skipped
            at += skipped
            if self._skip == 0:
                if self._mapped is not None:
                    self._args.append(self._mapped[:])
                    self._mapped.close()
                    self._mapped = None
                else:
                    self._args.append(b"".join(self._pieces))
                    self._pieces = []
                self._left -= 1
        return at

    def _read_inline(self, data: bytes, at: int, commands: list[list[bytes]]) -> int:
        """Read one line as a command; return the offset behind it, negative if there is none."""
        end = data.find(b"\n", at, at + INLINE_BYTES_MAX)
        if end < 0 or data.find(b"\0", at, end) >= 0:
            if len(data) - at >= INLINE_BYTES_MAX:
                self._refuse(b"too big inline request")
            else:
                self._rest = data[at:]
            return -1
        try:
            words = split_words(data[at:end].removesuffix(b"\r"))
        except SplitRefused:
            self._refuse(b"unbalanced quotes in request")
            return -1
        if words and words[0].lower() in (b"post", b"host:"):
            # A browser was made to send HTTP here; what follows are not commands of its user.
            self._stop(b"")
            return -1
        if words:
            commands.append(words)
        return end + 1

    def _refuse(self, reason: bytes) -> None:
        self._stop(error(b"ERR Protocol error: %b" % until_nul(reason)))

    def _stop(self, error: bytes) -> None:
        self.error = error
        self._idle = False
        self._rest = b""
        self._args = []
        self._pieces = []
        self._mapped = None
        self._left = self._bytes = self._bulk_left = self._skip = 0
        self._refusal = b""


def _pages(size: int) -> mmap.mmap:
    """Return memory that is allocated page by page as it is written."""
    pages = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # taking small pages one by one costs more than writing them
        pages.madvise(mmap.MADV_HUGEPAGE)
    return pages
