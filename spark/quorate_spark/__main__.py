"""`python -m quorate_spark validate ZONE --agents host:port,… --level counters|digest|rows`.

Prints the verdict as a table, or as JSON with --json; --report writes the JSON to a file, or JSON
and a page to a folder, and --termination-message the verdict in short, as the operator reads it
from a pod's status.  The exit code is 0 if all copies agree, 1 if they differ, 2 if that could not
be told.  No other end has the code 0 or 1.

`python -m quorate_spark keep FOLDER` writes JSON and page of a report that is its standard input.

`python -m quorate_spark repair ZONE --agents … --strategy … --plan FILE` validates and writes a
plan, with the exit code of the validation.  `… --execute FILE` executes a plan: 0 if every key of
it is repaired, 1 if not, 2 if it could not begin.

`… repair-run ZONE` is what the pod of a ZoneRepair does: see repair_run.

`… executor` is what an executor's pod does: see passes.executor_process.

`… export ZONE`, `… verify TARGET` and `… import ZONE`: see export_commands.
"""

import argparse
import contextlib
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

import msgspec
from rich.console import Console

from quorate.facts.errors import QuorateError, WireError
from quorate.wire.jobs.validation_result import encode_result
from quorate.wire.jobs.zone_history import HISTORY_VARIABLE, ZoneHistory, decode_history
from quorate_spark import export_commands, repair_run
from quorate_spark.command_line import add_limit, is_printed, print_json, settings_of
from quorate_spark.pages.folder import Report, earlier_runs, report_of, store
from quorate_spark.pages.page import page_of
from quorate_spark.passes import executor_process
from quorate_spark.passes.executors import led_executors
from quorate_spark.progress import Progress
from quorate_spark.reading.agent_link import parse_addresses, read_cluster
from quorate_spark.repair import (
    KEYS_MAX,
    WAIT_S,
    Zone,
    execute_plan,
    make_plan,
    why_incomplete,
)
from quorate_spark.repairing.decide import Strategy
from quorate_spark.repairing.plan import PlanRefused
from quorate_spark.repairing.tell import print_executed, print_plan
from quorate_spark.report import print_report, report_json, result_of
from quorate_spark.settings import Settings
from quorate_spark.tell_progress import progress_bar, progress_port
from quorate_spark.validate import run_validation
from quorate_spark.verdict import Level, Mode, Outcome, Verdict, could_not_tell, with_hashed_keys
from quorate_spark.work_folder import quiet_work_folder


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return the exit code."""
    options = _parser().parse_args(arguments)
    if options.command == "repair":
        return _repair(options)
    if options.command == repair_run.NAME:
        return _repair_run(options)
    if options.command in export_commands.NAMES:
        return _export(options)
    if options.command == "keep":
        return _keep(options)
    if options.command == executor_process.NAME:
        return _executor()
    level = Level(options.level)
    started_ms = time.time_ns() // 1_000_000
    report = report_of(options.report, options.zone, started_ms) if options.report else None
    if report is not None and (problem := _unwritable(report)):
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
        verdict = could_not_tell(options.zone, level, _by_itself("validation", error))
    if _asked_to_end:
        # An interrupted validation may have raised anything on its way out: py4j takes the rest of
        # the last answer for the next one.  None of that is a verdict.
        return 128 + _asked_to_end[0]
    verdict = msgspec.structs.replace(
        verdict,
        started_ms=started_ms,
        history=_history(),
        max_mib_per_second_per_agent=options.max_mib_per_second_per_agent,
        mode=Mode(options.mode),
    )
    if options.keys == "hashed":
        verdict = with_hashed_keys(verdict)
    return _tell(options, verdict, report)


def _tell(options: argparse.Namespace, verdict: Verdict, report: Report | None) -> int:
    """Keep and print the verdict; return the exit code."""
    is_pod = options.termination_message is not None
    message = encode_result(result_of(verdict))
    is_told = is_pod and _write("--termination-message", options.termination_message, message)
    kept = None if report is None else _store("--report", verdict, report)

    def tell(console: Console) -> None:
        if options.json:
            print(report_json(verdict).decode(), end="")
        else:
            print_report(verdict, console)
        if kept is not None and kept.page is not None:
            print(f"report: {kept.page}", file=sys.stderr if options.json else sys.stdout)

    is_whole = is_printed(tell) and (report is None or kept is not None)
    # Of a pod the verdict is told already: another pod would read all copies again.
    is_known = is_told if is_pod else is_whole
    return verdict.exit_code if is_known else Outcome.UNKNOWN.exit_code


def _executor() -> int:
    """Become an executor; return the exit code if that cannot be."""
    try:
        executor_process.become_executor()
    except QuorateError as error:
        print(f"this is no executor: {error}", file=sys.stderr)
    except KeyError as error:
        print(f"this is no executor: {error.args[0]} is not set: Spark starts it", file=sys.stderr)
    except OSError as error:
        print(f"this is no executor: {error.filename}: {error.strerror}", file=sys.stderr)
    return Outcome.UNKNOWN.exit_code


def _keep(options: argparse.Namespace) -> int:
    """Write the report whose JSON is the standard input into a folder; return the exit code."""
    try:
        verdict = msgspec.json.decode(sys.stdin.buffer.read(), type=Verdict)
    except msgspec.DecodeError as error:
        print(f"standard input is no report of a validation: {error}", file=sys.stderr)
        return Outcome.UNKNOWN.exit_code
    report = report_of(os.path.join(options.folder, ""), verdict.zone, verdict.started_ms)
    if problem := _unwritable(report):
        print(f"{options.folder}: {problem}", file=sys.stderr)
        return Outcome.UNKNOWN.exit_code
    kept = _store(options.folder, verdict, report)
    if kept is None:
        return Outcome.UNKNOWN.exit_code
    print(f"report: {kept.page}")
    return 0


def _store(option: str, verdict: Verdict, report: Report) -> Report | None:
    """Write a report; return where it is; None: it cannot be written, and why is printed."""
    content = report_json(verdict)
    if report.page is None:
        return report if _write(option, report.json, content) else None
    try:
        return store(report, content, _page(verdict, report))
    except OSError as error:
        print(f"{option} {report.json}: cannot be written: {error.strerror}", file=sys.stderr)
        return None


def _write(option: str, path: Path, content: bytes) -> bool:
    """Write a file, a new one for its owner alone; print why it cannot be written."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            file.write(content)
    except OSError as error:
        print(f"{option} {path}: cannot be written: {error.strerror}", file=sys.stderr)
        return False
    return True


def _export(options: argparse.Namespace) -> int:
    """Export, verify or import; return the exit code."""
    try:
        return export_commands.run(options)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception as error:
        # An exit code of 1 says that an export is not as it was: a defect must never say that.
        return export_commands.end_by_itself(options, _by_itself(options.command, error))


def _repair_run(options: argparse.Namespace) -> int:
    """Do the work of a ZoneRepair's pod; return the exit code."""
    run = repair_run.RepairRun(options)
    try:
        run.do()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except QuorateError as error:
        run.end_by(error)
    except Exception as error:
        run.end_by_itself(_by_itself("repair", error))
    if _asked_to_end:  # as with a validation, nothing that was raised says anything
        return 128 + _asked_to_end[0]
    return run.tell()


def _repair(options: argparse.Namespace) -> int:
    """Make a plan or execute one; return the exit code."""
    try:
        done = _execute(options) if options.execute is not None else _plan(options)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except QuorateError as error:
        if not _asked_to_end:
            print(f"zone {options.zone} is not repaired: {error}", file=sys.stderr)
        done = Outcome.UNKNOWN.exit_code
    except Exception as error:
        # Of a plan an exit code of 1 says that keys differ; of an execution, 2 that none began.
        if not _asked_to_end:
            print(_by_itself("repair", error), file=sys.stderr)
        done = Outcome.UNKNOWN.exit_code if options.execute is None else 1
    return 128 + _asked_to_end[0] if _asked_to_end else done


def _plan(options: argparse.Namespace) -> int:
    if options.strategy is None:
        raise PlanRefused(f"write --strategy and one of {', '.join(Strategy)}")
    if problem := _unwritable_file(options.plan):
        raise PlanRefused(f"--plan {options.plan}: {problem}")
    with quiet_work_folder(options.work_dir, "repair-") as folder:
        dry_run = make_plan(
            _zone(options),
            parse_addresses(options.agents),
            Level(options.level),
            Strategy(options.strategy),
            options.plan,
            work_dir=folder,
            cluster=read_cluster(options.cluster, options.secret_file),
            settings=settings_of(options),
            keys_max=options.keys_max,
        )

    def tell(console: Console) -> None:
        if options.json:
            print_json({"keys": dry_run.keys})
        else:
            print_plan(dry_run.keys, options.plan, why_incomplete(dry_run), console)

    return dry_run.exit_code if is_printed(tell) else Outcome.UNKNOWN.exit_code


def _execute(options: argparse.Namespace) -> int:
    if options.strategy is not None:
        raise PlanRefused("the plan has its strategy: leave out --strategy, or make another plan")
    executed = execute_plan(
        options.execute,
        _zone(options),
        parse_addresses(options.agents),
        cluster=read_cluster(options.cluster, options.secret_file),
        settings=settings_of(options),
        wait_s=options.wait_seconds,
        told=lambda sentence: print(sentence, file=sys.stderr),
    )

    def tell(console: Console) -> None:
        if options.json:
            print_json({"keys": executed.keys})
        else:
            print_executed(executed.zone, executed.keys, console)

    return executed.exit_code if is_printed(tell) else 1


def _zone(options: argparse.Namespace) -> Zone:
    return Zone(options.zone, options.zone_uid, options.partitions, options.replicas)


def _by_itself(what: str, error: Exception) -> str:
    """Return the sentence of a defect of ours."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"{what} failed by itself: {_words(error)} ({Path(place.filename).name}, line"
        f" {place.lineno}): please report it"
    )


def _words(error: Exception) -> str:
    """Return type and text of an error.

    One of py4j asks Java for its text, and Java may have ended.
    """
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _page(verdict: Verdict, report: Report) -> bytes:
    """Return the page; a defect of ours in it must not hide the verdict."""
    try:
        return page_of(verdict, earlier_runs(report, verdict))
    except Exception as error:
        return (
            f"The page failed by itself: {_words(error)}: please report it. The JSON of the"
            " same name is whole.".encode()
        )


def _unwritable(report: Report) -> str:
    """Return why the report could not be written later; empty if it could.

    A validation takes minutes, so this is checked before it begins.  Of a report in a folder the
    folder is made.
    """
    if report.page is None:
        return _unwritable_file(report.json)
    folder = report.json.parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        return f"folder {folder} cannot be made: {error.strerror}; name another one"
    return _unwritable_file(report.json)


def _unwritable_file(report: Path) -> str:
    """Return why a file could not be written to this path; empty if it could."""
    if report.is_dir():
        return "is a folder: name a file"
    if not report.parent.is_dir():
        return f"folder {report.parent} does not exist: make it, or name a file elsewhere"
    if not os.access(report if report.exists() else report.parent, os.W_OK):
        return "cannot be written: permission denied; name a file elsewhere"
    return ""


def _validate(options: argparse.Namespace, level: Level) -> Verdict:
    cluster = read_cluster(options.cluster, options.secret_file)
    with _progress(options) as progress, quiet_work_folder(options.work_dir, "validate-") as folder:
        return run_validation(
            options.zone,
            parse_addresses(options.agents),
            level,
            work_dir=folder,
            cluster=cluster,
            partitions=options.partitions,
            replicas=options.replicas,
            settings=settings_of(options),
            progress=progress,
            mode=Mode(options.mode),
            led=led_executors(options.secret_file) if level is Level.ROWS else None,
        )


@contextlib.contextmanager
def _progress(options: argparse.Namespace) -> Iterator[Progress]:
    """Yield the progress of a validation, told where the options want it."""
    if options.progress_port is not None:
        with progress_port(options.progress_port) as progress:
            yield progress
    elif sys.stderr.isatty() and not options.json:
        with progress_bar(options.zone, sys.stderr) as progress:
            yield progress
    else:
        yield Progress()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="quorate_spark", description="Checks copies of a zone.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    validate = commands.add_parser("validate", help="do all copies of a zone agree?")
    validate.add_argument(
        "--report",
        help="write the verdict to this file as JSON; or to a folder (it is there, or ends in /) as"
        " JSON and as a page",
    )
    validate.add_argument(
        "--keys",
        choices=["escaped", "hashed"],
        default="escaped",
        help="how keys are named in the verdict",
    )
    validate.add_argument(
        "--mode",
        choices=list(Mode),
        default=Mode.LIVE,
        help="live: clients may write meanwhile; idle: nothing was written, or it cannot be told",
    )
    validate.add_argument(
        "--termination-message", type=Path, help="write the verdict in short, at most 4 KiB"
    )
    validate.add_argument(
        "--progress-port", type=int, help="answer GET at this port by the percentage that is done"
    )
    repair = commands.add_parser("repair", help="repair the keys whose copies differ")
    repair.add_argument("--strategy", choices=[each.value for each in Strategy])
    chosen = repair.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--plan", type=Path, help="write the plan to this file; change nothing")
    chosen.add_argument("--execute", type=Path, help="execute the plan of this file")
    repair.add_argument("--zone-uid", default="", help="as the zone declares it")
    repair.add_argument("--keys-max", type=int, default=KEYS_MAX, help="keys in one plan")
    repair.add_argument("--wait-seconds", type=float, default=WAIT_S, help="for each key")
    keep = commands.add_parser("keep", help="write a report that is read from standard input")
    keep.add_argument("folder", metavar="FOLDER", help="gets JSON and page")
    for command in (validate, repair):
        command.add_argument("zone", metavar="ZONE")
        command.add_argument(
            "--agents", required=True, help="peer ports of all agents: host:port,host:port"
        )
        levels = [level.value for level in Level if command is validate or level != Level.COUNTERS]
        command.add_argument("--level", choices=levels, default=Level.ROWS)
        command.add_argument("--cluster", required=True, help="its name, as the agents know it")
        command.add_argument("--secret-file", required=True, help="the cluster's secret")
        command.add_argument("--partitions", type=int, default=0, help="as the zone declares them")
        command.add_argument("--replicas", type=int, default=0, help="as the zone declares them")
        command.add_argument("--json", action="store_true", help="print the result as JSON")
        command.add_argument("--work-dir", type=Path, help="folder for temporary files")
        add_limit(command)
        settle_s, answer_s = Settings().settle_timeout_s, Settings().answer_timeout_s
        command.add_argument("--settle-seconds", type=float, default=settle_s)
        command.add_argument("--answer-seconds", type=float, default=answer_s)
    commands.add_parser(executor_process.NAME, help="be an executor of Spark on Kubernetes")
    export_commands.add_commands(commands)
    repair_run.add_command(commands)
    return parser


def _history() -> ZoneHistory | None:
    """Return the zone's past as the environment tells it; one that cannot be read is left out."""
    value = os.environ.get(HISTORY_VARIABLE)
    if not value:
        return None
    try:
        return decode_history(value)
    except WireError as error:
        print(f"{HISTORY_VARIABLE} is left out of the report: {error}", file=sys.stderr)
        return None


_asked_to_end: list[int] = []
"""The signal that asked this process to end."""


def _stop(signal_number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(signal_number, signal.SIG_IGN)  # once is enough: Spark is being stopped
    _asked_to_end.append(signal_number)
    raise SystemExit(128 + signal_number)


def program() -> NoReturn:
    """Run as a program of its own, with signals and logging set up for that."""
    if not __debug__:
        sys.stderr.write("quorate_spark does not run under python -O: its checks would be off\n")
        sys.exit(Outcome.UNKNOWN.exit_code)
    logging.getLogger().addHandler(logging.NullHandler())  # our messages say what py4j logs
    # Signals become exceptions, so that Spark is stopped and its folder removed on the way out.
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    sys.exit(main())


if __name__ == "__main__":
    program()
