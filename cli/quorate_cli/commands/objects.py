"""`quorate apply|get|describe|delete|status|validate|debug`: declared objects and their state."""

import enum
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from quorate.protocol.messages.events import time_text
from quorate.wire.jobs.known_history import history_of
from quorate.wire.jobs.zone_history import ZoneHistory
from quorate.wire.restoring import RESTORING
from quorate_cli.copies.agent_question import asked_agent
from quorate_cli.copies.damage import damage_copy
from quorate_cli.copies.validation import run_validation, validation_command
from quorate_cli.dev.commands import FolderOption, dev_cluster, teller
from quorate_cli.dev.json_output import status_json
from quorate_cli.dev.process_states import not_running
from quorate_cli.objects import resources
from quorate_cli.objects.cluster_state import ClusterState, fetch_state
from quorate_cli.objects.manifest import Manifest, read_manifests
from quorate_cli.objects.object_view import describe_all, print_list, print_whole, together
from quorate_cli.objects.operator_api import (
    NotReady,
    NotThere,
    OperatorApi,
    object_path,
    parse_server,
)
from quorate_cli.objects.resources import STORAGE_CLUSTER, ZONE, Kind, Whole, find_kind
from quorate_cli.objects.serving import how_to_connect
from quorate_cli.objects.status_view import StatusView, show
from quorate_cli.processes.cluster_folder import DEFAULT_FOLDER, ClusterFolder
from quorate_cli.terminal.options import (
    JsonOption,
    KeyNames,
    KeyNamesOption,
    KindArgument,
    LevelOption,
    LimitOption,
    ModeOption,
    ValidationLevel,
    ValidationMode,
    WatchOption,
    ZoneArgument,
    limit_words,
)
from quorate_cli.terminal.problem import Problem
from quorate_cli.terminal.teller import PlainConsole

if TYPE_CHECKING:
    from quorate.wire.schema.resource import Resource

console = PlainConsole()
debug = typer.Typer(no_args_is_help=True, help="Damage a copy on purpose, or refill a damaged one.")

POLL_S = 0.25
_IMPORT_NOTE = f"annotation {RESTORING}"
PORTS_S = 3.0
"""Seconds that a command waits for the client ports of a zone that it has declared."""

SERVER_VARIABLE = "QUORATE_SERVER"


def _named_once(context: typer.Context, server: str | None) -> str | None:
    """Return `server`.  Raises BadParameter if it is of the environment and --folder is given."""

    def source(option: str) -> str:
        found = context.get_parameter_source(option)
        return found.name if found is not None else ""

    if source("server") == "ENVIRONMENT" and source("folder") == "COMMANDLINE":
        raise typer.BadParameter(
            f"{SERVER_VARIABLE} names {server}, and --folder names {context.params['folder']}:"
            f" unset {SERVER_VARIABLE}, or write --server {server} to take only its secrets from"
            " the folder"
        )
    return server


ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        envvar=SERVER_VARIABLE,
        callback=_named_once,
        help="host:port of the operator. Default: the operator of --folder. With both, secrets and"
        " token are those in the folder.",
    ),
]


class Form(enum.StrEnum):
    """Format in which `get` prints whole objects."""

    YAML = "yaml"
    JSON = "json"


def _api(server: str | None, folder: Path) -> OperatorApi:
    return parse_server(server, ClusterFolder(folder)) if server else dev_cluster(folder).api()


def apply(
    file: Annotated[
        list[Path], typer.Option("--file", "-f", help="YAML or JSON file; - is standard input.")
    ],
    server: ServerOption = None,
    folder: FolderOption = DEFAULT_FOLDER,
    dry_run: Annotated[
        bool, typer.Option(help="Print what would change, and change nothing.")
    ] = False,
    wait: Annotated[
        float,
        typer.Option(min=0, help="Seconds to wait until zones are Available; 0: do not wait."),
    ] = 0.0,
) -> None:
    """Create or change objects.  If one of them is refused, none is changed."""
    manifests = read_manifests(file)
    api = _api(server, folder)
    refusals = api.refusals([manifest.body for manifest in manifests])
    refused = [f"{m.place}: {why}" for m, why in zip(manifests, refusals, strict=True) if why]
    if refused:
        raise Problem(f"{'; '.join(refused)}; nothing was changed")
    for manifest in manifests:
        what = what_changes(manifest, _known(api, manifest))
        about = f"{manifest.kind.singular}/{manifest.name} {what}"
        if dry_run:
            teller.print(Text(f"{about} (dry run)"), soft_wrap=True)
            continue
        if what != "unchanged":
            api.put(object_path(manifest.kind.plural, manifest.name), manifest.body, Whole)
        condition = "" if wait else _first_condition(api, manifest)
        teller.print(Text(f"{about}{condition}"), soft_wrap=True)
    zones = [manifest.name for manifest in manifests if manifest.kind is ZONE]
    if dry_run or not zones:
        return
    for zone in zones:
        if wait:
            wait_until_available(api, zone, wait)
        teller.print(_how_to_connect(api, zone), soft_wrap=True)


def _first_condition(api: OperatorApi, manifest: Manifest) -> str:
    """Return the first condition of a declared object as a sentence; empty if there is none."""
    found = resources.fetch(api, manifest.kind, manifest.name).get("status")
    conditions = found.get("conditions") if isinstance(found, dict) else None
    if not isinstance(conditions, list) or not conditions:
        return ""
    return "; {type} is {status}: {message}".format_map(conditions[0])


def _how_to_connect(api: OperatorApi, name: str) -> str:
    """Return how to give commands to a zone, in one line; wait PORTS_S for a new one's ports."""
    deadline = time.monotonic() + PORTS_S
    while True:
        cluster = resources.zone(resources.fetch(api, ZONE, name)).spec.cluster_ref.name
        try:
            line = how_to_connect(fetch_state(api, cluster)).get(name)
        except NotReady:
            line = None
        if line is not None:
            return line
        if time.monotonic() > deadline:
            return f"zone {name}: not served yet (`quorate status`); then: quorate cli {name}"
        time.sleep(POLL_S)


def get(
    kind: KindArgument,
    name: Annotated[str | None, typer.Argument()] = None,
    output: Annotated[
        Form | None, typer.Option("--output", "-o", help="Print every field in this format.")
    ] = None,
    server: ServerOption = None,
    folder: FolderOption = DEFAULT_FOLDER,
    as_json: JsonOption = False,
) -> None:
    """List objects, or print them with every field."""
    found = find_kind(kind)
    api = _api(server, folder)
    objects = _objects(api, found, name)
    if as_json:
        output = Form.JSON
    if output is None:
        print_list(found, objects, console)
    else:
        print_whole(together(objects, name), output.value, console)


def describe(
    kind: KindArgument,
    name: Annotated[str | None, typer.Argument()] = None,
    server: ServerOption = None,
    folder: FolderOption = DEFAULT_FOLDER,
    as_json: JsonOption = False,
) -> None:
    """Show the spec, status and conditions of one or all objects of a kind."""
    found = find_kind(kind)
    describe_all(found, _objects(_api(server, folder), found, name), name, as_json, console)


def delete(
    kind: KindArgument,
    name: Annotated[str, typer.Argument()],
    server: ServerOption = None,
    folder: FolderOption = DEFAULT_FOLDER,
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds to wait until it is deleted; 0: do not wait.")
    ] = 30,
) -> None:
    """Delete an object.  A zone's data is deleted too, unless deletionPolicy is Retain."""
    found = find_kind(kind)
    api = _api(server, folder)
    resources.fetch(api, found, name)
    api.delete(object_path(found.plural, name))
    deadline = time.monotonic() + wait
    while wait:
        try:
            api.get(object_path(found.plural, name), Whole)
        except NotThere:
            console.print(f"{found.singular}/{name} deleted")
            return
        if time.monotonic() > deadline:
            raise Problem(
                f"{found.singular} {name!r} is not deleted after {wait:g} s:"
                f" `quorate describe {found.singular} {name}` shows the reason"
            )
        time.sleep(POLL_S)
    console.print(f"{found.singular}/{name} is being deleted")


def status(
    server: ServerOption = None,
    folder: FolderOption = DEFAULT_FOLDER,
    watch: WatchOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show agents, zones and running migrations."""
    view = StatusView()
    processes = None if server else ClusterFolder(folder)
    if as_json:
        typer.echo(status_json(_states(_api(server, folder)), processes))
        return
    show(lambda: _look(view, _api(server, folder), processes), watch, console)


def validate(
    zone: ZoneArgument,
    level: LevelOption = ValidationLevel.ROWS,
    mode: ModeOption = ValidationMode.LIVE,
    report: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|FOLDER/",
            help="File to which the verdict is written as JSON; or a folder, for JSON and a page.",
        ),
    ] = None,
    keys: KeyNamesOption = KeyNames.ESCAPED,
    limit: LimitOption = None,
    server: ServerOption = None,
    folder: FolderOption = DEFAULT_FOLDER,
    as_json: JsonOption = False,
) -> None:
    """Check that all copies of a zone agree.

    In mode idle nothing may be written meanwhile; if anything is, that is told, and nothing proven.

    The exit code is 0 if they agree, 1 if they differ, 2 if that could not be determined.
    """
    try:
        if server is None:  # elsewhere, stopped agents are found only by asking them in vain
            check_all_run(ClusterFolder(folder))
        api = _api(server, folder)
        command, history = zone_validation(api, zone, level.value, folder, report)
        command += ["--mode", mode.value, "--keys", keys.value, *limit_words(limit)]
        if as_json:
            command.append("--json")
        elif console.is_terminal and level is ValidationLevel.ROWS:
            console.print(
                "Spark starts and reads every copy, in half a minute or more …", style="dim"
            )
        code = run_validation(command, history=history)
    except Problem as problem:
        raise Problem(str(problem), 2) from problem  # 1 would say that copies differ
    raise typer.Exit(code)


@debug.command()
def damage(
    zone: ZoneArgument,
    key: Annotated[str, typer.Argument(metavar="KEY")],
    agent: Annotated[str, typer.Option(help="Agent whose copy is damaged.")],
    value: Annotated[
        str, typer.Option(help="Value to write into the copy.")
    ] = "damaged on purpose",
    folder: FolderOption = DEFAULT_FOLDER,
) -> None:
    """Overwrite one key in one copy, bypassing replication.

    Needs `quorate dev up --debug-commands`.  `quorate validate` then reports exactly that key.
    """
    cluster = dev_cluster(folder)
    cluster.check_known(agent)
    address = cluster.folder.agent_address(agent)
    if address is None:
        raise Problem(f"{agent} is not running: start it with `quorate dev start {agent}`")
    name = cluster.folder.read().cluster
    asked = asked_agent(cluster.folder, name, address)
    damage_copy(asked, zone, os.fsencode(key), os.fsencode(value))
    console.print(f"{agent}: its copy of {key} in zone {zone} now differs from the others")


COMMANDS: tuple[Callable[..., None], ...] = (apply, get, describe, delete, status, validate)


def check_all_run(folder: ClusterFolder) -> None:
    """Raise Problem unless all processes run: the copies of a stopped agent are unknown."""
    stopped = not_running(folder)
    if stopped:
        raise Problem("; ".join(stopped))


def zone_validation(
    api: OperatorApi, zone: str, level: str, folder: Path, report: Path | str | None
) -> tuple[list[str], ZoneHistory]:
    """Return the command line that validates a declared zone, and the zone's past."""
    whole = resources.fetch(api, ZONE, zone)
    spec = resources.zone(whole).spec
    cluster = spec.cluster_ref.name
    agents = resources.cluster(resources.fetch(api, STORAGE_CLUSTER, cluster)).spec.dialed
    command = validation_command(
        zone,
        cluster,
        ClusterFolder(folder).secret_file(cluster),
        agents,
        level,
        ClusterFolder(folder).work,
        report,
        spec.partitions,
        spec.replicas,
    )
    return command, history_of(resources.zone(whole).status, time_text(time.time_ns() // 1_000_000))


def wait_until_available(api: OperatorApi, zone: str, seconds: float) -> None:
    """Wait until every partition of the zone serves; raise Problem with its condition if late."""
    deadline = time.monotonic() + seconds
    with Live(console=console, auto_refresh=False, transient=True) as live:
        view = StatusView()
        while True:
            found = resources.zone(resources.fetch(api, ZONE, zone))
            condition = next((c for c in found.status.conditions if c.type == "Available"), None)
            fresh = found.status.observed_generation >= found.metadata.generation
            if fresh and condition is not None and condition.status == "True":
                return
            if time.monotonic() > deadline:
                said = (
                    condition.message
                    if condition is not None
                    else "the operator has not reported its state"
                )
                raise Problem(f"zone {zone!r} is not Available after {seconds:g} s: {said}")
            live.update(_look(view, api), refresh=True)
            time.sleep(POLL_S)


def _look(
    view: StatusView, api: OperatorApi, processes: ClusterFolder | None = None
) -> RenderableType:
    stopped = not_running(processes) if processes is not None else ()
    return Group(view.render(_states(api)), *(Text(each, "red") for each in stopped))


def _states(api: OperatorApi) -> list[ClusterState]:
    clusters = [resources.name_of(whole) for whole in resources.fetch_all(api, STORAGE_CLUSTER)]
    return [fetch_state(api, cluster) for cluster in clusters]


def _objects(api: OperatorApi, kind: Kind, name: str | None) -> list[Whole]:
    return resources.fetch_all(api, kind) if name is None else [resources.fetch(api, kind, name)]


def _known(api: OperatorApi, manifest: Manifest) -> Whole | None:
    try:
        return api.get(object_path(manifest.kind.plural, manifest.name), Whole)
    except NotThere:
        return None


def what_changes(manifest: Manifest, before: Whole | None) -> str:
    """Return "created", "unchanged", or which fields, labels and annotations get which values."""
    if before is None:
        return "created"
    model = manifest.kind.model
    old, new = _declared(model.parse_stored(before)), _declared(model.parse(manifest.body))
    if _IMPORT_NOTE not in new:
        old.pop(_IMPORT_NOTE, None)  # the operator keeps it
    changes = [
        f"{field}: {old.get(field)} -> {new.get(field)}"
        for field in dict.fromkeys([*old, *new])
        if old.get(field) != new.get(field)
    ]
    return f"changed ({', '.join(changes)})" if changes else "unchanged"


def _declared(of: "Resource") -> dict[str, object]:
    """Return the fields of the spec, the labels and the annotations, as messages name them."""
    dumped = of.model_dump(mode="json", by_alias=True, exclude_none=True)
    fields: dict[str, object] = dumped["spec"]
    for what in ("label", "annotation"):
        given = dumped["metadata"][f"{what}s"]
        fields |= {f"{what} {name}": value for name, value in given.items()}
    return fields
