"""A client library at work beside a test, and what it reported at its end."""

import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from quorate_clients.installed import command
from quorate_clients.libraries import Library
from quorate_cluster.waiting import wait_until

WORKERS = 4
BEGIN_S_MAX = 60.0
WELL_S_MAX = 60.0
END_S_MAX = 45.0
EVERY_MS = 80
"""How long each of a program's four workers waits between two commands."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a program says of itself; `tests/clients/README.md` has the meaning of each number."""

    commands: int
    failed: int
    failed_at_end: int
    wrong: int
    longest_ms: int
    unwritable_ms: int
    unfinished: int
    errors: Mapping[str, int]
    examples: tuple[str, ...]

    def failed_beside(self, dropped: str) -> int:
        """How many commands failed with other words than these; all, where there are none."""
        return sum(n for text, n in self.errors.items() if not dropped or dropped not in text)

    def __str__(self) -> str:
        said = f"{self.commands} commands, {self.failed} failed, {self.wrong} wrong"
        said += f", longest {self.longest_ms} ms, a key not writable for {self.unwritable_ms} ms"
        said += f"; {self.unfinished} workers hang" if self.unfinished else ""
        return said + "".join(f"; {count} x {text}" for text, count in self.errors.items())


class RunningClient:
    """One program against the seeds, from its start until `report` is asked for."""

    def __init__(self, library: Library, seeds: list[tuple[str, int]]) -> None:
        self.library = library
        words, environment = command(library)
        at = ",".join(f"{host}:{port}" for host, port in seeds)
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 as long as the process
        sharing = "shared" if library.shares_client else "each"
        self._process = subprocess.Popen(
            [*words, at, library.name, str(EVERY_MS), sharing],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            start_new_session=True,  # a Ctrl-C at the terminal reaches it as the end of its input
        )

        self._ready = threading.Event()
        self._rounds: dict[str, list[float]] = {}
        self._report = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "round":
                self._rounds.setdefault(rest, []).append(time.monotonic())
            elif word == "ready":
                self._ready.set()
            else:
                self._report += line

    def wait_ready(self) -> None:
        """Wait until each of its workers has written something; RuntimeError when it ended."""
        wait_until(
            lambda: self._ready.is_set() or self._process.poll() is not None,
            f"beginning of {self.library.name}",
            BEGIN_S_MAX,
            self._last_words,
        )
        if not self._ready.is_set():
            raise RuntimeError(f"{self.library.name} did not begin: {self._last_words()}")

    def wait_well_since(self, moment: float) -> None:
        """Wait until each worker has gone over all its keys after `moment` and none failed."""

        def well() -> bool:
            # The first round that ended after it may have begun before it.
            ends = [
                [end for end in times if end > moment] for times in self._rounds.copy().values()
            ]
            return len(ends) == WORKERS and all(len(each) > 1 for each in ends)

        wait_until(well, f"whole rounds of {self.library.name}", WELL_S_MAX, self._last_words)

    def ask_to_end(self) -> None:
        """Close its input, upon which it ends; nothing the second time."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def report(self) -> Report:
        """What it saw; RuntimeError with its last words when it has no report."""
        self.ask_to_end()
        try:
            self._process.wait(END_S_MAX)
            self._reader.join(END_S_MAX)
            found = json.loads(self._report)
        except ValueError as error:
            raise RuntimeError(
                f"{self.library.name}: no report: {self._report[-500:]!r} {self._last_words()}"
            ) from error
        return Report(**{**found, "examples": tuple(found["examples"])})

    def close(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait(END_S_MAX)
        for stream in (self._process.stdin, self._process.stdout, self._said):
            if stream is not None:
                stream.close()

    def _last_words(self) -> str:
        self._said.seek(0)
        return "\n".join(self._said.read().splitlines()[-15:])
