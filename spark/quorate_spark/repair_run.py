"""The command `repair-run` of `python -m quorate_spark`: the work of a ZoneRepair's pod.

    --strategy S            plans; the plan is a file of the target
    --strategy S --execute  plans, and executes the plan that was written
    --digest D --execute    executes the plan that is there, if it is the file with this SHA-256

Exit codes: 0 if all was done; 1 if it was not, and another pod would find the same; 2 if nothing is
known.  The result is a termination message too, from which the operator reads it.

A pod that is lost is followed by one that goes on.  A plan has the name of its run, so a pod after
the first one takes the plan that is there; keys that are repaired already stay as they are.  Before
the first key is changed, a file with the name of the run is written beside the plan: without it no
pod of the run has changed any, also none of which nothing is left.
"""

import argparse
import hashlib
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import msgspec
from rich.console import Console

from quorate.facts.errors import QuorateError
from quorate.wire.jobs.repair_result import RepairOutcome, RepairResult, encode_repair_result
from quorate_spark.command_line import add_limit, is_printed, print_json, settings_of
from quorate_spark.exports.target import Target
from quorate_spark.progress import Progress
from quorate_spark.reading.agent_link import parse_addresses, read_cluster
from quorate_spark.repair import (
    KEYS_MAX,
    WAIT_S,
    DryRun,
    Zone,
    check_plan,
    execute_keys,
    find_keys,
    why_incomplete,
)
from quorate_spark.repairing.decide import Strategy
from quorate_spark.repairing.execute import Done, KeyDone
from quorate_spark.repairing.plan import (
    PlannedKey,
    PlanOrigin,
    PlanRefused,
    decode_plan,
    encode_plan,
    origin_of,
)
from quorate_spark.settings import Settings
from quorate_spark.tell_progress import progress_port
from quorate_spark.verdict import Level, Outcome
from quorate_spark.work_folder import quiet_work_folder

NAME = "repair-run"
PLAN = "repair-plan.parquet"
"""The file of the target."""
BEGUN = "repair-begun"
"""The file of the target which shows that keys may be changed: BEGUN.RUN."""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the parser of the command."""
    parser = commands.add_parser(NAME, help="the work of a ZoneRepair's pod")
    parser.add_argument("zone", metavar="ZONE")
    parser.add_argument("--target", required=True, help="folder of the plan, or s3://bucket/prefix")
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--strategy", choices=[each.value for each in Strategy])
    chosen.add_argument("--digest", help="SHA-256 of the plan that is executed")
    parser.add_argument("--execute", action="store_true", help="without it nothing is changed")
    parser.add_argument("--run", required=True, help="a name: its own plan is taken as it is")
    levels = [level.value for level in Level if level != Level.COUNTERS]
    parser.add_argument("--level", choices=levels, default=Level.ROWS)
    parser.add_argument("--agents", required=True, help="peer ports of all agents: host:port,…")
    parser.add_argument("--cluster", required=True, help="its name, as the agents know it")
    parser.add_argument("--secret-file", required=True, help="the cluster's secret")
    parser.add_argument("--partitions", type=int, required=True, help="as the zone declares them")
    parser.add_argument("--replicas", type=int, required=True, help="as the zone declares them")
    parser.add_argument("--zone-uid", default="", help="as the plan is to have it")
    parser.add_argument("--keys-max", type=int, default=KEYS_MAX, help="keys in one plan")
    parser.add_argument("--wait-seconds", type=float, default=WAIT_S, help="for each key")
    parser.add_argument("--work-dir", type=Path, help="folder for temporary files")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--termination-message", type=Path, help="gets the result, at most 4 KiB")
    parser.add_argument("--progress-port", type=int, help="answers GET by the percentage")
    settings = Settings()
    add_limit(parser)
    parser.add_argument("--settle-seconds", type=float, default=settings.settle_timeout_s)
    parser.add_argument("--answer-seconds", type=float, default=settings.answer_timeout_s)


class RepairRun:
    """One run: `do`, after an error one of `end_by` and `end_by_itself`, then `tell`."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._zone = Zone(options.zone, options.zone_uid, options.partitions, options.replicas)
        self._result = RepairResult(RepairOutcome.UNKNOWN)
        self._keys: tuple[PlannedKey | KeyDone, ...] = ()
        self._has_begun = False
        """Whether a key may be changed."""
        self._is_final = True
        """Whether another pod would find the same."""

    def do(self) -> None:
        """Plan, or execute, or both.  Raises QuorateError, and whatever a defect raises."""
        options = self._options
        with ExitStack() as stack:
            port = options.progress_port
            progress = Progress() if port is None else stack.enter_context(progress_port(port))
            target = Target(options.target)
            planned = options.digest is not None
            keys = self._read(target) if planned else self._plan(target, progress)
            if options.execute and keys:
                self._execute(keys, target, progress)

    def end_by(self, error: QuorateError) -> None:
        """Take in an error that has ended it."""
        if not self._has_begun:
            self._is_final = isinstance(error, PlanRefused)
            self._end(RepairOutcome.FAILED, str(error))
        else:
            self.end_by_itself(str(error))

    def end_by_itself(self, defect: str) -> None:
        """Take in a defect of this program that has ended it."""
        self._is_final = False
        self._end(RepairOutcome.UNKNOWN if self._has_begun else RepairOutcome.FAILED, defect)

    def _end(self, outcome: RepairOutcome, why: str) -> None:
        """Note another end; what is known of the plan stays."""
        self._result = msgspec.structs.replace(self._result, outcome=outcome, reasons=(why,))

    def tell(self) -> int:
        """Tell the result; return the exit code."""
        result, path = self._result, self._options.termination_message
        if result.outcome is RepairOutcome.FAILED and self._options.execute:
            result = msgspec.structs.replace(result, untouched=self._is_untouched())
        is_told = path is not None
        if path is not None:
            try:
                path.write_bytes(encode_repair_result(result))
            except OSError as error:
                print(f"--termination-message {path}: {error.strerror}", file=sys.stderr)
                is_told = False

        def tell(_: Console) -> None:
            if self._options.json:
                print_json({**msgspec.to_builtins(result), "plan_keys": self._keys})
            else:
                print(f"zone {self._zone.name}: {result.outcome}")

        is_whole = is_printed(tell)
        for reason in result.reasons:
            print(reason, file=sys.stderr)
        if not (is_whole if path is None else is_told):
            return 2
        if result.outcome.is_good:
            return 0
        return 1 if self._is_final else 2

    @property
    def _begun(self) -> str:
        return f"{BEGUN}.{self._options.run}"

    def _is_untouched(self) -> bool:
        """Return whether the place shows that no pod of this run has begun to change keys."""
        try:
            return Target(self._options.target).read(self._begun) is None
        except QuorateError:
            return False

    def _plan(self, target: Target, progress: Progress) -> list[PlannedKey]:
        """Return the plan, which is written now, or was by another pod of this run.

        Empty: there is none, and the result says why.
        """
        options = self._options
        data = target.read(PLAN)
        origin = origin_of(data, PLAN) if data is not None else None
        if data is not None and (origin is None or origin.run != options.run):
            raise PlanRefused(
                f"{options.target} has a plan already, {PLAN}: name another destination, or execute"
                " that one"
            )
        if data is None:
            target.make()
            found = self._find(progress)
            reasons = tuple(why_incomplete(found))
            if not found.keys:
                is_whole = found.verdict.outcome is Outcome.AGREE
                self._is_final = is_whole
                outcome = RepairOutcome.NOTHING_TO_REPAIR if is_whole else RepairOutcome.FAILED
                self._result = RepairResult(outcome, reasons=reasons)
                return []
            origin = PlanOrigin(options.run, reasons)
            data = encode_plan(found.keys, origin)
            target.write_last(PLAN, data)
        return self._noted(data)

    def _find(self, progress: Progress) -> DryRun:
        options = self._options
        parts = 2 if options.execute else 1
        with quiet_work_folder(options.work_dir, "repair-") as folder:
            return find_keys(
                self._zone,
                parse_addresses(options.agents),
                Level(options.level),
                Strategy(options.strategy),
                work_dir=folder,
                cluster=read_cluster(options.cluster, options.secret_file),
                settings=settings_of(options),
                keys_max=options.keys_max,
                progress=Progress(lambda percent: progress.reached(percent, parts * 100)),
            )

    def _read(self, target: Target) -> list[PlannedKey]:
        """Return the plan that is to be executed.  Raises PlanRefused."""
        data = target.read(PLAN)
        if data is None:
            raise PlanRefused(f"{self._options.target} has no {PLAN}")
        digest = _digest(data)
        if digest != self._options.digest:
            raise PlanRefused(
                f"{PLAN} in {self._options.target} is another file than the plan that was read: its"
                f" SHA-256 is {digest}, not {self._options.digest}"
            )
        return self._noted(data)

    def _noted(self, data: bytes) -> list[PlannedKey]:
        """Return the plan in this file; the result is that it is there."""
        keys, origin = decode_plan(data, PLAN), origin_of(data, PLAN)
        planned = Counter(key.action.value for key in keys)
        reasons = origin.reasons if origin is not None else ()
        self._keys = tuple(keys)
        self._result = RepairResult(
            RepairOutcome.PLANNED, _digest(data), planned=dict(planned), reasons=reasons
        )
        return keys

    def _execute(self, keys: list[PlannedKey], target: Target, progress: Progress) -> None:
        """Execute this plan, and no other."""
        options = self._options
        cluster = read_cluster(options.cluster, options.secret_file)
        check_plan(keys, PLAN, self._zone, cluster)
        if target.read(self._begun) is None:
            target.write_last(self._begun, self._options.run.encode())
        done = execute_keys(
            keys,
            self._zone,
            parse_addresses(options.agents),
            cluster=cluster,
            settings=settings_of(options),
            wait_s=options.wait_seconds,
            told=lambda sentence: print(sentence, file=sys.stderr),
        )
        self._has_begun = True
        before = len(keys) if options.strategy is not None else 0
        ended: list[KeyDone] = []
        for key in done:
            ended.append(key)
            progress.reached(before + len(ended), before + len(keys))
        self._keys = tuple(ended)
        counts = Counter(key.done.value for key in ended)
        is_whole = counts[Done.REPAIRED] == len(keys)
        outcome = RepairOutcome.REPAIRED if is_whole else RepairOutcome.INCOMPLETE
        self._result = msgspec.structs.replace(self._result, outcome=outcome, keys=dict(counts))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
