"""Splits a line that a person typed into words, with the quotes and escapes of Redis."""

import re

_SPACES = b" \t\n\v\f\r"  # between words
_ENDS = b" \t\n\r"  # of an unquoted word
_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}
# In double quotes: \xHH, or any escaped byte; in single quotes only the quote itself is escaped.
_DOUBLE = re.compile(rb'"((?:\\.|[^"\\])*)"(?=[ \t\n\v\f\r]|$)', re.DOTALL)
_SINGLE = re.compile(rb"'((?:\\'|[^'])*)'(?=[ \t\n\v\f\r]|$)", re.DOTALL)
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_PLAIN = re.compile(rb"[^ \t\n\r\"']+")


class SplitRefused(Exception):
    """A quote is not closed, or something directly follows a closing one."""


def split_words(line: bytes) -> list[bytes]:
    """Return the words of `line`.  A quoted part ends its word; an unquoted part may precede it."""
    words: list[bytes] = []
    line = line.partition(b"\0")[0]
    at = 0
    while True:
        while at < len(line) and line[at] in _SPACES:
            at += 1
        if at >= len(line):
            return words
        word = b""
        while at < len(line) and line[at] not in _ENDS:
            if found := _PLAIN.match(line, at):
                word += found.group()
            elif found := _DOUBLE.match(line, at):
                word += _ESCAPE.sub(_unescaped, found.group(1))
            elif found := _SINGLE.match(line, at):
                word += found.group(1).replace(b"\\'", b"'")
            else:
                raise SplitRefused
            at = found.end()
        words.append(word)


def _unescaped(found: re.Match[bytes]) -> bytes:
    code, char = found.groups()
    return bytes([int(code, 16)]) if code is not None else _ESCAPES.get(char, char)
