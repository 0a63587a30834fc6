"""What one process of a test can be told: start, pause, resume, kill, terminate."""

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from quorate_control_plane.keeper import start_time

_END_S_MAX = 20.0


class Component:
    """A program with its arguments, log and record in `folder`; may be started again and again."""

    def __init__(
        self,
        name: str,
        folder: Path,
        command: list[str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = folder / "log" / f"{name}.log"
        self._folder = folder
        self._record = folder / "run" / name
        self._command = command
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._running().pid

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_status(self) -> int | None:
        """How the last process ended (negative: by that signal); None while it runs."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start it with the same ports, data and arguments as before; nothing if it runs."""
        if self.is_alive():
            return
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C at the terminal is not for it
            )
        self._record.write_text(f"{self._process.pid} {start_time(self._process.pid)}")

    def pause(self) -> None:
        """Stop it as a debugger would: connections stay open, nothing answers.

        A signal is only sent: its threads on other processors may answer for a moment yet."""
        self._running().send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def terminate(self) -> None:
        self._end(signal.SIGTERM)

    def forget(self) -> None:
        """Collect the exit status after someone else killed it."""
        if self._process is not None:
            self._process.wait(_END_S_MAX)

    def log_tail(self, line_count: int = 15) -> str:
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            return f"(no log {self.log})"
        return "\n".join(lines[-line_count:])

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError(f"{self.name} does not run: {self.log_tail()}")
        return self._process

    def _end(self, how: signal.Signals) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(how)
        self._process.send_signal(signal.SIGCONT)  # a paused process does not see a SIGTERM
        self._process.wait(_END_S_MAX)
