"""The demo: a cluster's life on this machine in eight steps, each of them checked (`make demo`).

It uses real processes, a stock Redis Cluster client and real files, all in one folder.  At the end,
also after a failure or Ctrl-C, its processes are ended and the folder is deleted.  The exit code is
0 only if every step passed its checks.
"""

import signal

if __name__ == "__main__":  # Ctrl-C ends the imports, which take a while, without a traceback
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quorate_cli.demo.keeper import empty, end_all
from quorate_cli.demo.steps import Demo
from quorate_cli.guard import run_guarded
from quorate_cli.processes.cluster_folder import DEFAULT_FOLDER, DEMO_MARK, take_lock
from quorate_cli.processes.process import python
from quorate_cli.terminal.problem import Problem
from quorate_cli.terminal.teller import PlainConsole

LIBRARY_MEGABYTES = 200


def main(arguments: list[str] | None = None) -> None:
    """Run the demo and end the process."""
    parser = argparse.ArgumentParser(prog="quorate_cli.demo", description=__doc__)
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER / "demo")
    parser.add_argument("--keep", action="store_true", help="keep the folder with data and logs")
    parser.add_argument(
        "--megabytes",
        type=int,
        default=LIBRARY_MEGABYTES,
        help="at most this much of the standard library is stored",
    )
    options = parser.parse_args(arguments)
    console = PlainConsole()
    folder = options.folder.absolute()

    def run() -> None:
        with demo_folder(folder, options.keep):
            Demo(folder, options.megabytes * 1_000_000, console).run()
        if options.keep:
            console.print(f"kept {folder}; start it again: quorate dev up --folder {folder}")

    run_guarded(run, options.folder.parent)


@contextmanager
def demo_folder(folder: Path, keep: bool) -> Iterator[None]:
    """Yield an empty folder for one run.

    At the end, however the run ends, a separate process ends everything started in the folder and
    deletes it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Problem(f"--folder {folder} cannot be created: {error.strerror}") from error
    with _alone(folder):
        _check_ours(folder)
        end_all(folder, 0)  # leftovers of a run that could not clean up
        empty(folder)
        (folder / DEMO_MARK).touch()
        flags = ["--keep"] if keep else []
        keeper = subprocess.Popen(
            python("quorate_cli.demo.keeper", str(folder), *flags),
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        assert keeper.stdin is not None
        try:
            yield
        finally:
            keeper.stdin.close()
            keeper.wait()


def _check_ours(folder: Path) -> None:
    found = sorted(path.name for path in folder.iterdir() if path.name != "lock")
    if found and DEMO_MARK not in found:
        raise Problem(
            f"--folder {folder} is not the folder of a demo and is not empty (it contains"
            f" {found[0]}): name another folder"
        )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one demo at a time work in a folder.  The lock is on the folder, and goes with it."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not take_lock(lock):
            raise Problem(
                f"--folder {folder}: another demo is running there: wait until it ends, or name"
                " another folder"
            )
        yield
    finally:
        os.close(lock)


if __name__ == "__main__":
    main()
