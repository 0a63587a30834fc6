"""Who ends the control plane's processes and removes its folder when the test run is gone.

Run as `python keeper.py FOLDER` with a pipe as standard input.  The pipe closes when its other end
closes it or dies, however that happens: end of tests, failure, Ctrl-C, SIGKILL.  Then each process
named in FOLDER/run/NAME ("pid start-time") is killed, each command in FOLDER/undo run, the last one
first, and FOLDER removed.  It is the only road by which a control plane ends, so each run tests it.
Needs nothing but the standard library.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path


def start_time(pid: int) -> str | None:
    """When process `pid` started, in clock ticks after boot; None when it does not run.

    Tells our process from a later one that was given the same number.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]


def kill_recorded(record: Path) -> None:
    """Kill the process that `record` names, if it still is that process, and wait for its end."""
    try:
        pid, started = record.read_text().split()
    except (OSError, ValueError):
        return
    deadline = time.monotonic() + 10
    while start_time(int(pid)) == started and time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.02)


def main(folder: Path) -> None:
    # A Ctrl-C goes to everyone at this terminal; the closing pipe is the word to act upon.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    print("kept", flush=True)
    while os.read(sys.stdin.fileno(), 4096):
        pass
    for record in sorted((folder / "run").glob("*")):
        kill_recorded(record)
    for undo in sorted((folder / "undo").glob("*"), reverse=True):
        with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
            subprocess.run(json.loads(undo.read_text()), capture_output=True, timeout=30)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
