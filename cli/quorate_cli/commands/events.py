"""`quorate events`: past events of a cluster, and new ones as they come."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated
from urllib.parse import urlencode

import msgspec
import typer

from quorate.protocol.messages.events import EventPage, ToldEvent
from quorate.protocol.status import PHASE_UNKNOWN
from quorate_cli.commands.objects import ServerOption
from quorate_cli.dev.commands import FolderOption, dev_cluster
from quorate_cli.objects import resources
from quorate_cli.objects.operator_api import NotReady, NotThere, OperatorApi, parse_server
from quorate_cli.processes.cluster_folder import DEFAULT_FOLDER, ClusterFolder
from quorate_cli.terminal.options import ClusterOption, JsonLinesOption, ZoneFilter
from quorate_cli.terminal.problem import Problem

WAIT_S = 20
ANSWER_S = WAIT_S + 10.0
RETRY_S = 0.25
NO_SENTENCE = "HTTP status"
"""Part of the message if an answer has no sentence: then no embedded operator has answered."""
ON_KUBERNETES = "on Kubernetes, use `kubectl quorate events`"


def events(
    zone: ZoneFilter = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Show the current state, then new events, until Ctrl-C."
        ),
    ] = False,
    as_json: JsonLinesOption = False,
    cluster: ClusterOption = "",
    server: ServerOption = None,
    folder: FolderOption = DEFAULT_FOLDER,
) -> None:
    """Show recent events (joins, losses, migrations) and the current state of the zones.

    `--follow` shows the current state first, and again whenever events may have been missed, for
    example after a restart of the operator.  On Kubernetes, use `kubectl quorate events`.
    """

    def connect() -> OperatorApi:
        found = parse_server(server, ClusterFolder(folder)) if server else dev_cluster(folder).api()
        return OperatorApi(found.host, found.port, ANSWER_S, found.token)

    if not server and not ClusterFolder(folder).exists():
        raise Problem(
            f"folder {folder.absolute()} has no cluster: create one with `quorate dev up`, or name"
            f" another folder with --folder; {ON_KUBERNETES}"
        )
    with until_nobody_reads():
        try:
            asked = _asked(connect(), zone, cluster)
        except NotThere as problem:
            if NO_SENTENCE not in str(problem):
                raise
            raise Problem(
                f"--server {server} is not an embedded operator; {ON_KUBERNETES}"
            ) from None
        pages = _follow(connect, asked) if follow else iter([_page(connect(), asked, after=0)])
        for page in pages:
            for event in page.events:
                _print(event, as_json)


@contextmanager
def until_nobody_reads() -> Iterator[None]:
    """End without an error when the reader (`| head`) has closed the pipe."""
    try:
        yield
    except BrokenPipeError:
        # Keeps Python from flushing into the pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _asked(api: OperatorApi, zone: str | None, cluster: str) -> dict[str, str]:
    """Return the query parameters that say what is asked about."""
    if zone is not None:
        its = resources.zone(resources.fetch(api, resources.ZONE, zone)).spec.cluster_ref.name
        if cluster and cluster != its:
            raise Problem(
                f"zone {zone!r} belongs to cluster {its!r}, not {cluster!r}: omit --cluster"
            )
        return {"cluster": its, "zone": zone}
    if cluster:
        return {
            "cluster": resources.name_of(resources.fetch(api, resources.STORAGE_CLUSTER, cluster))
        }
    known = [
        resources.name_of(each) for each in resources.fetch_all(api, resources.STORAGE_CLUSTER)
    ]
    if len(known) != 1:
        if not known:
            raise Problem("no cluster is declared: create one with `quorate dev up`")
        raise Problem(f"there are several clusters: name one with --cluster: {', '.join(known)}")
    return {"cluster": known[0]}


def _page(api: OperatorApi, asked: dict[str, str], **more: int) -> EventPage:
    return api.get(f"/events?{urlencode({**asked, **more})}", EventPage)


def _follow(connect: Callable[[], OperatorApi], asked: dict[str, str]) -> Iterator[EventPage]:
    """Yield the state, then every event, endlessly.

    While the operator is away, wait for it.  A restarted operator sends its state, which covers
    what was missed.
    """
    after: dict[str, int] = {}
    waits_for = ""
    while True:
        try:
            page = _page(connect(), asked, **after)
        except NotThere:
            raise  # the zone or the cluster was deleted
        except Problem as problem:
            if not after and not isinstance(problem, NotReady):
                raise
            if str(problem) != waits_for:
                waits_for = str(problem)
                typer.echo(f"quorate: {problem}; retrying", err=True)
            time.sleep(RETRY_S)
            continue
        waits_for = ""
        yield page
        after = {"after": page.next, "wait": WAIT_S}


def _print(event: ToldEvent, as_json: bool) -> None:
    if as_json:
        typer.echo(msgspec.json.encode(event))
    else:
        print_line(event)


def print_line(event: ToldEvent, more: str = "") -> None:
    """Print one event for people, followed by `more`."""
    typer.secho(line(event) + more, fg="red" if event.kind == "Warning" else None)


def line(event: ToldEvent) -> str:
    """Return the event for people, in one line."""
    place = event.zone if event.partition is None else f"{event.zone}/{event.partition}"
    parts = [event.time, event.reason, *([place] if place else []), event.message]
    state = event.state
    if state is not None and state.phase == PHASE_UNKNOWN:
        parts.append(f"(the states of its {state.partitions} partitions are not known)")
    elif state is not None:
        parts.append(
            f"({state.available} of {state.partitions} partitions served fully, {state.degraded}"
            f" degraded, {state.unavailable} without primary, {state.lost} lost;"
            f" {state.migrations_running} migrations)"
        )
    return "  ".join(parts)
