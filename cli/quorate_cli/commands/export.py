"""`quorate export|verify|import`: a zone's rows in files outside the cluster, and their way back.

Each runs as a process of its own (quorate_spark.export_commands).  While rows are imported, the
Zone has an annotation that names the export; the operator says by a condition that the zone is not
whole.  It stays when the import is interrupted, and allows the same import to go on.
"""

import os
from pathlib import Path
from shlex import quote
from typing import Annotated

import msgspec
import typer

from quorate.wire.zone import RESTORING, Zone
from quorate_cli.commands.objects import ServerOption
from quorate_cli.copies.validation import check_place, run_validation, tool_command
from quorate_cli.dev.commands import FolderOption, dev_cluster
from quorate_cli.objects import resources
from quorate_cli.objects.operator_api import OperatorApi, object_path, parse_server
from quorate_cli.objects.resources import STORAGE_CLUSTER, ZONE, Whole
from quorate_cli.processes.cluster_folder import DEFAULT_FOLDER, ClusterFolder
from quorate_cli.processes.process import python
from quorate_cli.terminal.options import JsonOption, ZoneArgument
from quorate_cli.terminal.problem import Problem

TargetArgument = Annotated[
    str, typer.Argument(metavar="TARGET", help="Folder, or URI: s3://bucket/prefix")
]


def export_zone(
    zone: ZoneArgument,
    target: TargetArgument,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read the export back and compare it.")
    ] = False,
    server: ServerOption = None,
    folder: FolderOption = DEFAULT_FOLDER,
    as_json: JsonOption = False,
) -> None:
    """Write the rows of a zone to a folder or a bucket, while clients write.

    Of each partition it has all rows at one counter.  It is there once its manifest is.

    The exit code is 0, or 2 if there is no export; with --verify 1 if it is not as it was written.
    """
    api = _api(server, folder)
    whole = resources.fetch(api, ZONE, zone)
    found = resources.zone(whole)
    options = ["--zone-uid", found.metadata.uid]
    options += ["--zone-spec", msgspec.json.encode(whole.get("spec")).decode()]
    options += ["--verify"] * verify + ["--json"] * as_json
    command = _command("export", api, found, folder, _absolute(target), options)
    raise typer.Exit(run_validation(command))


def verify_export(target: TargetArgument, as_json: JsonOption = False) -> None:
    """Read an export and compare its rows with its manifest.

    The exit code is 0 if it is as it was written, 1 if not, 2 if there is none.
    """
    command = python("quorate_spark", "verify", _absolute(target))
    raise typer.Exit(run_validation([*command, *(["--json"] * as_json)]))


def import_zone(
    target: TargetArgument,
    zone: ZoneArgument,
    into_non_empty: Annotated[
        bool,
        typer.Option("--into-non-empty", help="Also if the zone has keys: these stay as they are."),
    ] = False,
    server: ServerOption = None,
    folder: FolderOption = DEFAULT_FOLDER,
    as_json: JsonOption = False,
) -> None:
    """Write the rows of an export into a zone, and compare the zone with the export.

    The zone may have any number of partitions, and must be empty. An import that was interrupted
    goes on when it is run again. Until it is done, the Zone is not Available.

    The exit code is 0 if the zone has all rows, 1 if only a part, 2 if nothing was written.
    """
    try:
        api = _api(server, folder)
        whole = resources.fetch(api, ZONE, zone)
        found = resources.zone(whole)
    except Problem as problem:
        raise Problem(str(problem), 2) from problem
    place = _absolute(target)
    begun = found.metadata.annotations.get(RESTORING, "")
    if begun and begun != place:
        raise Problem(
            f"zone {zone}: an import of {begun} has begun and is not done: run `quorate import"
            f" {quote(begun)} {zone}` until it is, or delete the zone",
            2,
        )
    options = ["--into-non-empty"] * into_non_empty + ["--continue"] * bool(begun)
    command = _command("import", api, found, folder, place, options)
    code = run_validation([*command, "--check"])
    if code:
        raise typer.Exit(code)
    if not begun:
        _annotate(api, whole, place)
    code = run_validation(command + ["--json"] * as_json)
    if code == 0:
        _annotate(api, resources.fetch(api, ZONE, zone), "")
    raise typer.Exit(code)


def _annotate(api: OperatorApi, whole: Whole, place: str) -> None:
    """Note at the Zone what is imported; empty: nothing any more."""
    metadata = resources.zone(whole).metadata
    annotations = {k: v for k, v in metadata.annotations.items() if k != RESTORING}
    if place:
        annotations[RESTORING] = place
    body = {
        **{key: whole[key] for key in ("apiVersion", "kind", "spec")},
        "metadata": {
            "name": metadata.name,
            "labels": metadata.labels,
            "annotations": annotations,
        },
    }
    api.put(object_path(ZONE.plural, metadata.name), body, dict[str, object])


def _command(
    what: str, api: OperatorApi, zone: Zone, folder: Path, target: str, options: list[str]
) -> list[str]:
    cluster = zone.spec.cluster_ref.name
    agents = resources.cluster(resources.fetch(api, STORAGE_CLUSTER, cluster)).spec.dialed
    return tool_command(
        what,
        zone.metadata.name,
        cluster,
        ClusterFolder(folder).secret_file(cluster),
        agents,
        ClusterFolder(folder).path / "exports",
        zone.spec.partitions,
        zone.spec.replicas,
        *("--target", target, *options),
    )


def _api(server: str | None, folder: Path) -> OperatorApi:
    return parse_server(server, ClusterFolder(folder)) if server else dev_cluster(folder).api()


def _absolute(target: str) -> str:
    """Return the place as it is named from any folder.  Raises Problem if it can be none."""
    check_place(target)
    return target if "://" in target else os.path.abspath(target)
