"""A process that outlives the command which started it: how it is found again, and ended.

A pid alone may by now belong to somebody else.  What is kept is the pid with the moment that very
process was started, as the system tells it; a signal is only sent where both still agree.
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
    """One process: `mark` tells it from a later one of the same pid, `folder` is whose it is; what
    it said begins at byte `log_begin` of its log."""

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
    """Run `arguments` in a session of its own, both outputs appended to `log`.

    Nothing of this process reaches it but the environment: no terminal, no open file, no signal
    meant for our group.
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
        way_out = WAY_OUT.get(error.errno or 0, "look at both")
        raise Problem(
            f"{arguments[0]} cannot be started with log {log}: {words(error)}; {way_out}"
        ) from error
    return msgspec.structs.replace(identify(pid, folder), log_begin=begin)


def start_noted(arguments: Sequence[str], log: Path, pid_file: Path, folder: str) -> Started:
    """As `start`, and kept in `pid_file`; both or, whoever interrupts, neither."""

    def begin() -> Started:
        process = start(arguments, log, folder)
        try:
            write_started(pid_file, process)
        except Exception:
            kill(process)  # nobody would ever find it again
            raise
        return process

    return undisturbed(begin)


def undisturbed(work: Callable[[], T]) -> T:
    """What `work` returns or raises.  An interrupt comes when all of it is done: signals are for
    the main thread, and it runs in another.  A process that it starts is never one unknown to us.
    """
    with ThreadPoolExecutor(1) as threads:
        # A thread that is interrupted in its start is one that nobody waits for: not with `work`.
        threads.submit(int).result()
        return threads.submit(work).result()


def identify(pid: int, folder: str) -> Started:
    """The process that has `pid` now and was started for `folder`."""
    return Started(pid, _mark(pid) or "ended", folder)


def python(module: str, *arguments: str) -> list[str]:
    """The command line of one of our own modules, whatever folder the user stands in."""
    return [sys.executable, "-P", "-m", module, *arguments]


def is_alive(process: Started) -> bool:
    """Whether that very process still runs (one that ended and was not waited for does not)."""
    _reap(process.pid)
    return _mark(process.pid) == process.mark


def send(process: Started, number: signal.Signals) -> bool:
    """Signal that very process; False when it is gone."""
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
    """Whether it is gone within `seconds`."""
    deadline = time.monotonic() + seconds
    while is_alive(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def end(process: Started, seconds: float) -> bool:
    """Ask it to end; after `seconds` end it.  False when it had to be killed."""
    if not send(process, signal.SIGTERM) or wait_until_gone(process, seconds):
        return True
    kill(process)
    return False


def kill(process: Started) -> None:
    """SIGKILL, and wait until the system has let go of it."""
    if send(process, signal.SIGKILL) and not wait_until_gone(process, 10):
        raise Problem(
            f"process {process.pid} is still there 10 s after SIGKILL: the system holds it, most"
            " likely in a disk that does not answer"
        )


def write_started(path: Path, process: Started) -> None:
    """Keep what tells this process from others."""
    write_file(path, msgspec.json.encode(process))


def read_started(path: Path) -> Started | None:
    """The process kept in `path`, alive or not; None where there is none, or half of one."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Started)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def lock_holder(lock: Path, folder: str) -> Started | None:
    """Return the process whose pid stands in `lock` and which holds that very file's lock.

    Agents and operators write their pid into the lock of their data folder.  A copied folder brings
    a pid along whose process has another file open, so the pid alone says nothing.
    """
    try:
        pid = int(lock.read_text())
    except (OSError, ValueError):
        return None
    process = identify(pid, folder)
    return process if is_alive(process) and _holds(pid, lock) else None


def _holds(pid: int, lock: Path) -> bool:
    """Return whether `pid` has the file `lock` open, as its holder has and no other process.

    Asking for the lock instead could make a process that starts at this moment believe that it is
    taken; this is done only where the system does not tell open files.
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
    """A child of ours that ended stays in the process table until somebody asks how it ended."""
    with suppress(ChildProcessError):  # started by an earlier command: not ours to wait for
        os.waitpid(pid, os.WNOHANG)


def _mark(pid: int) -> str | None:
    """The moment `pid` was started; None where nothing runs under it."""
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
    # Ticks count from the start of the machine, so the very start of it belongs to the mark.
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
