"""Ends the demo's processes and deletes its folder, however the demo ends.

`python -m quorate_cli.demo.keeper FOLDER [--keep]` waits until its standard input is closed, which
the system also does for a killed process.  Then it ends every process named by a .pid file in the
folder, and deletes the folder (with --keep it only ends the processes).
"""

import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path

from quorate_cli.processes.process import end, kill, read_started

PATIENCE_S = 10.0


def main(arguments: list[str]) -> int:
    """Wait, then clean up; return the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it must outlive the demo
    sys.stdin.buffer.read()
    folder, keep = Path(arguments[0]), "--keep" in arguments
    # If the data is deleted anyway, an orderly end is not needed.
    end_all(folder, PATIENCE_S if keep else 0)
    if not keep:
        empty(folder)
        with suppress(OSError):  # the parent folder may hold other things
            folder.rmdir()
            folder.parent.rmdir()
    return 0


def end_all(folder: Path, patience_s: float) -> None:
    """End the processes in `folder`; with `patience_s` 0 they are killed at once."""
    for file in sorted(folder.rglob("*.pid")):
        process = read_started(file)
        if process is not None and process.folder == str(folder):
            if patience_s:
                end(process, patience_s)
            else:
                kill(process)


def empty(folder: Path) -> None:
    """Delete everything in `folder`."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
