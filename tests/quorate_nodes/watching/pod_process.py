"""The process of a pod, as whoever runs its node sees it: frozen for a while."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def process_of(pod: str, program: str) -> int:
    """The process of the pod of this name that runs `program`, a part of its command line."""
    found = [
        int(each.name)
        for each in Path("/proc").iterdir()
        if each.name.isdigit() and _is_of(each, pod, program)
    ]
    assert len(found) == 1, f"processes of {pod} that run {program}: {found}"
    return found[0]


@contextmanager
def frozen(process: int) -> Iterator[None]:
    """It does nothing meanwhile, and goes on afterwards if its kubelet has not ended it."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


def _is_of(process: Path, pod: str, program: str) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        names = (process / "environ").read_bytes().split(b"\0")
    except OSError:  # it has ended
        return False
    return f"HOSTNAME={pod}".encode() in names and any(program.encode() in word for word in words)
