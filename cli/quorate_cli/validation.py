"""Running the Spark validation of a zone as a process of its own."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from quorate_cli.problem import Problem
from quorate_cli.process import identify, python, write_started

JAVA_MIN = 17


def validation_command(
    zone: str,
    cluster: str,
    agents: Sequence[str],
    level: str,
    work_dir: Path,
    report: Path | None = None,
    partitions: int = 0,
    replicas: int = 0,
) -> list[str]:
    """The command line that validates `zone` over the peer ports `agents`."""
    return python(
        "quorate_spark",
        *("validate", zone, "--level", level, "--cluster", cluster),
        *("--agents", ",".join(agents), "--work-dir", str(work_dir)),
        *("--partitions", str(partitions), "--replicas", str(replicas)),
        *(("--report", str(report)) if report is not None else ()),
    )


def run_validation(
    command: list[str], log: Path | None = None, pid_file: Path | None = None
) -> int:
    """Its exit code: 0 agree, 1 differ, 2 could not tell.  Output goes to ours, or to `log`;
    `pid_file` is where others find the process."""
    check_java()
    if log is None:
        return _wait_for(subprocess.Popen(command))
    with log.open("ab") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
        if pid_file is not None:
            write_started(pid_file, identify(process.pid, str(pid_file.parent)))
        return _wait_for(process)


def check_java() -> None:
    """Problem, with exit code 2, unless there is a Java that Spark can run on."""
    home = os.environ.get("JAVA_HOME")
    program = os.path.join(home, "bin", "java") if home else shutil.which("java")
    way_out = (
        f"validation runs on Spark, which needs Java {JAVA_MIN} or later; on Debian and Ubuntu:"
        " apt-get install openjdk-17-jre-headless.  Everything else works without it"
    )
    if program is None:
        raise Problem(f"no java on PATH: {way_out}", 2)
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True).stderr
    except OSError as error:
        named = " (JAVA_HOME names it)" if home else ""
        raise Problem(f"{program}{named} cannot be run: {way_out}", 2) from error
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found.group(1)) < JAVA_MIN:
        version = found.group(1) if found else "unknown"
        raise Problem(f"{program} is of version {version}: {way_out}", 2)


def _wait_for(process: subprocess.Popen[bytes]) -> int:
    """Its exit code; when we are told to stop, it is told too and has a while to end Spark."""
    try:
        return process.wait()
    except BaseException:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise
