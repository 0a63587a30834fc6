"""A program that notes when this machine stood still, one line each, until its input ends.

    cpu 0 81234.5678 1.2345    it was to run at that moment of the clock, and did so much later
    disk 81234.5678 2.3456     it wrote a block at that moment, which took so long to be on the disk

A thread per processor only sleeps, before all other processes: that it runs late is not the fault
of anything that runs here.  Where it may not be before them, it says `late on cpu 0` instead.
What takes on and on is noted again and again.  Takes nothing but the standard library.
"""

import os
import select
import sys
import tempfile
import threading
import time

CPU_EVERY_S = 0.05
CPU_NOTED_S = 0.1
DISK_EVERY_S = 0.5
DISK_NOTED_S = 1.0
"""Shorter ones are how machines and disks are."""
BLOCK = bytes(4096)
AGAIN_EVERY_S = 0.5

_writing_since = 0.0


def _note(what: str, began: float, least_s: float) -> None:
    seconds = time.monotonic() - began
    if seconds >= least_s:
        os.write(1, f"{what} {began:.4f} {seconds:.4f}\n".encode())


def _watch_cpu(cpu: int, what: str) -> None:
    os.sched_setaffinity(0, {cpu})  # of this thread
    while True:
        due = time.monotonic() + CPU_EVERY_S
        time.sleep(CPU_EVERY_S)
        _note(f"{what} {cpu}", due, CPU_NOTED_S)


def _watch_disk() -> None:
    global _writing_since
    with tempfile.TemporaryFile() as file:
        while True:
            began = _writing_since = time.monotonic()
            os.pwrite(file.fileno(), BLOCK, 0)
            os.fdatasync(file.fileno())
            _writing_since = 0.0
            _note("disk", began, DISK_NOTED_S)
            time.sleep(DISK_EVERY_S)


def _go_before_all() -> bool:
    """Whether this process, and each thread that it will start, runs before all others."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        return False
    return True


def main() -> None:
    """Watch until whoever started us has gone, or something ended a look: then nobody looks."""
    threading.excepthook = lambda _: os._exit(1)
    what = "cpu" if _go_before_all() else "late on cpu"
    for cpu in os.sched_getaffinity(0):
        threading.Thread(target=_watch_cpu, args=(cpu, what), daemon=True).start()
    threading.Thread(target=_watch_disk, daemon=True).start()
    while not select.select([sys.stdin], [], [], AGAIN_EVERY_S)[0]:
        if began := _writing_since:
            _note("disk", began, DISK_NOTED_S)


if __name__ == "__main__":
    main()
