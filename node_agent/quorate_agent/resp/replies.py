"""Encodes replies in RESP2 and RESP3.

All functions return bytes ready to be sent.  A reply that differs between the two protocol versions
takes `resp3`; all others are the same in both.  Error texts are those of Redis 7, because clients
match on them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, islice

VALUE_BYTES_MAX = 64 * 1024 * 1024

OK = b"+OK\r\n"
PONG = b"+PONG\r\n"
ZERO = b":0\r\n"
ONE = b":1\r\n"
NULL2 = b"$-1\r\n"
NULL3 = b"_\r\n"
EMPTY_BULK = b"$0\r\n\r\n"

NOT_AN_INTEGER = b"-ERR value is not an integer or out of range\r\n"
SYNTAX_ERROR = b"-ERR syntax error\r\n"
VALUE_TOO_LONG = b"-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n"
INCREMENT_OVERFLOW = b"-ERR increment or decrement would overflow\r\n"
DECREMENT_OVERFLOW = b"-ERR decrement would overflow\r\n"
WRONGTYPE = b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
NOT_A_FLOAT = b"-ERR value is not a valid float\r\n"
FLOAT_OVERFLOW = b"-ERR increment would produce NaN or Infinity\r\n"
NO_SUCH_KEY = b"-ERR no such key\r\n"
INVALID_CURSOR = b"-ERR invalid cursor\r\n"
NOT_POSITIVE = b"-ERR value is out of range, must be positive\r\n"
CROSSSLOT = b"-CROSSSLOT Keys in request don't hash to the same slot\r\n"
CLUSTERDOWN = b"-CLUSTERDOWN Hash slot not served\r\n"
OOM = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"
# Our own: transactions and forwarded commands store rows under such keys.
RESERVED_KEY = b"-ERR keys that begin with \\x00quorate\\x00 are reserved\r\n"
# Our own: Redis has no bound for a whole collection.
COLLECTION_TOO_LONG = b"-ERR the hash, set or list would take more than 64 MiB in one key\r\n"
# Our own: one command may name a large value many times.
REPLY_BYTES_MAX = 4 * VALUE_BYTES_MAX
REPLY_TOO_LONG = b"-ERR the reply would take more than 256 MiB: ask for fewer values at a time\r\n"
DAMAGED = b"-ERR the value is damaged: `quorate validate` compares its copies\r\n"
# Our own: a defect of one command must not end the agent, and then the next one it is sent to.
COMMAND_FAILED = b"-ERR internal error, nothing was changed: see the agent's log\r\n"
# Our own: clients do not repeat a command by themselves after an unknown error code.
UNKNOWN_OUTCOME = b"-UNKNOWN the command may or may not have been applied\r\n"

_HEADERS_MAX = 1024
# Of strings: a lookup instead of a conversion, which was half the cost of a short reply.
_HEADERS = [b"$%d\r\n" % size for size in range(_HEADERS_MAX)]

_BREAKS = bytes.maketrans(b"\r\n", b"  ")


def bulk(value: bytes) -> bytes:
    """Encode a string of any bytes."""
    size = len(value)
    if size < _HEADERS_MAX:
        return b"".join((_HEADERS[size], value, b"\r\n"))
    return b"$%d\r\n%b\r\n" % (size, value)


TOGETHER_BYTES_MAX = 256 * 1024
"""Bytes of several replies that are made in one step."""


class NotTogether(Exception):
    """Several replies are to be made one by one: they are too long, or there are errors."""


def bulk_each(values: Sequence[bytes]) -> bytes:
    """Encode several strings, at least one, one after the other; NotTogether."""
    try:
        return b"\r\n".join([_HEADERS[len(value)] + value for value in values]) + b"\r\n"
    except IndexError:
        check_length(values)
        return b"".join(map(bulk, values))


def check_length(values: Iterable[bytes]) -> None:
    """Raise NotTogether if these are too long to be answered in one step."""
    if sum(map(len, values)) > TOGETHER_BYTES_MAX:
        raise NotTogether


def integer(number: int) -> bytes:
    """Encode a 64-bit integer."""
    return b":%d\r\n" % number


def simple(text: bytes) -> bytes:
    """Encode a status line; `text` has no line break."""
    return b"+%b\r\n" % text


def error(text: bytes) -> bytes:
    """Encode an error.  `text` starts with the error code; line breaks in it become spaces."""
    return b"-%b\r\n" % text.strip(b"\r\n").translate(_BREAKS)


def misconf(node: str, why: str) -> bytes:
    """Return the error that the disk of agent `node` is full.

    It begins with Redis' words, which clients may look for."""
    text = "MISCONF Errors writing to the AOF file: No space left on device"
    way_out = "free some space there: writes then resume"
    return error(f"{text} (agent {node}, {why or 'a moment ago'}); {way_out}".encode())


def is_no_room(reply: bytes) -> bool:
    """Return whether a reply says that nothing happened for lack of room."""
    return reply == OOM or reply.startswith(b"-MISCONF ")


def null(resp3: bool) -> bytes:
    """Return the null value."""
    return NULL3 if resp3 else NULL2


def null_array(resp3: bool) -> bytes:
    """Return the null array."""
    return NULL3 if resp3 else b"*-1\r\n"


def array(items: Sequence[bytes]) -> bytes:
    """Encode an array of encoded replies."""
    return b"*%d\r\n%b" % (len(items), b"".join(items))


def set_(items: Sequence[bytes], resp3: bool) -> bytes:
    """Encode a set of encoded replies; in RESP2 an array."""
    return b"%b%d\r\n%b" % (b"~" if resp3 else b"*", len(items), b"".join(items))


def map_(pairs: Sequence[tuple[bytes, bytes]], resp3: bool) -> bytes:
    """Encode a map from encoded replies to encoded replies; in RESP2 a flat array of both."""
    return _map(len(pairs), b"".join([part for pair in pairs for part in pair]), resp3)


def bulk_map(fields: Mapping[bytes, bytes], resp3: bool) -> bytes:
    """Encode a map from strings to strings; in RESP2 a flat array of both."""
    size = len(fields)
    head = b"%%%d\r\n" % size if resp3 else b"*%d\r\n" % (2 * size)
    return b"".join([head, *_portions(chain.from_iterable(fields.items()))])


def _map(size: int, body: bytes, resp3: bool) -> bytes:
    return b"%b%d\r\n%b" % (b"%" if resp3 else b"*", size if resp3 else 2 * size, body)


def verbatim(text: bytes, resp3: bool) -> bytes:
    """Encode text for people; in RESP2 a plain string."""
    if resp3:
        return b"=%d\r\ntxt:%b\r\n" % (len(text) + 4, text)
    return bulk(text)


def bulks(values: Collection[bytes]) -> bytes:
    """Encode an array of strings."""
    return b"".join([b"*%d\r\n" % len(values), *_portions(values)])


def bulk_set(values: Collection[bytes], resp3: bool) -> bytes:
    """Encode a set of strings; in RESP2 an array."""
    return b"".join([b"~%d\r\n" % len(values), *_portions(values)]) if resp3 else bulks(values)


_PORTION = 1024
"""Strings that are encoded together: each takes some fifty bytes more until they are joined."""


def _portions(values: Iterable[bytes]) -> Iterable[bytes]:
    """Yield the strings encoded one after the other, many at a time."""
    left = iter(values)
    while portion := [bulk(value) for value in islice(left, _PORTION)]:
        yield b"".join(portion)


def wrong_arity(name: bytes) -> bytes:
    """Return the error that command `name` got too few or too many words.

    `name` is in lower case, `parent|child` for subcommands."""
    return error(b"ERR wrong number of arguments for '%b' command" % name)


def out_of_range(lowest: int, highest: int) -> bytes:
    """Return the error that an integer is not between these bounds."""
    return error(b"ERR value is out of range, value must between %d and %d" % (lowest, highest))


def invalid_expire(name: bytes) -> bytes:
    """Return the error that command `name` got an invalid time to live."""
    return error(b"ERR invalid expire time in '%b' command" % name)


class Refusal(bytes):
    """The error for a command of which nothing was kept; stands in place of the command's name."""

    __slots__ = ()


class RefusedWatch(Refusal):
    """The error for a WATCH of which nothing was kept: a transaction behind it is not executed."""

    __slots__ = ()


def unknown_command(args: Sequence[bytes]) -> bytes:
    """Return the error for an unknown command; quotes 128 bytes of the arguments, as Redis."""
    if isinstance(args[0], Refusal):
        return bytes(args[0])
    quoted = b""
    for argument in args[1:]:
        if len(quoted) >= QUOTED_BYTES_MAX:
            break
        quoted += b"'%b' " % until_nul(argument)[: QUOTED_BYTES_MAX - len(quoted)]
    name = until_nul(args[0])[:QUOTED_BYTES_MAX]
    return error(b"ERR unknown command '%b', with args beginning with: %b" % (name, quoted))


def unknown_subcommand(parent: bytes, child: bytes) -> bytes:
    """Return the error that command `parent` (lower case) has no subcommand `child`."""
    return error(
        b"ERR unknown subcommand '%b'. Try %b HELP."
        % (until_nul(child)[:QUOTED_BYTES_MAX], parent.upper())
    )


def moved(slot: int, host: str, port: int) -> bytes:
    """Return the redirection to the node that serves the slot."""
    return b"-MOVED %d %b:%d\r\n" % (slot, host.encode(), port)


QUOTED_BYTES_MAX = 128


def until_nul(text: bytes) -> bytes:
    """Return `text` up to the first NUL, where Redis' error texts, which are C strings, end too."""
    return text.partition(b"\0")[0]
