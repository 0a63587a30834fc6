"""The commands whose work is a run on Kubernetes: an object that is created and followed."""

from typing import Annotated, NoReturn

import typer

from quorate.wire.exports.zone_backup import ZoneBackup
from quorate.wire.exports.zone_restore import ZoneRestore
from quorate.wire.jobs.repair_result import RepairStrategy
from quorate_cli.commands.repair import RepairLevel
from quorate_cli.kubectl.options import (
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    OperatorOption,
    Place,
)
from quorate_cli.kubectl.runs import repair as repairing
from quorate_cli.kubectl.runs import validate as validating
from quorate_cli.kubectl.runs.export import key_of, place_of, run_export
from quorate_cli.terminal.options import (
    ExecutorsOption,
    JsonOption,
    KeyNames,
    KeyNamesOption,
    LevelOption,
    LimitOption,
    ModeOption,
    ValidationLevel,
    ValidationMode,
    ZoneArgument,
    executors_field,
    limit_field,
)
from quorate_cli.terminal.teller import PlainConsole

console = PlainConsole()

EndpointOption = Annotated[str, typer.Option(help="Address of another store than AWS.")]
RegionOption = Annotated[str, typer.Option(help="Region of the bucket.")]
SecretOption = Annotated[
    str, typer.Option("--credentials-secret", help="Secret with the keys of the bucket.")
]
KeySecretOption = Annotated[
    str,
    typer.Option(
        "--encryption-key-secret",
        metavar="SECRET[:KEY]",
        help="Secret with the key of an encrypted export.",
    ),
]


def validate(
    zone: ZoneArgument,
    level: LevelOption = ValidationLevel.ROWS,
    mode: ModeOption = ValidationMode.LIVE,
    keys: KeyNamesOption = KeyNames.ESCAPED,
    report: Annotated[
        str, typer.Option(metavar="FOLDER", help="Folder that gets the report, as JSON and a page.")
    ] = "",
    limit: LimitOption = None,
    executors: ExecutorsOption = 0,
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    namespace: NamespaceOption = "",
    operator_namespace: OperatorOption = "",
    as_json: JsonOption = False,
) -> NoReturn:
    """Check that all copies of a zone agree, by a DataValidation; Ctrl-C leaves it running.

    The exit code is 0 if they agree, 1 if they differ, 2 if that could not be determined.
    """
    place = Place(kubeconfig, context, namespace, operator_namespace)
    chosen = validating.Chosen(level, keys, limit, mode, executors)
    raise typer.Exit(validating.validate(zone, chosen, report, place, as_json, console))


def repair(
    zone: ZoneArgument,
    strategy: Annotated[
        RepairStrategy | None, typer.Option(help="Rule by which the row of each key is chosen.")
    ] = None,
    destination: Annotated[
        str, typer.Option(help="Place of the new plan: CLAIM:FOLDER or s3://BUCKET/FOLDER.")
    ] = "",
    execute: Annotated[
        str, typer.Option(metavar="NAME", help="ZoneRepair whose plan was read: execute that.")
    ] = "",
    without_review: Annotated[
        bool, typer.Option("--without-review", help="Execute the new plan at once, unread.")
    ] = False,
    level: Annotated[
        RepairLevel | None,
        typer.Option(help="How deeply copies are compared for the plan; rows if absent."),
    ] = None,
    limit: LimitOption = None,
    endpoint: EndpointOption = "",
    region: RegionOption = "",
    credentials_secret: SecretOption = "",
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    namespace: NamespaceOption = "",
    operator_namespace: OperatorOption = "",
    as_json: JsonOption = False,
) -> NoReturn:
    """Give all copies of keys that differ the same row again, by a ZoneRepair.

    With --strategy it plans and changes nothing. With --execute it executes that plan. The exit
    code is 0 if all was done, 1 if keys are not repaired, 2 otherwise. Ctrl-C leaves it running.
    """
    place = Place(kubeconfig, context, namespace, operator_namespace)
    wanted = repairing.Wanted(strategy, execute, without_review, level, limit)
    bucket = {"endpoint": endpoint, "region": region}
    at = None
    if destination or endpoint or region or credentials_secret:
        at = place_of(destination, bucket, credentials_secret, "--destination")
    raise typer.Exit(repairing.repair(zone, wanted, at, place, as_json, console))


def backup(
    zone: ZoneArgument,
    destination: Annotated[
        str,
        typer.Option(help="Place of the export, new or empty: CLAIM:FOLDER or s3://BUCKET/FOLDER."),
    ],
    limit: LimitOption = None,
    executors: ExecutorsOption = 0,
    endpoint: EndpointOption = "",
    region: RegionOption = "",
    credentials_secret: SecretOption = "",
    encryption_key_secret: KeySecretOption = "",
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    namespace: NamespaceOption = "",
    operator_namespace: OperatorOption = "",
    as_json: JsonOption = False,
) -> NoReturn:
    """Export a zone while clients write, by a ZoneBackup, and read the export back.

    The exit code is 0 if the export is there and whole, 1 if it is not, 2 if that is not known.
    Ctrl-C leaves it running.
    """
    place = Place(kubeconfig, context, namespace, operator_namespace)
    bucket = {"endpoint": endpoint, "region": region}
    at = {"destination": place_of(destination, bucket, credentials_secret, "--destination")}
    read_by = {**limit_field(limit), **executors_field(executors)}
    spec = {**at, **read_by, **key_of(encryption_key_secret)}
    raise typer.Exit(run_export(ZoneBackup, zone, spec, place, as_json, console))


def restore(
    zone: ZoneArgument,
    source: Annotated[
        str, typer.Option(help="Place of the export: CLAIM:FOLDER or s3://BUCKET/FOLDER.")
    ],
    into_non_empty: Annotated[
        bool,
        typer.Option(
            "--into-non-empty", help="Also into a zone that has keys: write those that it lacks."
        ),
    ] = False,
    limit: LimitOption = None,
    endpoint: EndpointOption = "",
    region: RegionOption = "",
    credentials_secret: SecretOption = "",
    encryption_key_secret: KeySecretOption = "",
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    namespace: NamespaceOption = "",
    operator_namespace: OperatorOption = "",
    as_json: JsonOption = False,
) -> NoReturn:
    """Import an export into a zone, by a ZoneRestore, and compare every row.

    The exit code is 0 if the zone has every row, 1 if it has not, 2 if that is not known. Ctrl-C
    leaves it running.
    """
    place = Place(kubeconfig, context, namespace, operator_namespace)
    bucket = {"endpoint": endpoint, "region": region}
    at = {"source": place_of(source, bucket, credentials_secret, "--source")}
    spec = {**at, **limit_field(limit), **key_of(encryption_key_secret)}
    more = {"intoNonEmpty": True} if into_non_empty else {}
    raise typer.Exit(run_export(ZoneRestore, zone, {**spec, **more}, place, as_json, console))


RUN_COMMANDS = (validate, repair, backup, restore)
