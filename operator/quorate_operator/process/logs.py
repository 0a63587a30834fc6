"""The operator's logs: one JSON object per line on standard error."""

import logging

from quorate_link.log_lines import log_to_stderr


def start_logging(level: int = logging.INFO) -> None:
    """Send all logs to standard error as JSON lines."""
    log_to_stderr(level)
    for chatty in ("aiohttp.access", "kopf"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
