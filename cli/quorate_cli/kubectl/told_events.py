"""Converts Kubernetes Events on clusters and zones into the events that `quorate events` prints."""

import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import typer

from quorate.protocol.messages.events import STATE, ToldEvent, ZoneState
from quorate.protocol.status import PHASE_UNKNOWN
from quorate.wire.schema.resource import API_VERSION
from quorate.wire.zone import Zone
from quorate_cli.commands.events import print_line
from quorate_cli.kubectl.declared_state import sentence
from quorate_cli.kubectl.kube_api import Expired, KubeApi, Unreached, core_path
from quorate_cli.kubectl.objects import zones
from quorate_cli.objects.resources import Whole

OF_OURS = f"involvedObject.apiVersion={API_VERSION}"
RETRY_S = 0.5


class Told:
    """An event, the namespace of its object, and how often it was told."""

    def __init__(self, event: ToldEvent, namespace: str, cluster: str = "", count: int = 1) -> None:
        self.event = event
        self.namespace = namespace
        self.cluster = cluster
        """Set for an event that concerns no zone."""
        self.count = count


def told(whole: Whole) -> Told:
    """Return the event of one Kubernetes Event."""
    event: dict[str, Any] = whole
    about = event["involvedObject"]
    is_of_zone = about.get("kind") == Zone.kind_name()
    return Told(
        ToldEvent(
            0,
            _time(event),
            str(event.get("type") or "Normal"),
            str(event.get("reason") or ""),
            str(event.get("message") or ""),
            str(about.get("name")) if is_of_zone else "",
        ),
        str(about.get("namespace") or ""),
        "" if is_of_zone else str(about.get("name")),
        int(event.get("count") or (event.get("series") or {}).get("count") or 1),
    )


def state(zone: Zone, now: datetime) -> Told:
    """Return the state of a zone as an event, for readers that may have missed events."""
    status = zone.status
    counts = status.partitions
    made = ZoneState(
        status.phase, counts.total, counts.available, counts.degraded, counts.unavailable, 0,
        status.migrations.running, (), status.migrations.queued,
    )  # fmt: skip
    at = now.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    is_unknown = status.phase == PHASE_UNKNOWN
    kind = "Warning" if counts.unavailable or is_unknown else "Normal"
    message = f"{status.phase}: {sentence(zone)}"
    event = ToldEvent(0, at, kind, STATE, message, zone.metadata.name, state=made)
    return Told(event, zone.metadata.namespace)


def show(each: Told, as_json: bool, with_namespace: bool) -> None:
    """Print one event.  A Kubernetes Event has a count instead of a sequence."""
    if as_json:
        made = msgspec.to_builtins(each.event)
        del made["sequence"]
        if each.event.state is not None:
            del made["state"]["lost"]  # no custom resource has this number
        made = {"namespace": each.namespace, "count": each.count, **made}
        typer.echo(msgspec.json.encode(made))
        return
    event = each.event
    if with_namespace and event.zone:
        event = msgspec.structs.replace(event, zone=f"{each.namespace}/{event.zone}")
    elif with_namespace:
        event = msgspec.structs.replace(event, message=f"{each.namespace}: {event.message}")
    print_line(event, f"  (x{each.count})" if each.count > 1 else "")


def read(
    api: KubeApi, namespace: str, zone: Zone | None, follow: bool, cluster: str = ""
) -> Iterator[Told]:
    """Yield past events, then the state of each zone.

    With `follow`, yield new events too, and the state again if something may have been missed.
    `zone`: only of it and its cluster; `cluster`: only of it and its zones.
    """
    path = core_path("events", namespace)
    seen: set[tuple[str, str]] = set()
    waits_for, has_begun = "", False
    while True:
        try:
            found, revision = api.collection_from(path, fieldSelector=OF_OURS)
            known = zones(api, namespace)
            waits_for, has_begun = "", True
            wanted = {
                (each.metadata.namespace, each.metadata.name)
                for each in known
                if not cluster or each.spec.cluster_ref.name == cluster
            }
            news = sorted(_unseen(found, seen), key=lambda each: each.event.time)
            yield from _of(news, zone, cluster, wanted)
            for each in known:
                is_wanted = (each.metadata.namespace, each.metadata.name) in wanted
                if is_wanted and (zone is None or each.metadata.uid == zone.metadata.uid):
                    yield state(each, api.now)
            while follow:
                for change in api.follow(path, revision, fieldSelector=OF_OURS):
                    whole: Any = change["object"]
                    revision = str(whole["metadata"]["resourceVersion"])
                    if change["type"] in ("ADDED", "MODIFIED"):
                        yield from _of(_unseen([whole], seen), zone, cluster, wanted)
                time.sleep(RETRY_S)
        except Expired:
            continue  # the state contains what was missed
        except Unreached as problem:
            if not follow or not has_begun:
                raise
            if str(problem) != waits_for:
                waits_for = str(problem)
                typer.echo(f"quorate: {problem}; retrying", err=True)
            time.sleep(RETRY_S)
        else:
            return


def _unseen(found: Iterable[Whole], seen: set[tuple[str, str]]) -> list[Told]:
    """Return the events that are told for the first time."""
    news = []
    for whole in found:
        metadata: Any = whole["metadata"]
        which = str(metadata.get("uid")), str(metadata.get("resourceVersion"))
        if which not in seen:
            seen.add(which)
            news.append(told(whole))
    return news


def _of(
    events: Iterable[Told], zone: Zone | None, cluster: str, zones_of: set[tuple[str, str]]
) -> Iterator[Told]:
    for each in events:
        if zone is not None:
            is_wanted = each.event.zone == zone.metadata.name or (
                not each.event.zone and each.cluster == zone.spec.cluster_ref.name
            )
        else:
            is_wanted = (
                not cluster
                or each.cluster == cluster
                or (each.namespace, each.event.zone) in zones_of
            )
        if is_wanted:
            yield each


def _time(event: dict[str, Any]) -> str:
    series = event.get("series") or {}
    for found in (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    ):
        if found:
            return str(found)
    return ""
