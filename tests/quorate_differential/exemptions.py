"""Every way in which our replies may differ from those of Redis 7.0, each with its reason.

A rule says for which commands it holds and how far the two replies may be apart.  What no rule
allows has to be equal byte for byte.  Streams that are no clean commands have a list of their own.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from quorate_agent.resp.tables.table import COMMANDS
from quorate_differential.raw_replies import reply_end

Allows = Callable[[bytes, bytes], bool]

CLOCK_SLACK_MS = 2_000
_CONTAINERS = {name for name, command in COMMANDS.items() if command.has_subcommands}


@dataclass(frozen=True, slots=True)
class Exemption:
    """`allows(theirs, ours)` for commands whose name, with its subcommand, is one of `names`."""

    names: tuple[bytes, ...]
    reason: str
    allows: Allows


def same_reply(args: Sequence[bytes], theirs: bytes, ours: bytes) -> bool:
    """Whether our reply is Redis' reply, or differs only as an exemption allows."""
    if theirs == ours:
        return True
    name = args[0].lower()
    if name in _CONTAINERS and len(args) > 1:
        name += b" " + args[1].lower()
    if name == b"command info" and len(args) == 2:
        name = b"command"  # the same in another spelling
    return any(rule.allows(theirs, ours) for rule in EXEMPTIONS if name in rule.names)


def _integers_within(slack: int) -> Allows:
    def allows(theirs: bytes, ours: bytes) -> bool:
        both = re.fullmatch(rb":(\d+)\r\n:(\d+)\r\n", theirs + ours)
        return both is not None and abs(int(both[1]) - int(both[2])) <= slack

    return allows


def _same_elements(theirs: bytes, ours: bytes) -> bool:
    """Arrays and sets of the same sizes with the same strings in any order."""
    their_sizes, their_leaves = _taken_apart(theirs)
    our_sizes, our_leaves = _taken_apart(ours)
    return their_sizes == our_sizes and sorted(their_leaves) == sorted(our_leaves)


def _same_pairs(theirs: bytes, ours: bytes) -> bool:
    """The same fields with the same values, in any order of the fields; a cursor is in front."""
    their_sizes, their_leaves = _taken_apart(theirs)
    our_sizes, our_leaves = _taken_apart(ours)
    at = len(their_leaves) % 2
    return (
        (their_sizes, their_leaves[:at]) == (our_sizes, our_leaves[:at])
        and sorted(zip(their_leaves[at::2], their_leaves[at + 1 :: 2], strict=True))
        == sorted(zip(our_leaves[at::2], our_leaves[at + 1 :: 2], strict=True))
    )  # fmt: skip


def _taken_apart(reply: bytes) -> tuple[list[bytes], list[bytes]]:
    """The headers of the reply's arrays, sets and maps, and all that is in them."""
    sizes: list[bytes] = []
    leaves: list[bytes] = []
    at = 0
    while at < len(reply):
        is_leaf = reply[at : at + 1] not in (b"*", b"~", b"%")
        end = reply_end(reply, at) if is_leaf else reply.find(b"\r\n", at) + 2
        (leaves if is_leaf else sizes).append(reply[at:end])
        at = end
    return sizes, leaves


def _without(pattern: bytes) -> Allows:
    expression = re.compile(pattern)
    return lambda theirs, ours: expression.sub(b"", theirs) == expression.sub(b"", ours)


def _both_arrays(theirs: bytes, ours: bytes) -> bool:
    return theirs[:1] == ours[:1] == b"*"


def _same_shape(theirs: bytes, ours: bytes) -> bool:
    """Equal but for digits and how many they are."""
    return re.sub(rb"\d+", b"0", theirs) == re.sub(rb"\d+", b"0", ours)


def _both_integers(theirs: bytes, ours: bytes) -> bool:
    return theirs[:1] == ours[:1] == b":"


def _same_shape_of_text(theirs: bytes, ours: bytes) -> bool:
    return theirs[:1] == ours[:1] == b"$" and b"$-1" not in (theirs[:3], ours[:3])


def _both_in(*groups: tuple[bytes, ...]) -> Allows:
    def allows(theirs: bytes, ours: bytes) -> bool:
        words = {*theirs.split(b"\r\n")[1:-1], *ours.split(b"\r\n")[1:-1]}
        return any(words <= {*group} for group in groups)

    return allows


EXEMPTIONS = (
    Exemption(
        (b"pttl", b"pexpiretime"),
        "two servers look at the clock one after the other",
        _integers_within(CLOCK_SLACK_MS),
    ),
    Exemption(
        (b"ttl", b"expiretime"),
        "two servers look at the clock one after the other",
        _integers_within(CLOCK_SLACK_MS // 1000),
    ),
    Exemption((b"time",), "two servers look at the clock one after the other", _same_shape),
    Exemption((b"client id",), "each server numbers its connections itself", _same_shape),
    Exemption(
        (b"hello",),
        "each server numbers its connections itself, and has a version of its own",
        _without(rb"\$2\r\nid\r\n:\d+\r\n|\$7\r\nversion\r\n\$\d+\r\n[\d.]+\r\n"),
    ),
    Exemption(
        (b"scan", b"keys"), "keys come in the order of each server's own tables", _same_elements
    ),
    Exemption(
        (b"hkeys", b"hvals", b"smembers", b"sscan", b"spop", b"srandmember"),
        "Redis keeps fields and members in the order of their hashes; here they stay as they came",
        _same_elements,
    ),
    Exemption(
        (b"hgetall", b"hscan"),
        "Redis keeps fields in the order of their hashes; here they stay as they came",
        _same_pairs,
    ),
    Exemption((b"srandmember",), "each server draws for itself", _same_shape_of_text),
    Exemption(
        (b"object encoding",),
        "Redis tells what the value has been through, we what it would choose for the contents",
        _both_in(
            (b"int", b"embstr", b"raw"), (b"listpack", b"hashtable"), (b"intset", b"hashtable")
        ),
    ),
    Exemption((b"object refcount",), "Redis shares small integers", _both_integers),
    Exemption((b"memory usage",), "each server keeps a value in its own way", _both_integers),
    Exemption(
        (b"memory usage",),
        "Redis answers it for keys that have expired, until it stumbles on them",
        lambda theirs, ours: theirs[:1] == b":" and ours in (b"$-1\r\n", b"_\r\n"),
    ),
    Exemption(
        (b"object idletime",),
        "reading leaves no trace here",
        lambda theirs, ours: theirs[:1] == b":" and b"idle time not tracked" in ours,
    ),
    Exemption(
        (b"command",),
        "all commands: we have some of them",
        _both_arrays,
    ),
    Exemption(
        (b"command list",), "Redis lists commands in the order of its own table", _same_elements
    ),
    Exemption(
        (b"command info",),
        "SET carries a note on its key, prose that no client reads",
        _without(rb"\$5\r\nnotes\r\n\$\d+\r\n[^\r]*\r\n|%4|%3|\*8|\*6"),
    ),
)


@dataclass(frozen=True, slots=True)
class StreamExemption:
    """Streams that contain `pattern` may be answered differently, for `reason`."""

    pattern: re.Pattern[bytes]
    reason: str


def is_exempt_stream(stream: bytes) -> bool:
    """Whether the answer to this stream of bytes may differ."""
    return any(rule.pattern.search(stream) for rule in STREAM_EXEMPTIONS)


STREAM_EXEMPTIONS = (
    StreamExemption(
        re.compile(rb"\*[0-9]{7,10}\r"),
        "a command has at most 1024 * 1024 words; Redis 7 takes 2**31",
    ),
    StreamExemption(
        re.compile(rb"(?im)^(post|host:)"),
        "to close on what looks like HTTP, Redis throws away replies that are not sent yet",
    ),
    StreamExemption(
        re.compile(rb"\$(67108865|[1-4][0-9]{8})\r"),
        "Redis closes the connection over a string that is too long, and its client sees a reset;"
        " an agent reads up to 512 MiB of it, answers with an error and goes on",
    ),
)
