"""Processes that outlive the command that started them: finds them again, and ends them.

A pid alone may by now belong to another process.  So the pid is kept with the time at which that
process was started, as the system tells it; a signal is sent only while both still agree.
"""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from quorate_cli.terminal.problem import WAY_OUT, Problem, words
from quorate_cli.terminal.written_file import write_file

POLL_S = 0.02

T = TypeVar("T")


class Started(msgspec.Struct, frozen=True):
    """One process: `mark` distinguishes it from a later one with the same pid.

    `folder`: the cluster's folder; `log_begin`: the byte of its log at which its output begins.
    """

    pid: int
    mark: str
    folder: str = ""
    log_begin: int = 0


def start(
    arguments: Sequence[str],
    log: Path,
    folder: str = "",
    environment: Mapping[str, str] | None = None,
) -> Started:
    """Run `arguments` in its own session, with both outputs appended to `log`.

    It inherits only the environment from this process: no terminal, no open file, no signals of our
    process group.
    """
    writing = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    begin = log.stat().st_size if log.exists() else 0
    try:
        pid = os.posix_spawn(
            arguments[0],
            [*arguments],
            dict(os.environ if environment is None else environment),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), writing, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigdef=[signal.SIGPIPE, signal.SIGINT],
        )
    except OSError as error:
        way_out = WAY_OUT.get(error.errno or 0, "check both files")
        raise Problem(
            f"{arguments[0]} cannot be started with log {log}: {words(error)}; {way_out}"
        ) from error
    return msgspec.structs.replace(identify(pid, folder), log_begin=begin)


def start_noted(arguments: Sequence[str], log: Path, pid_file: Path, folder: str) -> Started:
    """Start a process and store it in `pid_file`; an interrupt leaves both or neither."""

    def begin() -> Started:
        process = start(arguments, log, folder)
        try:
            write_started(pid_file, process)
        except Exception:
            kill(process)  # otherwise it could never be found again
            raise
        return process

    return undisturbed(begin)


def undisturbed(work: Callable[[], T]) -> T:
    """Run `work` undisturbed by signals; return or raise its result.

    Signals go to the main thread and `work` runs in another, so an interrupt takes effect when all
    of it is done.  No process that it starts stays unknown to us.
    """
    with ThreadPoolExecutor(1) as threads:
        # An interrupt while the thread starts would leave it unawaited, so it starts before `work`.
        threads.submit(int).result()
        return threads.submit(work).result()


def identify(pid: int, folder: str) -> Started:
    """Return the process that has `pid` now and was started for `folder`."""
    return Started(pid, _mark(pid) or "ended", folder)


def python(module: str, *arguments: str) -> list[str]:
    """Return the command line of one of our modules, independent of the current folder."""
    return [sys.executable, "-P", "-m", module, *arguments]


def run(command: Sequence[str], seconds: float, late: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and return how it ended, with what it printed.

    After `seconds` it is killed, and Problem raised with the sentence `late`.
    """
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise Problem(late) from None


def is_alive(process: Started) -> bool:
    """Return whether exactly that process still runs (an unreaped one does not)."""
    _reap(process.pid)
    return _mark(process.pid) == process.mark


def send(process: Started, number: signal.Signals) -> bool:
    """Send a signal to exactly that process; return False if it is gone."""
    if not is_alive(process):
        return False
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    except PermissionError as error:
        raise Problem(f"process {process.pid} belongs to another user: end it as that user") from (
            error
        )
    return True


def wait_until_gone(process: Started, seconds: float) -> bool:
    """Return whether it is gone within `seconds`."""
    deadline = time.monotonic() + seconds
    while is_alive(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def end(process: Started, seconds: float) -> bool:
    """Ask it to end; kill it after `seconds`.  Return False if it had to be killed."""
    if not send(process, signal.SIGTERM) or wait_until_gone(process, seconds):
        return True
    kill(process)
    return False


def kill(process: Started) -> None:
    """Send SIGKILL, and wait until the process is gone; raise Problem if it is not."""
    if send(process, signal.SIGKILL) and not wait_until_gone(process, 10):
        raise Problem(
            f"process {process.pid} has not ended 10 s after SIGKILL: the system blocks it,"
            " probably because a disk does not respond"
        )


def write_started(path: Path, process: Started) -> None:
    """Store what distinguishes this process from others."""
    write_file(path, msgspec.json.encode(process))


def read_started(path: Path) -> Started | None:
    """Return the process stored in `path`, alive or not; None if missing or broken."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Started)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def lock_holder(lock: Path, folder: str) -> Started | None:
    """Return the process whose pid is in `lock` and which holds that file's lock.

    Agents and operators write their pid into the lock of their data folder.  A copied folder
    contains a pid whose process has another file open, so the pid alone is not enough.
    """
    try:
        pid = int(lock.read_text())
    except (OSError, ValueError):
        return None
    process = identify(pid, folder)
    return process if is_alive(process) and _holds(pid, lock) else None


def _holds(pid: int, lock: Path) -> bool:
    """Return whether `pid` has the file `lock` open, as only its holder does.

    Trying the lock instead could make a process that starts at this moment believe it is taken;
    that is done only if the system does not show open files.
    """
    try:
        ours = os.stat(lock)
        with os.scandir(f"/proc/{pid}/fd") as descriptors:
            return any(_is_file(descriptor.path, ours) for descriptor in descriptors)
    except OSError:  # no /proc, or another user's process
        return _is_locked(lock)


def _is_file(path: str, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), file)
    except FileNotFoundError:  # closed meanwhile
        return False


def _is_locked(lock: Path) -> bool:
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _reap(pid: int) -> None:
    """Reap an ended child of ours: otherwise it stays in the process table."""
    with suppress(ChildProcessError):  # started by an earlier command: not our child
        os.waitpid(pid, os.WNOHANG)


def _mark(pid: int) -> str | None:
    """Return the time `pid` was started; None if no process has it."""
    if sys.platform != "linux":
        return _mark_by_ps(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The second field is the program's name in parentheses and may hold anything.
            state, *fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if state in (b"Z", b"X"):
        return None
    # Ticks count from the machine's start, so the mark includes which start that was.
    return f"{_boot_id()}.{int(fields[18])}"


def _mark_by_ps(pid: int) -> str | None:
    found = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True
    )
    state, _, started = found.stdout.strip().partition(" ")
    return started.strip() if started and not state.startswith("Z") else None


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"
