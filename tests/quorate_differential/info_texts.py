"""The reply to INFO, taken apart."""

import re

_KINDS = (
    r"\d+",
    r"\d+\.\d+",
    r"\d+(\.\d+)?%",
    r"\d+(\.\d+)?[BKMGTP]",
    r"[0-9a-f]{40}",
    r"\d+\.\d+\.\d+",
    r"keys=\d+,expires=\d+,avg_ttl=\d+",
    r"[^:]*",
)


def read_info(reply: bytes) -> dict[str, dict[str, str]]:
    """Fields by section, both as they come; sections in lower case."""
    _, _, text = reply.decode().partition("\r\n")
    found: dict[str, dict[str, str]] = {}
    for line in text.removeprefix("txt:").splitlines():
        if line.startswith("# "):
            found[line[2:].lower()] = {}
        elif line:
            name, colon, value = line.partition(":")
            assert colon, line
            found[[*found][-1]][name] = value
    return found


def of_one_kind(one: str, other: str) -> bool:
    """Whether two values are written alike: integers, fractions, sizes for people …"""
    return _kind(one) == _kind(other)


def _kind(value: str) -> int:
    return next(at for at, pattern in enumerate(_KINDS) if re.fullmatch(pattern, value))
