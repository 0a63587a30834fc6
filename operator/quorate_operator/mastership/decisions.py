"""Turns the master's decisions into Kubernetes Events, gathered so that few are created.

Losing a node changes hundreds of rows for one reason; a user of `kubectl describe` needs that
reason and the count, not hundreds of lines.  Routine events, which every migration causes, are
gathered for longer: moving thousands of partitions takes minutes.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

from quorate.protocol.messages.events import ROUTINE, Event, Reason
from quorate.wire.schema.resource import API_VERSION
from quorate_operator import names
from quorate_operator.kube.api import ApiRefused

_log = logging.getLogger("quorate.events")

MESSAGE_MAX = 1024
ROUTINE_S = 10.0

_Key = tuple[str, str, Reason]  # zone, kind, reason


class About(NamedTuple):
    """The object that an Event is about."""

    kind: str
    name: str
    uid: str


class Decisions:
    """Gathers events of one cluster."""

    def __init__(self) -> None:
        self._gathered: dict[_Key, list[Event]] = {}
        self._told_s: dict[_Key, float] = {}  # when a routine event was last told

    def __bool__(self) -> bool:
        """Return whether anything is gathered, including events that may wait."""
        return bool(self._gathered)

    def add(self, event: Event) -> None:
        """Add one event."""
        self._gathered.setdefault(_key(event), []).append(event)

    def take(
        self, cluster: About, zones: Mapping[str, About], namespace: str, time: str, now_s: float
    ) -> list[dict[str, Any]]:
        """Return the bodies of Events to create now; events that may wait stay gathered.

        `time` is written into them; `now_s`: of any monotonic clock.
        """
        self._told_s = {key: told for key, told in self._told_s.items() if now_s - told < ROUTINE_S}
        due = [key for key in self._gathered if key not in self._told_s]
        self._told_s |= {key: now_s for key in due if key[2] in ROUTINE}
        bodies = []
        for key in due:
            zone, kind, reason = key
            message = summary(self._gathered.pop(key))
            bodies.append(_body(zones.get(zone, cluster), namespace, time, kind, reason, message))
        return bodies


async def tell_all(
    untold: deque[dict[str, Any]], create: Callable[[dict[str, Any]], Awaitable[object]]
) -> None:
    """Create an Event of each body, oldest first; those that could not be created stay.

    An Event refused as invalid is dropped: it would stay invalid and block all later ones.  An
    Event is created twice if only the answer was lost, because silence would be worse.
    """
    while untold:
        try:
            await create(untold[0])
        except ApiRefused as refused:
            if refused.status not in (400, 422):
                raise
            _log.error("an Event %s is dropped: %s", untold[0]["reason"], refused)
        untold.popleft()


def gather(events: Iterable[Event]) -> list[list[Event]]:
    """Group events by zone, kind and reason."""
    found: dict[_Key, list[Event]] = {}
    for event in events:
        found.setdefault(_key(event), []).append(event)
    return list(found.values())


def summary(events: list[Event]) -> str:
    """Return one sentence for several events of one reason."""
    first = events[0]
    place = f"partition {first.partition}: " if first.partition is not None else ""
    more = f" (and {len(events) - 1} more)" if len(events) > 1 else ""
    return f"{place}{first.message}"[: MESSAGE_MAX - len(more)] + more


def _key(event: Event) -> _Key:
    return event.zone, event.kind, event.reason


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
