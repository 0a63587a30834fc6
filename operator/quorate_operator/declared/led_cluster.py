"""One StorageCluster that is led, with or without Kubernetes.

It hands declarations to the cluster's master, erases the data of deleted zones, and makes the
status of the objects.  `look` observes the whole cluster once and returns what has changed.  A
status made afterwards describes its object as last declared: the zone, or the cluster, is observed
again for it.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from quorate.facts.zone import ZoneRecord
from quorate.protocol.status import ZoneStatus as Observed
from quorate.wire.storage_cluster import StorageCluster, StorageClusterStatus
from quorate.wire.zone import Zone, ZoneStatus, importing_of
from quorate.wire.zone_day import ZoneDay
from quorate_operator import names
from quorate_operator.declared.acceptance import Acceptance, accept, paused_acceptance
from quorate_operator.declared.drains import DeclaredDrains, DrainView
from quorate_operator.declared.history.last_day import LastDay, Stored
from quorate_operator.declared.object_status import Seen, cluster_status, zone_status
from quorate_operator.mastership.runner import STARTING, Runner
from quorate_operator.owned.children import client_service_name
from quorate_operator.owned.owned_objects import ManagedView
from quorate_operator.process.clock import Clock, rfc3339
from quorate_operator.process.metrics import Led

_log = logging.getLogger("quorate.declared")


class Change(NamedTuple):
    """Changes since the last look.  `zones`: uids of zones whose status has changed."""

    cluster: bool
    zones: list[str]
    all_zones: bool
    """Whether something has changed that the status of every zone depends on."""


class LedCluster:
    """One StorageCluster with its runner.  A zone's `uid` is its id in the metastore."""

    def __init__(self, cluster: StorageCluster, runner: Runner) -> None:
        self.cluster = cluster
        """The StorageCluster as last declared, with the status last written."""
        self.runner = runner
        self.pause = ""
        """Why the cluster is paused (its spec is not acted on); empty if it is not."""
        self.addresses = cluster.status.addresses or cluster.spec.dialed
        """The dialed addresses; at first those an earlier master told, for a paused cluster."""
        self.managed: ManagedView | None = None
        """The known state of the objects of managed agents."""
        self._drains = DeclaredDrains(runner, cluster.status.drained)
        self._drain_view = DrainView(asked=tuple(cluster.status.drained))
        self.seen = Seen(problem=STARTING)
        """The observation of the last look."""
        self._zones: dict[str, Observed] = {}
        self._clock = Clock()
        self._days: dict[str, LastDay] = {}

    # --- what is declared ------------------------------------------------------------------------

    def declare(self, cluster: StorageCluster, pause: str) -> None:
        """Dial the declared addresses; while paused, keep those in force."""
        self.cluster = cluster.model_copy(update={"status": self.cluster.status})
        self.pause = pause
        if cluster.spec.managed is not None:
            if self.managed is not None:
                self.addresses = self.managed.addresses
        elif not pause:
            self.addresses = cluster.spec.dialed
        if not pause:
            self._drains.declare(cluster.spec.drain_agents)
        self.runner.set_addresses(self.addresses)

    def declare_zone(self, zone: Zone, uid: str, pause: str) -> Acceptance:
        """Judge a zone; unless it is paused, have the master lead it as declared."""
        known = self.runner.known_zone(uid)
        acceptance = accept(zone, True, known)
        if pause:
            return paused_acceptance(acceptance, known, pause)
        if acceptance.record is not None and self.has_data(zone, acceptance):
            importing = importing_of(zone, known.importing if known is not None else "")
            record = msgspec.structs.replace(acceptance.record, uid=uid, importing=importing)
            self.runner.set_zone(record)
        return acceptance

    def has_data(self, zone: Zone, acceptance: Acceptance) -> bool:
        """Return whether the data led under a zone's id is known to be this zone's.

        Only the metastore tells which data a zone has.  False for a zone that is being deleted:
        that was settled before.
        """
        is_its = acceptance.record is not None and acceptance.reason != names.REASON_DATA_DIFFERS
        return is_its and self.runner.is_leading and zone.metadata.deletion_timestamp is None

    def is_erased(self, record: ZoneRecord | None) -> bool:
        """Delete a zone's data; return whether none is left where an agent is online.

        `record`: None if the zone has no data.
        """
        if not self.runner.is_leading:
            return False
        if record is not None:
            self.runner.set_zone(msgspec.structs.replace(record, deleting=True))
            if not self.runner.is_zone_gone(record.uid):
                return False
            self.runner.forget_zone(record.uid)
        return True

    def erase_all_but(self, declared: Collection[str], why: str) -> bool:
        """Delete the data of all zones but those with these uids.

        Return whether none of it is left where an agent is online.
        """
        if not self.runner.is_leading:
            return False
        undeclared = [e for uid, e in self.runner.known_zones().items() if uid not in declared]
        for record in undeclared:
            if not record.deleting:
                name = self.runner.cluster
                _log.warning("cluster %s %s: deleting data of zone %s", name, why, record.name)
                self.runner.set_zone(msgspec.structs.replace(record, deleting=True))
        return all(self.runner.is_zone_gone(record.uid) for record in undeclared)

    @property
    def named(self) -> tuple[frozenset[str], Mapping[str, str]]:
        """Zones of managed agents to which a Service leads, and others with the reason."""
        if self.managed is None:
            return frozenset(), {}
        return self.managed.named, self.managed.unnamed

    def _lacks_name(self, zone: Zone) -> str:
        """Return why clients have no name to start at yet; empty if they have.

        So it is for a zone that was available before: if its Service is deleted, it is made again.
        """
        zones, unnamed = self.named
        was = {each.type: each.status for each in zone.status.conditions}
        is_managed = self.cluster.spec.managed is not None
        is_new = was.get(names.CONDITION_AVAILABLE) != "True"
        if not is_managed or not is_new or zone.metadata.name in zones:
            return ""
        service = client_service_name(zone.metadata.name)
        return unnamed.get(zone.metadata.name, f"Service {service} is not created yet")

    # --- what is observed ------------------------------------------------------------------------

    @property
    def is_seen(self) -> bool:
        """Whether a look has shown more than that the cluster is about to be led."""
        return self.seen.problem != STARTING

    def look(self) -> Change:
        """Observe the whole cluster once; return what has changed."""
        self._drain_view = self._drains.look()
        before, seen = self.seen, self._now()
        changed: list[str] = []
        if seen.status is not before.status:
            known, zones = self._zones, {zone.uid: zone for zone in seen.status.zones}
            changed = [uid for uid in known | zones if known.get(uid) != zones.get(uid)]
            self._zones = zones
            self._note_days(changed)
        self.seen = seen
        is_of_cluster = seen._replace(status=before.status) != before
        is_of_cluster |= seen.status.nodes != before.status.nodes
        return Change(is_of_cluster, changed, _shared(seen) != _shared(before))

    def _note_days(self, changed: Collection[str]) -> None:
        """Note how zones that have changed are now; forget those that are gone."""
        for uid in changed:
            zone, day = self._zones.get(uid), self._days.get(uid)
            if day is not None and zone is not None:
                day.note(zone, self._clock.now())
            elif zone is None:
                self._days.pop(uid, None)

    def last_day(self, uid: str) -> ZoneDay | None:
        """Return the last 24 hours of a zone; None: nothing is known of it."""
        day = self._days.get(uid)
        return day.told(self._clock.now()) if day is not None else None

    def day_due(self, uid: str, stored: Stored, now_s: float) -> Stored | None:
        """Return what to note of a zone's last 24 hours when they are stored again, if they should
        be; `stored`: as noted before."""
        day = self._days.get(uid)
        return day.stored(now_s) if day is not None and day.is_due(stored, now_s) else None

    def _now(self) -> Seen:
        runner = self.runner
        return Seen(
            runner.status(),
            runner.problem,
            runner.unreached(),
            runner.refusal(),
            self._drain_view,
            dict(runner.dialing.kept),
            runner.recovery,
        )

    # --- what is told ----------------------------------------------------------------------------

    def status(
        self, cluster: StorageCluster, identity: str, retained: Sequence[str] = ()
    ) -> StorageClusterStatus:
        """Return the current status of the cluster's object, which is `cluster`.

        `identity`: of this process; `retained`: names of zones without an object.
        """
        self._drain_view = self._drains.look()  # the last look may predate this spec
        return cluster_status(
            cluster,
            self._now(),
            identity,
            rfc3339(),
            self.pause,
            self.addresses,
            retained,
            self.managed,
        )

    def zone_status(self, zone: Zone, uid: str, acceptance: Acceptance, pause: str) -> ZoneStatus:
        """Return the current status of a Zone that was just declared.

        It is observed again: the last look may predate the master's work with this spec.
        """
        observed = self.runner.zone_status(uid)
        if observed is not None:
            now = self._clock.now()
            day = self._days.get(uid)
            if day is None:
                day = self._days[uid] = LastDay(now, zone.status.last_day)
            day.note(observed, now)
            told = zone.status.model_copy(update={"last_day": day.told(now)})
            zone = zone.model_copy(update={"status": told})
        return zone_status(
            zone,
            acceptance,
            observed,
            self.seen._replace(problem=self.runner.problem),
            rfc3339(),
            pause,
            self.runner.refusal(uid),
            self._lacks_name(zone),
        )


L = TypeVar("L", bound=LedCluster)


class LedClusters(dict[str, L]):
    """The clusters that this process leads, by name."""

    def statuses(self, namespace: str) -> list[Led]:
        """Return every led cluster, sorted by name."""
        return [
            Led(
                namespace,
                name,
                led.runner.status(),
                led.runner.refusal() is not None,
                led.runner.is_broken,
            )
            for name, led in sorted(self.items())
        ]

    def problems(self) -> list[str]:
        """Return a sentence for each cluster that is not led or is blocked."""
        return [
            f"cluster {led.runner.cluster}: {led.runner.not_ready}"
            for _, led in sorted(self.items())
            if led.runner.not_ready
        ]

    async def end(self, *ended: str) -> None:
        """Stop leading these clusters; their agents keep their data."""
        for name in ended:
            await self.pop(name).runner.stop()

    async def close(self) -> None:
        """Stop leading all clusters."""
        led = list(self.values())
        self.clear()
        await asyncio.gather(*(each.runner.stop() for each in led))


def _shared(seen: Seen) -> object:
    """Return the parts of an observation that every zone's status depends on."""
    places = [(node.name, node.address, node.external_host) for node in seen.status.nodes]
    return seen.problem, seen.recovery, seen.refusal, places
