"""Log lines of agents and operators: JSON objects that say what they are about.

Fields of a line come from its text: in `"zone %s: no room"` the argument behind the word `zone`.
"""

import json
import logging
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache

ABOUT = ("namespace", "cluster", "agent", "zone", "partition", "term")
"""Fields that a line has if it is about one of these; `extra` of a log call may give them too."""

_PLACES = re.compile(rf"%%|(?:\b({'|'.join(ABOUT)}) )?%[-+ #0]*\d*(?:\.\d+)?[a-zA-Z]")
_IN_NAMESPACE = ("cluster", "zone")


class JsonLines(logging.Formatter):
    """One JSON object a line, on every one of them the fields `always`."""

    def __init__(self, always: Mapping[str, str]) -> None:
        super().__init__()
        self._always = always

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **self._always,
        }
        if isinstance(record.args, tuple):
            line |= _of_text(str(record.msg), record.args)
        for name in ABOUT:
            value = getattr(record, name, None)
            if value not in (None, ""):
                line[name] = value
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def log_to_stderr(level: int = logging.INFO, **always: str) -> None:
    """Send all logs to standard error as JSON lines; `always`: fields of every line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(always))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


def _of_text(text: str, args: Sequence[object]) -> dict[str, object]:
    """Return the fields that the text names; a name with its namespace is divided."""
    found: dict[str, object] = {}
    for name, place in _named(text):
        value = args[place] if place < len(args) else ""
        if name in _IN_NAMESPACE and isinstance(value, str):
            namespace, _, value = value.rpartition("/")
            if namespace:
                found["namespace"] = namespace
        if value != "":
            found.setdefault(name, value)
    return found


@lru_cache(maxsize=256)
def _named(text: str) -> tuple[tuple[str, int], ...]:
    """Return which fields a format names, each with the place of its argument."""
    places = [place for place in _PLACES.finditer(text) if place[0] != "%%"]
    return tuple((place[1], number) for number, place in enumerate(places) if place[1])
