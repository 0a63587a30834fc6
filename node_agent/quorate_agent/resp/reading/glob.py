"""Matches names against Redis glob patterns: `*`, `?`, `[a-z]`, `[^a]`, `\\x`.

A pattern becomes a regular expression in which every part after a `*` is an atomic group, so that
no pattern costs more than pattern length times name length (plain `.*a.*a.*a` would backtrack
without bound, and patterns come from clients).
"""

import re
from collections.abc import Callable, Iterable

from quorate_agent.resp.replies import error

PATTERN_BYTES_MAX = 4096
"""Bytes of all patterns of a command: compiling takes some microseconds per byte, and blocks the
agent."""

TOO_LONG = error(b"ERR patterns of more than %d bytes" % PATTERN_BYTES_MAX)

_NEVER = b"(?!)"


def are_too_long(patterns: Iterable[bytes]) -> bool:
    """Return whether these patterns are to be refused (TOO_LONG)."""
    return sum(map(len, patterns)) > PATTERN_BYTES_MAX


def glob_weight(pattern: bytes) -> int:
    """Return how many steps the matcher takes for each byte of a name, at most.

    The part of the pattern behind its first `*` is tried at each byte."""
    return 1 + len(pattern.partition(b"*")[2])


def glob_matcher(pattern: bytes, ignore_case: bool = False) -> Callable[[bytes], object]:
    """Return a function whose result is true for the names that `pattern` matches as a whole."""
    segments = [b""]
    at = 0
    while at < len(pattern):
        char = pattern[at : at + 1]
        at += 1
        if char == b"*":
            segments.append(b"")
            continue
        if char == b"?":
            segments[-1] += b"."
        elif char == b"[":
            members, at = _class_at(pattern, at)
            segments[-1] += members
        else:
            if char == b"\\" and at < len(pattern):
                char = pattern[at : at + 1]
                at += 1
            segments[-1] += re.escape(char)
    first, *later = segments
    expression = first
    if later:
        expression += b"".join(b"(?>.*?%b)" % segment for segment in later[:-1] if segment)
        expression += b".*" + later[-1]
    flags = re.DOTALL | (re.IGNORECASE if ignore_case else 0)
    return re.compile(expression, flags).fullmatch


def _class_at(pattern: bytes, at: int) -> tuple[bytes, int]:
    """Return the class that starts behind `[` as an expression, and where the pattern goes on.

    A class that is never closed extends to the end of the pattern, as in Redis.
    """
    negated = pattern[at : at + 1] == b"^"
    at += negated
    members: list[bytes] = []
    while at < len(pattern):
        if pattern[at] == ord("\\") and at + 1 < len(pattern):
            members.append(_range(pattern[at + 1], pattern[at + 1]))
            at += 2
        elif pattern[at] == ord("]"):
            at += 1
            break
        elif at + 2 < len(pattern) and pattern[at + 1] == ord("-"):
            members.append(_range(pattern[at], pattern[at + 2]))
            at += 3
        else:
            members.append(_range(pattern[at], pattern[at]))
            at += 1
    if not members:
        return (b"." if negated else _NEVER), at
    return b"[%b%b]" % (b"^" if negated else b"", b"".join(members)), at


def _range(first: int, last: int) -> bytes:
    return b"\\x%02x-\\x%02x" % (min(first, last), max(first, last))
