"""One Zone object as the watch last showed it, and the status last written to it.

A change that a user would act on is written at once.  Progress of migrations is written every
PROGRESS_S at most, because a rebalance of many zones would keep the API server busy.  The last day
is written with anything else; alone only while the zone is short of copies or not served.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import pydantic

from quorate.facts.errors import WireError
from quorate.wire.schema.unknown_fields import without_unknown
from quorate.wire.zone import Zone, ZoneStatus
from quorate_operator.declared.acceptance import pause_of
from quorate_operator.declared.history.last_day import LASTING_S

PROGRESS_S = 5.0

Body = Mapping[str, Any]


class DeclaredZone:
    """One Zone object.  `zone`: None if the object cannot be read; `problem`: why."""

    def __init__(self, body: Body) -> None:
        self.released = asyncio.Event()
        """Set when nothing that the object's deletion waits for is left."""
        self.zone: Zone | None = None
        self.problem = ""
        self.fresh: dict[str, Any] = {}
        """The newest status, written or not."""
        self._told: dict[str, Any] | None = None
        self._told_s = float("-inf")
        self.body = body
        self._read()

    @property
    def uid(self) -> str:
        """The object's uid; a later object of the same name has another."""
        return str(self.body["metadata"]["uid"])

    @property
    def name(self) -> str:
        """The object's name."""
        return str(self.body["metadata"]["name"])

    @property
    def cluster(self) -> str:
        """The name of the StorageCluster that it is declared in."""
        return cluster_of(self.body)

    @property
    def since(self) -> str:
        """When the object was created, RFC 3339."""
        return str(self.body["metadata"].get("creationTimestamp") or "")

    @property
    def pause(self) -> str:
        """Why the object is paused (its spec is not acted on); empty if it is not."""
        return pause_of(Zone.kind_name(), self.zone.metadata) if self.zone is not None else ""

    @property
    def is_deleting(self) -> bool:
        """Whether the object's deletion was requested."""
        return self.body["metadata"].get("deletionTimestamp") is not None

    @property
    def is_waiting(self) -> bool:
        """Whether the object is being deleted, and something is left that this waits for."""
        return self.is_deleting and not self.released.is_set()

    def update(self, body: Body) -> bool:
        """Take the object as the watch shows it now; return whether users have changed it."""
        before, self.body = self.body, body
        is_changed = declared(before) != declared(body)
        if is_changed:
            self._read()
        return is_changed

    def _read(self) -> None:
        self.zone, self.problem = None, ""
        try:
            self.zone = Zone.parse_stored(self.body)
        except WireError as error:
            self.problem = str(error)

    @property
    def told(self) -> dict[str, Any] | None:
        """The status that the object has, as far as is known."""
        return self._told if self._told is not None else self.body.get("status")

    @told.setter
    def told(self, told: None) -> None:
        self._told = told

    @property
    def known_status(self) -> ZoneStatus:
        """The object's status (read_status), with the newest last day that is known."""
        told = self.told or {}
        day, written = self.fresh.get("lastDay"), told.get("lastDay")
        # Another operator that led the zone meanwhile knows more.
        if day is not None and day["watchedSince"] >= (written or {}).get("watchedSince", ""):
            told = {**told, "lastDay": day}
        return read_status(told)

    @property
    def is_told(self) -> bool:
        """Whether the object has the newest status, but for a last day that may wait."""
        if self.told is None or _lasting(self.told) != _lasting(self.fresh):
            return False
        is_old = time.monotonic() - self._told_s >= LASTING_S
        return not (is_old and self._is_day_to_write)

    @property
    def _is_day_to_write(self) -> bool:
        is_other = (self.told or {}).get("lastDay") != self.fresh.get("lastDay")
        return is_other and _is_lacking(self.fresh)

    def was_told(self, status: dict[str, Any]) -> None:
        """Note that the API server has stored `status`."""
        self._told, self._told_s = status, time.monotonic()

    def wait_s(self, status: ZoneStatus) -> float:
        """Note the newest status; return how many seconds writing it may wait.

        0.0: write it now, or it is already written.
        """
        self.fresh = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        told = self.told
        if told is not None and self.is_told and _is_lacking(self.fresh):
            if not self._is_day_to_write:
                return LASTING_S
            return max(self._told_s + LASTING_S - time.monotonic(), 0.0)
        if told is None or self.is_told or _to_act_on(told) != _to_act_on(self.fresh):
            return 0.0
        return max(self._told_s + PROGRESS_S - time.monotonic(), 0.0)


def cluster_of(body: Body) -> str:
    """Return the name of a Zone's StorageCluster, even if the Zone cannot be read."""
    return str(body.get("spec", {}).get("clusterRef", {}).get("name", ""))


def declared(body: Body) -> object:
    """Return the parts of an object that its users decide, for comparison."""
    metadata = body["metadata"]
    return (
        metadata["uid"],
        metadata.get("generation"),
        metadata.get("deletionTimestamp"),
        metadata.get("annotations"),
    )


def read_status(told: Mapping[str, Any]) -> ZoneStatus:
    """Return a Zone's status without fields of a later version.

    If it cannot be read, only `placedUid` is taken: that a zone was placed is never forgotten.
    """
    known = without_unknown(ZoneStatus, told).body
    try:
        return ZoneStatus.model_validate(known)
    except pydantic.ValidationError:
        return ZoneStatus(placed_uid=str(known.get("placedUid", "")))


def _lasting(status: Mapping[str, Any]) -> Mapping[str, Any]:
    return {field: value for field, value in status.items() if field != "lastDay"}


def _is_lacking(status: Mapping[str, Any]) -> bool:
    unserved = (status.get("partitions") or {}).get("unavailable")
    return bool(unserved or status.get("underReplicated"))


def _to_act_on(status: Mapping[str, Any]) -> object:
    conditions = [
        (each.get("type"), each.get("status"), each.get("reason"))
        for each in status.get("conditions", [])
    ]
    return (
        conditions,
        status.get("placedUid"),
        status.get("phase"),
        status.get("observedGeneration"),
        status.get("dataNodes"),
        status.get("endpoints"),
    )
