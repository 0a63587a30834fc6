"""Which commands a client's bytes spell: RESP arrays and inline commands, cut out of a stream.

There are two readers.  The strict one, in Python, is the authority: it keeps what is incomplete,
knows every limit and words errors as Redis does.  The quick one is hiredis, four times as fast; but
it believes any array header (a few bytes would make it reserve gigabytes), takes kinds of values
that no client may send, and cannot tell where in the stream it stands.  So it only gets chunks that
start at a command and that `_is_harmless`, and its answer only counts when it shows that the chunk
ended exactly at the end of a command: each command consumed one `*`, and there were no more.  What
fails the test (a chunk cut in a command, values with `*` or `~` in them, long commands, garbage)
goes to the strict reader.
"""

import re

import hiredis

from quorate_agent.resp.command import ARGUMENTS_MAX
from quorate_agent.resp.inline import SplitRefused, split_words
from quorate_agent.resp.integers import parse_integer
from quorate_agent.resp.replies import VALUE_BYTES_MAX, error, until_nul

BULK_BYTES_MAX = VALUE_BYTES_MAX
# All arguments of one command.  Less than a peer frame, so that every update fits into one.
QUERY_BYTES_MAX = 72 * 1024 * 1024
# A line: an inline command, or the header of an array or a string.
INLINE_BYTES_MAX = 64 * 1024

# A string longer than this is gathered piece by piece instead of joined with every chunk.
_GATHERED_BYTES_MIN = 16 * 1024

_STAR, _NEWLINE = b"*\n"
_COUNTS = {b"*%d" % count: count for count in range(1, 128)}
_LENGTHS = {b"$%d" % length: length for length in range(1024)}
# hiredis gets no header of more than two digits: what it reserves for one stays below a kilobyte.
_LONG_HEADER = re.compile(rb"\*[0-9]{3}")
_MORE = object()


class CommandParser:
    """The reading side of one client connection.  `feed` never raises.

    `error` is set when the stream was garbage: after the commands of that `feed` the client gets
    this line (empty: nothing) and is disconnected; further bytes are not looked at.
    """

    __slots__ = ("_args", "_bulk_left", "_bytes", "_left", "_pieces", "_rest", "_skip", "error")

    def __init__(self) -> None:
        self.error: bytes | None = None
        self._rest = b""  # an incomplete line, or a short string and its header
        self._left = 0  # arguments that the present array still lacks
        self._args: list[bytes] = []
        self._bytes = 0  # of the arguments, a long string's missing ones included
        self._pieces: list[bytes] = []  # of a long string
        self._bulk_left = 0  # bytes that it still lacks
        self._skip = 0  # bytes of its line end that are still to come

    @property
    def pending_bytes(self) -> int:
        """Bytes held of an incomplete command; 0 at the end of one."""
        return len(self._rest) + self._bytes - self._bulk_left

    def feed(self, data: bytes) -> list[list[bytes]]:
        """The commands that `data` completes: each a list of words, the first the name as sent."""
        if self._left == 0 and not self._rest and self.error is None:
            if _is_harmless(data):
                commands = _quickly(data)
                if commands is not None:
                    return commands
                # Most often only the last command is cut.  Where the cut is can only be guessed;
                # the quick reader proves it or fails again.
                cut = data.rfind(b"\r\n*") + 2
                commands = _quickly(data[:cut]) if cut > 1 else None
                if commands is not None:
                    self._read(data, cut, commands)
                    return commands
            commands = []
            self._read(data, 0, commands)
            return commands
        if self.error is not None:
            return []
        commands = []
        if self._skip or self._bulk_left:
            at = self._gather(data)
            if not self._skip and not self._bulk_left:
                self._read(data, at, commands)  # even of nothing: it may end the command
            return commands
        data, self._rest = self._rest + data, b""
        self._read(data, 0, commands)
        return commands

    # --- the strict reader -----------------------------------------------------------------------

    def _read(self, data: bytes, at: int, commands: list[list[bytes]]) -> None:
        """Read `data` from `at` on; what is incomplete is kept."""
        size = len(data)
        while True:
            if self._left == 0:
                if self._args:
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
            if 0 in header:
                # As in Redis, whose lines are C strings, a line with a NUL never ends.
                self._keep_line(data, at, -1)
                return
            if self._left == 0:
                count = _COUNTS.get(header) or parse_integer(header[1:])
                if count is None or count > ARGUMENTS_MAX:
                    self._refuse(b"invalid multibulk length")
                    return
                self._left = max(count, 0)
                at = end + 2
                continue
            length = _LENGTHS.get(header)
            if length is None:
                length = self._checked_length(header)
                if length is None:
                    return
            start = end + 2
            stop = start + length
            if stop + 2 <= size:
                self._args.append(data[start:stop])
                self._bytes += length
                self._left -= 1
                at = stop + 2
                if self._bytes > QUERY_BYTES_MAX:
                    self._refuse_size()
                    return
                continue
            if self._bytes + length > QUERY_BYTES_MAX:
                self._refuse_size()
            elif length < _GATHERED_BYTES_MIN:
                self._rest = data[at:]
            else:
                self._bytes += length
                self._bulk_left = length
                self._skip = 2
                self._gather(data[start:])
            return

    def _keep_line(self, data: bytes, at: int, end: int) -> None:
        if end < 0 and len(data) - at >= INLINE_BYTES_MAX:
            kind = b"bulk" if self._left else b"mbulk"
            self._refuse(b"too big %b count string" % kind)
        else:
            self._rest = data[at:]

    def _checked_length(self, header: bytes) -> int | None:
        """The length that an uncommon header of a string gives; None: it was refused."""
        if header[:1] != b"$":
            self._refuse(b"expected '$', got '%b'" % (header[:1] or b"\r"))
            return None
        length = parse_integer(header[1:])
        if length is None or not 0 <= length <= BULK_BYTES_MAX:
            self._refuse(b"invalid bulk length")
            return None
        return length

    def _gather(self, data: bytes) -> int:
        """Take the long string's bytes from the start of `data`; where the next thing starts."""
        at = min(self._bulk_left, len(data))
        if at:
            self._pieces.append(data[:at])
            self._bulk_left -= at
        if self._bulk_left == 0:
            skipped = min(self._skip, len(data) - at)
            self._skip -= skipped
            at += skipped
            if self._skip == 0:
                self._args.append(b"".join(self._pieces))
                self._pieces = []
                self._left -= 1
        return at

    def _read_inline(self, data: bytes, at: int, commands: list[list[bytes]]) -> int:
        """Read one line as a command; where the next thing starts, negative: nowhere."""
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
            # A browser was made to send HTTP here: what follows are not its user's commands.
            self._stop(b"")
            return -1
        if words:
            commands.append(words)
        return end + 1

    def _refuse(self, reason: bytes) -> None:
        self._stop(error(b"ERR Protocol error: %b" % until_nul(reason)))

    def _refuse_size(self) -> None:
        self._refuse(b"command of more than %d bytes" % QUERY_BYTES_MAX)

    def _stop(self, error: bytes) -> None:
        self.error = error
        self._rest = b""
        self._args = []
        self._pieces = []
        self._left = self._bytes = self._bulk_left = self._skip = 0


# --- the quick reader ----------------------------------------------------------------------------

# One for the process: between two calls it holds nothing.
_reader = hiredis.Reader(notEnoughData=_MORE)


def _is_harmless(data: bytes) -> bool:
    """Whether hiredis may see `data`, which starts at a command: no header in it can cost much."""
    # Numbers, because asking a string for a byte is three times as quick as for a string.
    if data[:1] != b"*" or 0x25 in data or 0x3E in data or 0x7C in data or 0x7E in data:  # %>|~
        return False
    if data.count(b"*") == 1:
        return data.find(b"\r", 1, 4) > 0
    return _LONG_HEADER.search(data) is None


def _quickly(data: bytes) -> list[list[bytes]] | None:
    """The commands of `data` if it consists of whole commands and that can be proved."""
    global _reader
    reader = _reader
    commands: list[list[bytes]] = []
    try:
        reader.feed(data)
        gets = reader.gets
        while (command := gets()) is not _MORE:
            if not command:
                break
            commands.append(command)
            for argument in command:
                if type(argument) is not bytes:
                    break
            else:
                continue
            break
        else:
            # Every array consumed its own `*`; so with none left over no array was begun inside
            # another or at the end.  With no bytes left over nothing else was begun either, but
            # for a kind (`$`) at the very end, which hiredis consumes by itself.
            if data.count(b"*") == len(commands) and data[-1] == _NEWLINE and not reader.has_data():
                return commands
    except (hiredis.HiredisError, TypeError, ValueError, MemoryError):
        pass  # not a stream of commands, or not one that a client may send
    _reader = hiredis.Reader(notEnoughData=_MORE)
    return None
