"""The commands `export`, `verify` and `import` of `python -m quorate_spark`.

Exit codes: 0 if it was done; 1 if what was found is not what was exported, or if an import has
begun, perhaps, and is not whole; 2 if nothing was done, nothing is known, or this program is
defective.

An export or import tells how far it is at a port, and its result as a termination message:
so the pods of ZoneBackups and ZoneRestores tell the operator.
"""

import argparse
import math
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from shlex import quote
from typing import Self

import msgspec
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar
from rich.text import Text

from quorate.facts.errors import QuorateError
from quorate.facts.export_place import (
    BASE_FOLDER_OPTION,
    BASE_OPTION,
    ENCRYPTED_OPTION,
    KEY_FILE_OPTION,
    KEY_VARIABLE,
)
from quorate.wire.exports.export_result import (
    READ_WHOLE_MAX,
    ExportResult,
    RunOutcome,
    encode_export_result,
)
from quorate_spark.command_line import add_limit, is_printed, print_json, settings_of
from quorate_spark.exports.base_export import (
    Base,
    from_base,
    named_base,
    reasons,
    told_of_base,
)
from quorate_spark.exports.export_key import ExportKey, KeyRefused, read_key
from quorate_spark.exports.export_zone import export_zone
from quorate_spark.exports.import_zone import (
    Imported,
    NotCompared,
    NotEmpty,
    check_empty,
    import_zone,
)
from quorate_spark.exports.manifest import (
    Manifest,
    cipher_of,
    manifest_of_run,
    open_manifest,
    read_manifest,
)
from quorate_spark.exports.old_exports import Deleted, delete_old, time_to_delete
from quorate_spark.exports.printed import print_imported
from quorate_spark.exports.target import Target, TargetRefused, TargetUnreadable
from quorate_spark.exports.verify import verify
from quorate_spark.exports.zone_identity import check_zone, unproved
from quorate_spark.passes.executors import led_executors
from quorate_spark.passes.export_tasks import led_export
from quorate_spark.progress import Progress
from quorate_spark.reading.agent_link import parse_addresses, read_cluster
from quorate_spark.reading.settle import ZoneCopies
from quorate_spark.settings import Settings
from quorate_spark.tell_progress import progress_port
from quorate_spark.work_folder import work_folder

WAIT_S = 60.0
"""How long one batch of rows may take to be written; a primary may have to be replaced."""

NAMES = ("export", "import", "verify")


class _Bar:
    """A progress bar on a terminal, from the first figure until `end`, and a port's percentage.

    `steps`: what is done, in order.
    """

    def __init__(self, is_shown: bool, steps: tuple[str, ...], at_port: Progress) -> None:
        console = Console(stderr=True, highlight=False)
        self._is_shown = is_shown and console.is_terminal
        self._steps = steps
        self._at_port = at_port
        self._tasks: dict[str, TaskID] = {}
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rows"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def tell(self, what: str, done: int, total: int) -> None:
        """Show how many rows of what is done are done."""
        total = max(total, done)
        if what in self._steps:
            before = self._steps.index(what) * total
            self._at_port.reached(before + done, len(self._steps) * total)
        if not self._is_shown:
            return
        self._bar.start()
        if what not in self._tasks:
            self._tasks[what] = self._bar.add_task(what, total=None)
        self._bar.update(self._tasks[what], completed=done, total=total)

    def end(self) -> None:
        """Remove the bar, if it is shown; idempotent."""
        if self._tasks:
            self._bar.stop()


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the parsers of the commands."""
    of_zone = argparse.ArgumentParser(add_help=False)
    of_zone.add_argument("zone", metavar="ZONE")
    of_zone.add_argument("--target", required=True, help="folder, or URI: s3://bucket/prefix")
    of_zone.add_argument("--agents", required=True, help="peer ports of all agents: host:port,…")
    of_zone.add_argument("--cluster", required=True, help="its name, as the agents know it")
    of_zone.add_argument("--secret-file", required=True, help="the cluster's secret")
    of_zone.add_argument("--partitions", type=int, required=True, help="as the zone declares them")
    of_zone.add_argument("--replicas", type=int, required=True, help="as the zone declares them")
    of_zone.add_argument("--zone-uid", default="", help="as the zone declares it")
    of_zone.add_argument("--work-dir", type=Path, help="folder for temporary files")
    settings = Settings()
    of_zone.add_argument("--settle-seconds", type=float, default=settings.settle_timeout_s)
    of_zone.add_argument("--answer-seconds", type=float, default=settings.answer_timeout_s)
    of_all = argparse.ArgumentParser(add_help=False)
    of_all.add_argument("--json", action="store_true", help="print the result as JSON")
    of_all.add_argument(
        KEY_FILE_OPTION,
        type=Path,
        metavar="FILE",
        help=f"the key of an encrypted export, in base64; without it {KEY_VARIABLE} may have it",
    )

    exporting = commands.add_parser(
        "export", parents=[of_zone, of_all], help="write a zone's rows to files"
    )
    exporting.add_argument("--zone-spec", default="{}", help="as declared, in JSON")
    exporting.add_argument("--verify", action="store_true", help="read the export back")
    bases = exporting.add_mutually_exclusive_group()
    bases.add_argument(
        BASE_OPTION,
        default="",
        metavar="TARGET",
        help="an earlier export of the zone: its rows, and the updates since, make up the new one",
    )
    bases.add_argument(
        BASE_FOLDER_OPTION,
        default="",
        metavar="FOLDER",
        help="the same of a folder beside the target; without an export in it all is read whole",
    )
    exporting.add_argument(
        "--run", default="", help="a name: an export of this name that is there already is kept"
    )
    exporting.add_argument("--series", default="", help="the id of the schedule that makes it")
    exporting.add_argument(
        "--delete",
        action="append",
        default=[],
        metavar="FOLDER",
        help="beside the target, an older export of the series: deleted after --verify",
    )
    exporting.add_argument(
        "--ends-at",
        type=float,
        default=math.inf,
        help="the Unix time of this process's end: deletion takes a quarter of what is left",
    )
    importing = commands.add_parser(
        "import", parents=[of_zone, of_all], help="write the rows of an export into a zone"
    )
    importing.add_argument(
        "--check",
        action="store_true",
        help="only print the id of the export, if it may begin; the exit code is 0 or 2",
    )
    importing.add_argument("--export-id", default="", help="refuse another export than this one")
    importing.add_argument(
        "--continue",
        dest="continues",
        action="store_true",
        help="an import of this export has begun before",
    )
    importing.add_argument("--wait-seconds", type=float, default=WAIT_S, help="for each batch")
    importing.add_argument(
        "--into-non-empty", action="store_true", help="also if the zone has keys: these stay"
    )
    for each in (exporting, importing):
        add_limit(each)
        each.add_argument(
            ENCRYPTED_OPTION, action="store_true", help="refuse to do it without a key"
        )
        each.add_argument(
            "--termination-message", type=Path, help="write the result in short, at most 4 KiB"
        )
        each.add_argument(
            "--progress-port",
            type=int,
            help="answer GET at this port by the percentage that is done",
        )
    verifying = commands.add_parser("verify", parents=[of_all], help="read an export back")
    verifying.add_argument("target", metavar="TARGET")


def run(options: argparse.Namespace) -> int:
    """Run one of the commands; return the exit code.  Interrupts pass through."""
    try:
        with ExitStack() as stack:
            port = getattr(options, "progress_port", None)
            at_port = Progress() if port is None else stack.enter_context(progress_port(port))
            bar = stack.enter_context(_Bar(not options.json, _steps(options), at_port))
            match options.command:
                case "export":
                    return _export(options, bar)
                case "verify":
                    return _verify(options, bar)
                case _:
                    return _import(options, bar)
    except QuorateError as error:
        is_known = not isinstance(error, TargetUnreadable)
        outcome = RunOutcome.FAILED if is_known else RunOutcome.UNKNOWN
        absent = is_known and _is_absent(options)
        _tell_result(options, ExportResult(outcome, reason=str(error), absent=absent))
        print(_failed(options, str(error)), file=sys.stderr)
        return 2


def end_by_itself(options: argparse.Namespace, defect: str) -> int:
    """Tell that a defect of this program ended the command; return the exit code.

    An import may have begun: 2 would say that nothing was written.
    """
    _tell_result(options, ExportResult(RunOutcome.UNKNOWN, reason=defect))
    if options.command == "import" and not options.check:
        print(f"zone {options.zone} may have only a part of the export: {defect}", file=sys.stderr)
        return 1
    print(_failed(options, defect), file=sys.stderr)
    return 2


def _steps(options: argparse.Namespace) -> tuple[str, ...]:
    """Return what is done, in order."""
    if options.command == "import":
        return "check", "write", "compare"
    return ("export", "verify") if getattr(options, "verify", False) else ("export",)


def _tell_result(options: argparse.Namespace, result: ExportResult) -> None:
    """Write the termination message, if it is wanted: without one the result is unknown."""
    path: Path | None = getattr(options, "termination_message", None)
    if path is not None:
        try:
            path.write_bytes(encode_export_result(result))
        except OSError as error:
            print(f"--termination-message {path}: {error.strerror}", file=sys.stderr)


def _failed(options: argparse.Namespace, reason: str) -> str:
    match options.command:
        case "export":
            return f"zone {options.zone} is not exported: {reason}"
        case "verify":
            return f"nothing is verified: {reason}"
        case _:
            return f"nothing is imported: {reason}"


def _export(options: argparse.Namespace, bar: _Bar) -> int:
    target = Target(options.target)
    base: Base | None = None
    try:
        spec = msgspec.json.decode(options.zone_spec, type=dict)
    except msgspec.MsgspecError as error:
        raise TargetRefused(f"--zone-spec is no JSON object: {error}") from error
    if options.run and (there := manifest_of_run(target, options.run)) is not None:
        manifest = there  # another process has exported it, and may not have read it back
        if (there.series, there.zone.uid) != (options.series, options.zone_uid):
            raise TargetRefused(
                f"{options.target} has an export of this run with another --series or --zone-uid"
            )
        cipher_of(target, there, _key(options))  # it was to be encrypted with this key
    else:
        try:
            key = _key(options)
        except KeyRefused as error:
            raise TargetRefused(str(error)) from error  # nothing was exported
        base = named_base(options.base, options.base_folder, target, key)
        led = led_executors(options.secret_file)
        with (
            work_folder(options.work_dir, "export-") as folder,
            led_export(led, folder, options.encryption_key_file) as by_tasks,
        ):
            manifest = export_zone(
                target,
                _copies(options),
                options.zone_uid,
                spec,
                settings_of(options),
                str(folder),
                lambda done, total: bar.tell("export", done, total),
                options.run,
                options.series,
                key,
                base,
                by_tasks,
            )
        for detail in base.details.values() if base is not None else ():
            print(f"read whole: {detail}", file=sys.stderr)
    if options.verify:
        return _verify(options, bar, manifest, base)
    bar.end()
    return _told(options, manifest, f"Zone {options.zone} is exported to {options.target}")


def _key(options: argparse.Namespace) -> ExportKey | None:
    """Return the key that is given; None: none is.  Raises KeyRefused."""
    return read_key(options.encryption_key_file, getattr(options, "encrypted", False))


def _is_absent(options: argparse.Namespace) -> bool:
    """Return whether the target has surely no export of this run."""
    run = getattr(options, "run", "")
    try:
        return bool(run) and manifest_of_run(Target(options.target), run) is None
    except QuorateError:
        return False


def _verify(
    options: argparse.Namespace,
    bar: _Bar,
    own: Manifest | None = None,
    base: Base | None = None,
) -> int:
    """Read an export back; `own`: the manifest that it is to have, after an export, `base`: what
    that export had as one."""
    target = Target(options.target)
    read_manifest(target)  # without one, the exit code is 2
    key = _key(options)
    try:
        manifest = verify(target, lambda done, total: bar.tell("verify", done, total), key)
    except TargetUnreadable:
        raise  # the exit code is 2: it may be as it was
    except TargetRefused as error:
        reason = f"it is not as it was exported: {error}"
        _tell_result(options, ExportResult(RunOutcome.FAILED, reason=reason, damaged=True))
        print(f"{options.target} is not as it was exported: {error}", file=sys.stderr)
        return 1
    bar.end()
    if own is not None and _identity(manifest) != _identity(own):
        raise TargetRefused(
            f"{options.target} has another export by now, {manifest.export_id}: does another run"
            " write there?"
        )
    taken, whole = from_base(manifest)
    result = ExportResult(
        RunOutcome.COMPLETE,
        manifest.export_id,
        manifest.rows,
        manifest.bytes,
        "" if manifest.encryption is not None else manifest.digest,
        encryption_key_id=manifest.key_id,
        base=manifest.base,
        partitions_from_base=taken if whole or taken else None,
        partitions_read_whole=whole if whole or taken else None,
        read_whole=reasons(manifest, base, READ_WHOLE_MAX),
    )
    _tell_result(options, result)
    if old := getattr(options, "delete", ()):
        deleted = _delete(options, target, manifest, old)
        _tell_result(
            options,
            msgspec.structs.replace(
                result,
                deleted=deleted.folders,
                undeleted=deleted.problem,
                kept=deleted.kept,
                half_deleted=deleted.halves,
            ),
        )
        if deleted.problem:
            print(deleted.problem, file=sys.stderr)
    return _told(options, manifest, f"{options.target} is as it was exported")


def _identity(manifest: Manifest) -> tuple[str, str, str, str]:
    return manifest.export_id, manifest.run, manifest.series, manifest.zone.uid


def _delete(
    options: argparse.Namespace, target: Target, manifest: Manifest, old: list[str]
) -> Deleted:
    """Delete older exports, if it is sure that the new one is of their zone; never raises."""
    try:
        reading = _copies(options).read_answering(settings_of(options))
        check_zone(reading, options.zone, manifest.zone.uid)
        why = unproved(reading, manifest.zone.uid)
    except Exception as error:  # the export is good, and was read back
        why = str(error)
    if why:
        return Deleted(problem=f"nothing is deleted: {why}")
    return delete_old(target, manifest, old, time_to_delete(options.ends_at - time.time()))


def _import(options: argparse.Namespace, bar: _Bar) -> int:
    target = Target(options.target)
    manifest = read_manifest(target)
    key = _key(options)
    if options.export_id not in ("", manifest.export_id):
        raise TargetRefused(
            f"{options.target} has the export {manifest.export_id} now, and the import that has"
            f" begun is of the export {options.export_id}: import from where that one is, or delete"
            " the zone with its data"
        )
    manifest = open_manifest(target, manifest, key)
    names_keys = manifest.encryption is None or not _is_told_to_others(options)
    if options.check:
        if not options.into_non_empty and not options.continues:
            check_empty(_copies(options), settings_of(options), names_keys)
        _tell_result(options, ExportResult(RunOutcome.COMPLETE, manifest.export_id))
        print(manifest.export_id)
        return 0
    began = False

    def progress(what: str, done: int, total: int) -> None:
        nonlocal began
        began = began or what == "write"
        bar.tell(what, done, total)

    try:
        imported = import_zone(
            target,
            manifest,
            _copies(options),
            settings_of(options),
            continues=options.continues,
            into_non_empty=options.into_non_empty,
            wait_s=options.wait_seconds,
            progress=progress,
            cipher=cipher_of(target, manifest, key),
            names_keys=names_keys,
        )
    except NotEmpty:
        raise
    except NotCompared as error:
        reason = f"all rows are written; they could not be compared: {error}"
        _tell_result(options, ExportResult(RunOutcome.FAILED, reason=reason))
        print(f"zone {options.zone}: {reason}.  Import again", file=sys.stderr)
        return 1
    except QuorateError as error:
        if not began:
            raise
        _tell_result(options, ExportResult(RunOutcome.FAILED, reason=str(error)))
        print(
            f"zone {options.zone} has only a part of the export: {error}.  Import again, and it"
            " goes on",
            file=sys.stderr,
        )
        return 1
    bar.end()
    if not names_keys:
        imported = msgspec.structs.replace(imported, digest="", exported_digest="", keys=())
    result = msgspec.structs.replace(_result_of(imported), encryption_key_id=manifest.key_id)
    _tell_result(options, result)

    def tell(console: Console) -> None:
        if options.json:
            print_json({**msgspec.to_builtins(imported), "exit_code": imported.exit_code})
        else:
            print_imported(imported, options.target, console)

    return imported.exit_code if is_printed(tell) or _is_told_to_others(options) else 1


def _result_of(imported: Imported) -> ExportResult:
    if imported.is_whole:
        return ExportResult(
            RunOutcome.COMPLETE,
            imported.export_id,
            imported.rows,
            imported.bytes,
            imported.digest,
            keys_kept=imported.kept,
            rows_expired=imported.expired,
        )
    reason = (
        f"{imported.missing} rows are missing, {imported.differing} keys have another row, and"
        f" {imported.kept} had one already"
    )
    if imported.kept and not imported.into_non_empty:
        reason += ": while these have another row, only intoNonEmpty ends it, which keeps them"
    return ExportResult(RunOutcome.FAILED, imported.export_id, reason=reason)


def _copies(options: argparse.Namespace) -> ZoneCopies:
    return ZoneCopies(
        options.zone,
        parse_addresses(options.agents),
        read_cluster(options.cluster, options.secret_file),
        options.partitions,
        options.replicas,
        options.zone_uid,
    )


def _is_told_to_others(options: argparse.Namespace) -> bool:
    """Return whether this is a pod, whose log is read by people who may not have the key.

    It then tells no digest of an encrypted export, as of few rows that would tell the content, and
    names no key of a row.
    """
    return getattr(options, "termination_message", None) is not None


def _told(options: argparse.Namespace, manifest: Manifest, sentence: str) -> int:
    """Print it; return the exit code."""
    is_told = is_printed(lambda console: _tell_manifest(options, manifest, sentence, console))
    return 0 if is_told or _is_told_to_others(options) else 2


def _tell_manifest(
    options: argparse.Namespace, manifest: Manifest, sentence: str, console: Console
) -> None:
    if options.json:
        if manifest.encryption is not None and _is_told_to_others(options):
            manifest = msgspec.structs.replace(manifest, digest="", partitions=())
        print_json({"target": options.target, **msgspec.to_builtins(manifest)})
        return
    console.print(
        Text(f"{sentence}: {manifest.rows:,} rows, {manifest.bytes:,} bytes of keys and values."),
        soft_wrap=True,
    )
    if said := told_of_base(manifest):
        console.print(Text(said), soft_wrap=True)
    if manifest.encryption is not None:
        console.print(Text(f"encrypted with key {manifest.key_id}"), soft_wrap=True)
    console.print(Text(f"digest {manifest.digest}"), soft_wrap=True)
    if options.command == "export":
        console.print(Text("It is imported into an empty zone by:"))
        file = options.encryption_key_file
        with_key = "" if file is None else f" {KEY_FILE_OPTION} {quote(str(file))}"
        command = f"  quorate import {quote(options.target)} ZONE{with_key}"
        console.print(Text(command), soft_wrap=True)
