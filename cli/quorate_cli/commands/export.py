"""`quorate export|verify|import`: a zone's rows in files outside the cluster, and their way back.

Each runs as a process of its own (quorate_spark.export_commands).  While rows are imported, the
Zone has an annotation that names the export; the operator says by a condition that the zone is not
whole.  It stays when the import is interrupted, and allows the same import to go on.  Of several
imports at once the one that began last removes it.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

import msgspec
import typer

from quorate.facts.export_place import BASE_OPTION, KEY_FILE_OPTION, KEY_VARIABLE
from quorate.wire.restoring import RESTORING, RUN_WORD_LENGTH, Restoring
from quorate_cli.commands.objects import ServerOption
from quorate_cli.copies.validation import IfKilled, check_place, run_validation, tool_command
from quorate_cli.dev.commands import FolderOption, dev_cluster
from quorate_cli.objects import resources
from quorate_cli.objects.operator_api import Changed, OperatorApi, object_path, parse_server
from quorate_cli.objects.resources import STORAGE_CLUSTER, ZONE, Whole
from quorate_cli.processes.cluster_folder import DEFAULT_FOLDER, ClusterFolder
from quorate_cli.processes.process import python
from quorate_cli.terminal.options import JsonOption, LimitOption, ZoneArgument, limit_words
from quorate_cli.terminal.problem import Problem

if TYPE_CHECKING:
    from quorate.wire.zone import Zone

TargetArgument = Annotated[
    str, typer.Argument(metavar="TARGET", help="Folder, or URI: s3://bucket/prefix")
]
KeyFileOption = Annotated[
    Path | None,
    typer.Option(
        KEY_FILE_OPTION,
        metavar="FILE",
        help=f"File with the key of an encrypted export, in base64; or set {KEY_VARIABLE}.",
    ),
]


def export_zone(
    zone: ZoneArgument,
    target: TargetArgument,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read the export back and compare it.")
    ] = False,
    base: Annotated[
        str | None,
        typer.Option(
            BASE_OPTION,
            metavar="TARGET",
            help="Earlier export of the zone: its rows, and the updates since, make up this one.",
        ),
    ] = None,
    limit: LimitOption = None,
    key_file: KeyFileOption = None,
    server: ServerOption = None,
    folder: FolderOption = DEFAULT_FOLDER,
    as_json: JsonOption = False,
) -> None:
    """Write the rows of a zone to a folder or a bucket, while clients write.

    Of each partition it has all rows at one counter.  It is there once its manifest is. With --base
    it is as whole as without, and fewer rows are read of the agents.

    The exit code is 0, or 2 if there is no export; with --verify 1 if it is not as it was written.
    """
    with _nothing_written():
        api = _api(server, folder)
        whole = resources.fetch(api, ZONE, zone)
        found = resources.zone(whole)
        if (begun := _restoring(found)) is not None:
            raise Problem(
                f"zone {zone}: an import of {begun.place} has begun and is not done: export it when"
                " the zone is Available"
            )
        options = ["--zone-uid", found.metadata.uid]
        options += ["--zone-spec", msgspec.json.encode(whole.get("spec")).decode()]
        options += ["--verify"] * verify + ["--json"] * as_json + limit_words(limit)
        options += _key_options(key_file)
        options += [BASE_OPTION, _absolute(base)] if base is not None else []
        command = _command("export", api, found, folder, _absolute(target), options)
    raise typer.Exit(run_validation(command, if_killed=_unsure_export(target)))


def verify_export(
    target: TargetArgument, key_file: KeyFileOption = None, as_json: JsonOption = False
) -> None:
    """Read an export and compare its rows with its manifest.

    The exit code is 0 if it is as it was written, 1 if not, 2 if there is none.
    """
    command = python("quorate_spark", "verify", _absolute(target), *_key_options(key_file))
    killed = IfKilled("whether the export is as it was written is unknown")
    raise typer.Exit(run_validation([*command, *(["--json"] * as_json)], if_killed=killed))


def import_zone(
    target: TargetArgument,
    zone: ZoneArgument,
    into_non_empty: Annotated[
        bool,
        typer.Option("--into-non-empty", help="Also if the zone has keys: these stay as they are."),
    ] = False,
    limit: LimitOption = None,
    key_file: KeyFileOption = None,
    server: ServerOption = None,
    folder: FolderOption = DEFAULT_FOLDER,
    as_json: JsonOption = False,
) -> None:
    """Write the rows of an export into a zone, and compare the zone with the export.

    The zone may have any number of partitions, and must be empty. An import that was interrupted
    goes on when it is run again. Until it is done, the Zone is not Available.

    The exit code is 0 if the zone has all rows, 1 if only a part (or if another import into it is
    under way), 2 if nothing was written.
    """
    place = _absolute(target)
    with _nothing_written():
        api = _api(server, folder)
        found = resources.zone(resources.fetch(api, ZONE, zone))
        begun, uid = _begun(found, place), found.metadata.uid
        options = ["--zone-uid", uid, *_key_options(key_file), *limit_words(limit)]
        if begun is not None:
            into_non_empty = into_non_empty or begun.into_non_empty
            options += ["--continue", "--export-id", begun.export_id]
        options += ["--into-non-empty"] * into_non_empty
        command = _command("import", api, found, folder, place, options)
        code, export_id = _check(command)
        if code:
            raise typer.Exit(code)
        mine = Restoring(place, export_id, secrets.token_hex(RUN_WORD_LENGTH // 2), into_non_empty)
        _take_over(api, zone, uid, begun, mine)
    command += ["--export-id", export_id] + ["--json"] * as_json
    partly = IfKilled(f"zone {zone} may have only a part of the export: run the import again", 1)
    code = run_validation(command, if_killed=partly)
    if code == 0:
        code = _end(api, zone, uid, mine)
    elif code == 2 and begun is None:
        _end(api, zone, uid, mine)  # nothing was written
    raise typer.Exit(code)


def _unsure_export(target: str) -> IfKilled:
    """Return the consequence when the process of an export is killed."""
    verify = f"quorate verify {quote(target)}"
    return IfKilled(f"the export is there only if it has its manifest: `{verify}` tells")


@contextmanager
def _nothing_written() -> Iterator[None]:
    """Give problems the exit code of an export or import that wrote nothing."""
    try:
        yield
    except Problem as problem:
        raise Problem(str(problem), 2) from problem


def _check(command: list[str]) -> tuple[int, str]:
    """Return the exit code of the check, and the id of the export."""
    with TemporaryFile() as printed:
        nothing = IfKilled("nothing was written")
        code = run_validation([*command, "--check"], printed=printed, if_killed=nothing)
        printed.seek(0)
        return code, printed.read().decode().strip()


def _key_options(key_file: Path | None) -> list[str]:
    """Return the options that name the file of a key.  What is in it, only the process reads."""
    return [] if key_file is None else [KEY_FILE_OPTION, str(key_file)]


def _restoring(zone: Zone) -> Restoring | None:
    return Restoring.parse(zone.metadata.annotations.get(RESTORING, ""))


def _begun(zone: Zone, place: str) -> Restoring | None:
    """Return the import that has begun; raise Problem if it is from another place."""
    begun, name = _restoring(zone), zone.metadata.name
    if begun is not None and begun.place != place:
        raise Problem(
            f"zone {name}: an import of {begun.place} has begun and is not done: run `quorate"
            f" import {quote(begun.place)} {name}` until it is, or delete the zone"
        )
    return begun


def _take_over(
    api: OperatorApi, zone: str, uid: str, seen: Restoring | None, mine: Restoring
) -> None:
    """Note this import at the Zone.  Raises Problem if another one changed what was `seen`."""
    _change(api, zone, lambda found: _checked(found, uid, seen, mine))


def _checked(found: Zone, uid: str, seen: Restoring | None, mine: Restoring) -> str:
    """Return the note of this import.  Raises Problem if another one changed what was `seen`."""
    zone = found.metadata.name
    if found.metadata.uid != uid:
        raise Problem(f"{_replaced(zone)}: look at it, then import again")
    now = _restoring(found)
    if now is not None and now != seen:
        raise Problem(
            f"zone {zone}: another import has begun meanwhile, of {now.place}: wait until it is"
            " done"
        )
    if now is None and seen is not None:
        raise Problem(
            f"zone {zone}: another import of {seen.place} has ended meanwhile: the zone is whole"
        )
    return mine.text


def _end(api: OperatorApi, zone: str, uid: str, mine: Restoring) -> int:
    """Remove the annotation if it is of this import; return the exit code."""

    def ended(found: Zone) -> str | None:
        return "" if found.metadata.uid == uid and _restoring(found) == mine else None

    found = _change(api, zone, ended)
    now = _restoring(found)
    if found.metadata.uid != uid:
        print(f"{_replaced(zone)}, and has nothing of this import", file=sys.stderr)
        return 1
    if now is not None and now != mine:
        print(
            f"zone {zone}: another import of {now.place} has begun meanwhile: the zone is Available"
            " once that one has ended well",
            file=sys.stderr,
        )
        return 1
    return 0


def _replaced(zone: str) -> str:
    return f"zone {zone} was deleted and created again meanwhile"


def _change(api: OperatorApi, zone: str, decide: Callable[[Zone], str | None]) -> Zone:
    """Have the Zone's note as decided by what it is now; return that.

    None: the note stays.  It is decided again if the Zone changes in between.
    """
    while True:
        whole = resources.fetch(api, ZONE, zone)
        found = resources.zone(whole)
        text = decide(found)
        if text is None:
            return found
        with suppress(Changed):
            _annotate(api, whole, text)
            return found


def _annotate(api: OperatorApi, whole: Whole, text: str) -> None:
    """Note at the Zone what is imported; empty: nothing any more.  Raises Changed."""
    metadata = resources.zone(whole).metadata
    annotations = {**metadata.annotations, RESTORING: text}
    seen = {
        "uid": metadata.uid,
        "generation": metadata.generation,
        "restoring": metadata.annotations.get(RESTORING, ""),
    }
    body = {
        **{key: whole[key] for key in ("apiVersion", "kind", "spec")},
        "metadata": {
            "name": metadata.name,
            "labels": metadata.labels,
            "annotations": annotations,
        },
    }
    path = f"{object_path(ZONE.plural, metadata.name)}?{urlencode(seen)}"
    api.put(path, body, dict[str, object])


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
        ClusterFolder(folder).work,
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
