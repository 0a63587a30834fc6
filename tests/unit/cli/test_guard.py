"""How a command ends that is interrupted in the middle of a call of the standard library."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

INTERRUPTED = """
import asyncio, os, signal, socket, sys
from pathlib import Path
from quorate_cli.guard import run_guarded

pair = socket.socketpair
def interrupted(*arguments):
    os.kill(os.getpid(), int(sys.argv[1]))
    return pair(*arguments)

async def nothing():
    pass

def work():
    socket.socketpair = interrupted  # the event loop is half made
    asyncio.run(nothing())

run_guarded(work, Path(sys.argv[2]))
"""


@pytest.mark.parametrize(
    ("number", "said"),
    [(signal.SIGINT, "quorate: interrupted\n"), (signal.SIGTERM, ""), (signal.SIGHUP, "")],
)
def test_an_interrupt_inside_the_standard_library_leaves_no_traceback(
    tmp_path: Path, number: signal.Signals, said: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(int(number)), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (ran.returncode, ran.stdout, ran.stderr) == (128 + number, "", said)
    assert list(tmp_path.iterdir()) == []
