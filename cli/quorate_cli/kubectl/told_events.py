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
    choice = _Choice(zone, cluster)
    waits_for, has_begun = "", False
    while True:
        try:
            found, revision = api.collection_from(path, fieldSelector=OF_OURS)
            known = zones(api, namespace)
            choice.learn(known)
            waits_for, has_begun = "", True
            yield from sorted(choice.news(found), key=lambda each: each.event.time)
            for each in known:
                if choice.has_zone(each):
                    yield state(each, api.now)
            while follow:
                for change in api.follow(path, revision, fieldSelector=OF_OURS):
                    whole: Any = change["object"]
                    revision = str(whole["metadata"]["resourceVersion"])
                    if change["type"] not in ("ADDED", "MODIFIED"):
                        continue
                    if choice.wants(told(whole)) is None:
                        choice.learn(zones(api, namespace))  # it was made since
                    yield from choice.news([whole])
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


class _Choice:
    """The events to tell: of `zone` and its cluster, or of `cluster` and its zones, or all."""

    def __init__(self, zone: Zone | None, cluster: str) -> None:
        self._zone = zone
        self._cluster = cluster
        self._clusters: dict[tuple[str, str], str] = {}
        """Namespace and name of a zone -> its cluster, also when the zone is deleted."""
        self._seen: set[tuple[str, str]] = set()

    def learn(self, zones: Iterable[Zone]) -> None:
        """Note the clusters of these zones."""
        for each in zones:
            place = each.metadata.namespace, each.metadata.name
            self._clusters[place] = each.spec.cluster_ref.name

    def has_zone(self, zone: Zone) -> bool:
        """Return whether the zone's state is to be told."""
        if self._zone is not None:
            return zone.metadata.uid == self._zone.metadata.uid
        return self._cluster in ("", zone.spec.cluster_ref.name)

    def news(self, found: Iterable[Whole]) -> list[Told]:
        """Return the events to tell that were not told yet.

        One of a zone that is not known is looked at again when it comes again.
        """
        news = []
        for whole in found:
            metadata: Any = whole["metadata"]
            which = str(metadata.get("uid")), str(metadata.get("resourceVersion"))
            each = told(whole)
            is_wanted = self.wants(each)
            if which in self._seen or is_wanted is None:
                continue
            self._seen.add(which)
            if is_wanted:
                news.append(each)
        return news

    def wants(self, each: Told) -> bool | None:
        """Return whether the event is to be told; None: its zone's cluster is not known."""
        name = each.event.zone
        if self._zone is not None:
            if name:
                return name == self._zone.metadata.name
            return each.cluster == self._zone.spec.cluster_ref.name
        if not self._cluster:
            return True
        if not name:
            return each.cluster == self._cluster
        cluster = self._clusters.get((each.namespace, name))
        return None if cluster is None else cluster == self._cluster


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
