"""`python -m quorate_spark validate ZONE --agents host:port,… --level counters|digest|rows`.

Prints the verdict as a table, or as JSON with --json; --report writes the JSON to a file.  The exit
code is 0 if all copies agree, 1 if they differ, 2 if that could not be told.  No other end has the
code 0 or 1.
"""

import argparse
import contextlib
import logging
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from types import FrameType
from typing import NoReturn

from rich.console import Console

from quorate.facts.errors import QuorateError
from quorate_spark.reading.agent_link import parse_addresses, read_cluster
from quorate_spark.report import print_report, report_json
from quorate_spark.settings import Settings
from quorate_spark.validate import run_validation
from quorate_spark.verdict import Level, Outcome, Verdict, could_not_tell


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return the exit code."""
    options = _parser().parse_args(arguments)
    level = Level(options.level)
    if options.report is not None and (problem := _unwritable(options.report)):
        print(f"--report {options.report}: {problem}", file=sys.stderr)
        return Outcome.UNKNOWN.exit_code
    try:
        verdict = _validate(options, level)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except QuorateError as error:
        verdict = could_not_tell(options.zone, level, str(error))
    except Exception as error:
        # An exit code of 1 says that copies differ: a defect of ours must never say that.
        place = traceback.extract_tb(error.__traceback__)[-1]
        verdict = could_not_tell(
            options.zone,
            level,
            f"validation failed by itself: {type(error).__name__}: {error}"
            f" ({Path(place.filename).name}, line {place.lineno}): please report it",
        )
    if _asked_to_end:
        # An interrupted validation may have raised anything on its way out: py4j takes the rest of
        # the last answer for the next one.  None of that is a verdict.
        return 128 + _asked_to_end[0]
    if options.json:
        print(report_json(verdict).decode(), end="")
    else:
        print_report(verdict, Console())
    if options.report is not None:
        try:
            options.report.write_bytes(report_json(verdict))
        except OSError as error:
            print(
                f"--report {options.report}: cannot be written: {error.strerror}", file=sys.stderr
            )
            return Outcome.UNKNOWN.exit_code
    return verdict.exit_code


def _unwritable(report: Path) -> str:
    """Return why the report could not be written to this path later; empty if it could.

    A validation takes minutes, so this is checked before it begins, without making a file.
    """
    if report.is_dir():
        return "is a folder: name a file"
    if not report.parent.is_dir():
        return f"folder {report.parent} does not exist: make it, or name a file elsewhere"
    if not os.access(report if report.exists() else report.parent, os.W_OK):
        return "cannot be written: permission denied; name a file elsewhere"
    return ""


def _validate(options: argparse.Namespace, level: Level) -> Verdict:
    settings = Settings(
        answer_timeout_s=options.answer_seconds, settle_timeout_s=options.settle_seconds
    )
    cluster = read_cluster(options.cluster, options.secret_file)
    if options.work_dir is not None:
        options.work_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix="validate-", dir=options.work_dir, ignore_cleanup_errors=True
    ) as name:
        folder = Path(name).resolve()
        # Hides what Spark's Python side prints about connections that Java dropped.
        with (folder / "stderr.log").open("w") as log, contextlib.redirect_stderr(log):
            return run_validation(
                options.zone,
                parse_addresses(options.agents),
                level,
                work_dir=folder,
                cluster=cluster,
                partitions=options.partitions,
                replicas=options.replicas,
                settings=settings,
            )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="quorate_spark", description="Checks copies of a zone.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    validate = commands.add_parser("validate", help="do all copies of a zone agree?")
    validate.add_argument("zone", metavar="ZONE")
    validate.add_argument(
        "--agents", required=True, help="peer ports of all agents: host:port,host:port"
    )
    validate.add_argument("--level", choices=[level.value for level in Level], default=Level.ROWS)
    validate.add_argument("--cluster", required=True, help="its name, as the agents know it")
    validate.add_argument("--secret-file", required=True, help="the cluster's secret")
    validate.add_argument("--partitions", type=int, default=0, help="as the zone declares them")
    validate.add_argument("--replicas", type=int, default=0, help="as the zone declares them")
    validate.add_argument("--report", type=Path, help="write the verdict to this file as JSON")
    validate.add_argument("--json", action="store_true", help="print the verdict as JSON")
    validate.add_argument("--work-dir", type=Path, help="folder for temporary files")
    validate.add_argument("--settle-seconds", type=float, default=Settings().settle_timeout_s)
    validate.add_argument("--answer-seconds", type=float, default=Settings().answer_timeout_s)
    return parser


_asked_to_end: list[int] = []
"""The signal that asked this process to end."""


def _stop(signal_number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(signal_number, signal.SIG_IGN)  # once is enough: Spark is being stopped
    _asked_to_end.append(signal_number)
    raise SystemExit(128 + signal_number)


if __name__ == "__main__":
    if not __debug__:
        sys.stderr.write("quorate_spark does not run under python -O: its checks would be off\n")
        sys.exit(Outcome.UNKNOWN.exit_code)
    logging.getLogger().addHandler(logging.NullHandler())  # our messages say what py4j logs
    # Signals become exceptions, so that Spark is stopped and its folder removed on the way out.
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    sys.exit(main())
