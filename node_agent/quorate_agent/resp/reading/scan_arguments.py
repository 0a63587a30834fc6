"""Parses the arguments of SCAN, HSCAN and SSCAN."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from quorate_agent.resp.reading.glob import TOO_LONG, are_too_long, glob_matcher, glob_weight
from quorate_agent.resp.reading.integers import parse_integer
from quorate_agent.resp.replies import NOT_AN_INTEGER, SYNTAX_ERROR, until_nul

MATCH_STEPS_MAX = 16 * 1024 * 1024
"""Steps of matching for one page: a step takes 1 ns, and the agent does nothing else meanwhile."""

_CURSOR = re.compile(rb"[+-]?[0-9]{1,40}|")
_CURSOR_COUNT = 2**64


@dataclass(frozen=True, slots=True)
class ScanArguments:
    """The options behind the cursor."""

    count: int = 10
    pattern: bytes | None = None
    type_name: bytes | None = None  # lower case

    def matcher(self) -> Callable[[bytes], object] | None:
        """Return a function that is true for the wanted names; None if all are."""
        if self.pattern is None or self.pattern == b"*":
            return None
        return glob_matcher(self.pattern)

    def names_bytes_max(self) -> int:
        """Return of how many bytes the names of one page may be, so that matching them is quick."""
        return MATCH_STEPS_MAX // glob_weight(self.pattern or b"*")


def parse_cursor(word: bytes) -> int | None:
    """Return the cursor, read as leniently as Redis does; None if it is invalid."""
    text = until_nul(word)
    if not _CURSOR.fullmatch(text):
        return None
    cursor = int(text or b"0")
    return None if abs(cursor) >= _CURSOR_COUNT else cursor % _CURSOR_COUNT


def parse_scan(words: list[bytes], with_type: bool) -> ScanArguments | bytes:
    """Parse [MATCH pattern] [COUNT rows] [TYPE type]; return the options or the error reply."""
    count, pattern, type_name = 10, None, None
    for at in range(0, len(words), 2):
        option = words[at].upper()
        if at + 1 == len(words):
            return SYNTAX_ERROR
        argument = words[at + 1]
        if option == b"COUNT":
            number = parse_integer(argument)
            if number is None:
                return NOT_AN_INTEGER
            if number < 1:
                return SYNTAX_ERROR
            count = number
        elif option == b"MATCH":
            if are_too_long([argument]):
                return TOO_LONG
            pattern = argument
        elif option == b"TYPE" and with_type:
            type_name = argument.lower()
        else:
            return SYNTAX_ERROR
    return ScanArguments(count, pattern, type_name)
