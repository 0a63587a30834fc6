"""Runs the validation of a zone, or the repair of its keys, as a separate process."""

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import IO, NamedTuple

from quorate.facts.export_place import PlaceRefused, parse_place
from quorate.wire.jobs.zone_history import HISTORY_VARIABLE, ZoneHistory, encode_history
from quorate_cli.processes.process import identify, python, undisturbed, write_started
from quorate_cli.terminal.problem import Problem


class IfKilled(NamedTuple):
    """The consequence when a signal ends a process, and the exit code of our command."""

    sentence: str
    exit_code: int = 2


UNPROVEN = IfKilled("whether the copies agree is unknown")


def validation_command(
    zone: str,
    cluster: str,
    secret_file: Path,
    agents: Sequence[str],
    level: str,
    work_dir: Path,
    report: Path | str | None = None,
    partitions: int = 0,
    replicas: int = 0,
) -> list[str]:
    """Return the command line that validates `zone` over the peer ports `agents`."""
    options = ["--report", str(report)] if report is not None else []
    return tool_command(
        "validate",
        zone,
        cluster,
        secret_file,
        agents,
        work_dir,
        partitions,
        replicas,
        *("--level", level),
        *options,
    )


def tool_command(
    what: str,
    zone: str,
    cluster: str,
    secret_file: Path,
    agents: Sequence[str],
    work_dir: Path,
    partitions: int,
    replicas: int,
    *options: str,
) -> list[str]:
    """Return the command line that does `what` (validate, repair) with a zone's copies."""
    return python(
        "quorate_spark",
        *(what, zone, "--cluster", cluster, "--secret-file", str(secret_file)),
        *("--agents", ",".join(agents), "--work-dir", str(work_dir)),
        *("--partitions", str(partitions), "--replicas", str(replicas)),
        *options,
    )


def check_place(target: str) -> None:
    """Raise Problem unless `target` can be the place of an export.

    To be asked before it is an argument of a process, as others can read those.
    """
    try:
        parse_place(target)
    except PlaceRefused as refused:
        raise Problem(str(refused), 2) from refused


def run_validation(
    command: list[str],
    log: Path | None = None,
    pid_file: Path | None = None,
    printed: IO[bytes] | None = None,
    history: ZoneHistory | None = None,
    if_killed: IfKilled = UNPROVEN,
) -> int:
    """Run such a command; return its exit code.  Of a validation: 0 agree, 1 differ, 2 unknown.

    Raises Problem if a signal ended the process.

    Output goes to ours, or to `log`; its standard output to `printed`, if that is given.
    `pid_file` lets others find the process.  `history`: the zone's past, for the report.  An
    interrupt of this function also ends the process.
    """
    told = {} if history is None else {HISTORY_VARIABLE: encode_history(history)}
    environment = {**os.environ, **told}
    running: list[subprocess.Popen[bytes]] = []

    def begin() -> None:
        with log.open("ab") if log is not None else nullcontext() as file:
            running.append(
                subprocess.Popen(command, stdout=printed or file, stderr=file, env=environment)
            )
        if pid_file is not None:
            write_started(pid_file, identify(running[0].pid, str(pid_file.parent)))

    try:
        undisturbed(begin)
        code = running[0].wait()
    except BaseException:
        for process in running:
            _end(process)
        raise
    if code < 0:
        raise Problem(f"{_killed(-code)}; {if_killed.sentence}", if_killed.exit_code)
    return code


def _killed(number: int) -> str:
    """Return that a signal ended the process, with the probable reason."""
    why = ": the system does this when memory runs out" if number == signal.SIGKILL else ""
    return f"the process was ended by signal {number} ({signal.strsignal(number)}){why}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask it to stop; it has 20 s to end Spark."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
