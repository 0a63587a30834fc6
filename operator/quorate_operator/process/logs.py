"""The operator's logs: one JSON object per line on standard error."""

import json
import logging
import sys
from datetime import UTC, datetime

_ABOUT = ("namespace", "cluster", "zone", "partition")


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name in _ABOUT:
            value = getattr(record, name, None)
            if value not in (None, ""):
                line[name] = value
        if record.exc_info is not None:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def start_logging(level: int = logging.INFO) -> None:
    """Send all logs to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for chatty in ("aiohttp.access", "kopf"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
