"""How the master's decisions become Kubernetes Events: gathered for a moment, then told in few.

Losing a node changes hundreds of rows for one reason; whoever runs `kubectl describe` needs that
reason and the count, not hundreds of lines.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from quorate.protocol.events import Event
from quorate.wire.resource import API_VERSION
from quorate_operator import names

MESSAGE_MAX = 1024


class About(NamedTuple):
    """The object that an Event is about."""

    kind: str
    name: str
    uid: str


class Decisions:
    """Gathers events of one cluster."""

    def __init__(self) -> None:
        self._gathered: dict[tuple[str, str, str], list[Event]] = {}

    def add(self, event: Event) -> None:
        """One more."""
        key = (event.zone, event.kind, event.reason)
        self._gathered.setdefault(key, []).append(event)

    def take(
        self, cluster: About, zones: Mapping[str, About], namespace: str, time: str
    ) -> list[dict[str, Any]]:
        """Bodies of Events to create; empties what was gathered."""
        gathered, self._gathered = self._gathered, {}
        return [
            _body(zones.get(zone, cluster), namespace, time, kind, reason, _message(events))
            for (zone, kind, reason), events in gathered.items()
        ]


def _message(events: list[Event]) -> str:
    first = events[0]
    place = f"partition {first.partition}: " if first.partition is not None else ""
    more = f" (and {len(events) - 1} more)" if len(events) > 1 else ""
    return f"{place}{first.message}"[: MESSAGE_MAX - len(more)] + more


def _body(
    about: About, namespace: str, time: str, kind: str, reason: str, message: str
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{about.name}.", "namespace": namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": about.kind,
            "name": about.name,
            "namespace": namespace,
            "uid": about.uid,
        },
        "type": kind,
        "reason": reason,
        "message": message,
        "source": {"component": names.FIELD_MANAGER},
        "reportingComponent": names.FIELD_MANAGER,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }
