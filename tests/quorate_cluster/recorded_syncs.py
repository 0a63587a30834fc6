"""An agent's record of what it has synced, in its data folder."""

import json
import time
from pathlib import Path

from quorate_cluster.waiting import wait_until

RESTS_S = 2.5
"""More than two of the pauses between two records."""


def wait_recorded(data: Path) -> None:
    """Wait until all that the agent of this folder has synced is recorded: it records no more."""
    file = data / "folder.json"
    seen = [((0, 0), time.monotonic())]

    def rests() -> bool:
        found = file.stat()
        written = (found.st_ino, found.st_mtime_ns)
        if written != seen[-1][0]:
            seen.append((written, time.monotonic()))
        return time.monotonic() - seen[-1][1] > RESTS_S

    wait_until(rests, "a folder.json that is not written", 30)
    assert json.loads(file.read_text())["synced"]
