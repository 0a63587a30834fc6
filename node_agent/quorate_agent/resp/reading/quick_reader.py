"""Parses commands in their plainest form quickly, by one split at line ends.

In its plainest form a command has few short words, no word contains a line end, and each header is
a number without sign or leading zeros.  Every header is compared with its word, so what is returned
is exactly what the strict reader (`parser.py`) would return.  From the first command that differs,
or is incomplete, the strict reader takes over.
"""

WORDS_MAX = 60
WORD_BYTES_MAX = 1023
"""Together they keep a command below the size for which the strict reader asks for memory."""

_SIZES = [b"$%d" % size for size in range(WORD_BYTES_MAX + 1)]
# Header of a command -> the number of its lines: this header, and two for each word.
_LINES = {b"*%d" % count: 2 * count + 1 for count in range(1, WORDS_MAX + 1)}


def read_quickly(data: bytes) -> tuple[list[list[bytes]], int]:
    """Return the commands at the start of `data` and the number of bytes they take.

    `data` starts where a command does."""
    lines = data.split(b"\r\n")
    end = len(lines) - 1
    if not lines[end]:
        # Nearly all clients send either one short command or a pipeline.
        commands = _read_one(lines) if end in (5, 7) else _read_alike(lines, end)
        if commands:
            return commands, len(data)
    commands, at = [], 0
    sizes = _SIZES
    try:
        while at < end:
            stop = at + _LINES[lines[at]]
            words = lines[at + 2 : stop : 2]
            if stop > end or lines[at + 1 : stop : 2] != [sizes[len(word)] for word in words]:
                break
            commands.append(words)
            at = stop
    except LookupError:
        pass  # another header, or a word that is too long
    if at == end:
        return commands, len(data) - len(lines[end])
    return commands, sum(map(len, lines[:at])) + 2 * at


def _read_one(lines: list[bytes]) -> list[list[bytes]] | None:
    """Return the command if these are the lines of one that has two or three words."""
    try:
        if len(lines) == 6:
            count, name_size, name, key_size, key, _ = lines
            if count == b"*2" and key_size == _SIZES[len(key)] and name_size == _SIZES[len(name)]:
                return [[name, key]]
        else:
            count, name_size, name, key_size, key, value_size, value, _ = lines
            if (
                count == b"*3"
                and value_size == _SIZES[len(value)]
                and key_size == _SIZES[len(key)]
                and name_size == _SIZES[len(name)]
            ):
                return [[name, key, value]]
    except IndexError:
        pass  # a word is too long
    return None


def _read_alike(lines: list[bytes], end: int) -> list[list[bytes]] | None:
    """Return the commands if all have the same number of words."""
    step = _LINES.get(lines[0], end + 1)
    number, left = divmod(end, step)
    if left or lines[:end:step].count(lines[0]) != number:
        return None
    sizes = _SIZES
    columns = []
    try:
        for at in range(2, step, 2):
            words = lines[at:end:step]
            if lines[at - 1 : end : step] != [sizes[len(word)] for word in words]:
                return None
            columns.append(words)
    except IndexError:
        return None  # a word is too long
    return list(map(list, zip(*columns, strict=True)))
