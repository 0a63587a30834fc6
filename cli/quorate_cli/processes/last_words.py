"""Reads from its log why a process ended.

Agents and operators write one JSON object per line.  Their other output (a refusal to start, a
traceback of the interpreter) is plain text, and counts as an error.
"""

from pathlib import Path

import msgspec

LINES = 20
"""Lines read at the end: a process that shuts down says a few more things after its error."""
BYTES = 64 * 1024
ERRORS = ("ERROR", "CRITICAL")


class _Line(msgspec.Struct):
    message: str
    level: str = ""


def last_words(log: Path, since: int = 0) -> str:
    """Return the last message from byte `since` on, and where the log is."""
    said = [text for text, _ in _said(log, since)]
    return f"{said[-1] if said else 'it logged nothing'} (log: {log})"


def last_error(log: Path, since: int = 0) -> str:
    """Return the last error from byte `since` on, with the log; empty if there is none."""
    errors = [text for text, is_error in _said(log, since) if is_error]
    return f"{errors[-1]} (log: {log})" if errors else ""


def _said(log: Path, since: int) -> list[tuple[str, bool]]:
    """Return the last lines: text, and whether it is an error."""
    try:
        with log.open("rb") as file:
            file.seek(max(since, log.stat().st_size - BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    return [_understood(line.strip()) for line in lines if line.strip()][-LINES:]


def _understood(line: str) -> tuple[str, bool]:
    try:
        said = msgspec.json.decode(line, type=_Line)
    except msgspec.MsgspecError:
        return line, True
    return said.message, said.level.upper() in ERRORS
