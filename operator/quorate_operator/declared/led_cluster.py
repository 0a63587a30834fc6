"""One StorageCluster that is led, on Kubernetes and without it: what is declared is handed to its
master, data of deleted zones is erased, and the status of its objects is made.

`look` observes the whole cluster once and says what has changed.  A status that is made then
describes its object as it was declared last: the zone, or the cluster, is observed again for it.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from quorate.facts.zone import ZoneRecord
from quorate.protocol.status import ClusterStatus
from quorate.protocol.status import ZoneStatus as Observed
from quorate.wire.storage_cluster import StorageCluster, StorageClusterStatus
from quorate.wire.zone import Zone, ZoneStatus
from quorate_operator import names
from quorate_operator.declared.acceptance import Acceptance, accept, paused_acceptance
from quorate_operator.declared.drains import DeclaredDrains, DrainView
from quorate_operator.declared.object_status import Seen, cluster_status, zone_status
from quorate_operator.mastership.runner import STARTING, Runner
from quorate_operator.owned.owned_objects import ManagedView
from quorate_operator.process.clock import rfc3339

_log = logging.getLogger("quorate.declared")


class Change(NamedTuple):
    """Changes since the last look.  `zones`: uids of zones whose status has changed."""

    cluster: bool
    zones: list[str]
    all_zones: bool
    """Something that the status of every zone depends on has changed."""


class LedCluster:
    """One StorageCluster with its runner.

    A zone's `uid` is the id under which the metastore has it.
    """

    def __init__(self, cluster: StorageCluster, runner: Runner) -> None:
        self.cluster = cluster
        """The StorageCluster as it was declared last, with the status that was told last."""
        self.runner = runner
        self.pause = ""
        """Why its spec is not looked at; empty while it is."""
        self.addresses = cluster.status.addresses or cluster.spec.dialed
        """The addresses that are dialed; at first those of an earlier master, for one that is
        paused."""
        self.managed: ManagedView | None = None
        """The known state of the objects of managed agents."""
        self._drains = DeclaredDrains(runner, cluster.status.drained)
        self._drain_view = DrainView(asked=tuple(cluster.status.drained))
        self.seen = Seen(problem=STARTING)
        """As of the last look."""
        self._zones: dict[str, Observed] = {}

    # --- what is declared ------------------------------------------------------------------------

    def declare(self, cluster: StorageCluster, pause: str) -> None:
        """Dial the declared addresses, or, while it is paused, those that were in force."""
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
        """Judge a zone, and have the master lead it as it is declared, unless it is paused."""
        known = self.runner.known_zone(uid)
        acceptance = accept(zone, True, known)
        if pause:
            return paused_acceptance(acceptance, known, pause)
        if acceptance.record is not None and self.has_data(zone, acceptance):
            self.runner.set_zone(msgspec.structs.replace(acceptance.record, uid=uid))
        return acceptance

    def has_data(self, zone: Zone, acceptance: Acceptance) -> bool:
        """Whether what is led under a zone's id is its own, as far as is known: only the metastore
        tells which data a zone has.  One that is being deleted was asked about before."""
        is_its = acceptance.record is not None and acceptance.reason != names.REASON_DATA_DIFFERS
        return is_its and self.runner.is_leading and zone.metadata.deletion_timestamp is None

    def is_erased(self, record: ZoneRecord | None) -> bool:
        """Delete the data of a zone that is being deleted, None where it has none; whether nothing
        of it is left where an agent is online."""
        if not self.runner.is_leading:
            return False
        if record is not None:
            self.runner.set_zone(msgspec.structs.replace(record, deleting=True))
            if not self.runner.is_zone_gone(record.uid):
                return False
            self.runner.forget_zone(record.uid)
        return True

    def erase_all_but(self, declared: Collection[str], why: str) -> bool:
        """Delete the data of all zones but those with these uids; whether nothing of it is left
        where an agent is online."""
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
    def named(self) -> frozenset[str]:
        """Zones of managed agents to which a Service leads."""
        return self.managed.named if self.managed is not None else frozenset()

    def _lacks_name(self, zone: Zone) -> bool:
        """Whether clients have no name yet at which to start.  One that was available before has:
        its Service is put right when somebody deletes it."""
        was = {each.type: each.status for each in zone.status.conditions}
        is_managed = self.cluster.spec.managed is not None
        is_new = was.get(names.CONDITION_AVAILABLE) != "True"
        return is_managed and is_new and zone.metadata.name not in self.named

    # --- what is observed ------------------------------------------------------------------------

    @property
    def is_seen(self) -> bool:
        """Whether a look has shown more than that it is about to be led."""
        return self.seen.problem != STARTING

    def look(self) -> Change:
        """Observe everything once."""
        self._drain_view = self._drains.look()
        before, seen = self.seen, self._now()
        changed: list[str] = []
        if seen.status is not before.status:
            known, zones = self._zones, {zone.uid: zone for zone in seen.status.zones}
            changed = [uid for uid in known | zones if known.get(uid) != zones.get(uid)]
            self._zones = zones
        self.seen = seen
        is_of_cluster = seen._replace(status=before.status) != before
        is_of_cluster |= seen.status.nodes != before.status.nodes
        return Change(is_of_cluster, changed, _shared(seen) != _shared(before))

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
        """The status of its object, which is `cluster`, as of now.  `identity`: of this process;
        `retained`: names of zones without an object."""
        self._drain_view = self._drains.look()  # the last look may have been before this spec
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
        """The status of a Zone, which was declared just before, as of now: the last look may have
        been made before its master worked with this spec."""
        return zone_status(
            zone,
            acceptance,
            self.runner.zone_status(uid),
            self.seen._replace(problem=self.runner.problem),
            rfc3339(),
            pause,
            self.runner.refusal(uid),
            self._lacks_name(zone),
        )


L = TypeVar("L", bound=LedCluster)


class LedClusters(dict[str, L]):
    """The clusters that this process leads, by name."""

    def statuses(self, namespace: str) -> list[tuple[str, str, ClusterStatus]]:
        """`namespace`, name and status of every led cluster, by name."""
        return [(namespace, name, led.runner.status()) for name, led in sorted(self.items())]

    def problems(self) -> list[str]:
        """Why clusters are not led, or what is decided of them cannot be written."""
        return [
            f"cluster {led.runner.cluster}: {led.runner.not_ready}"
            for _, led in sorted(self.items())
            if led.runner.not_ready
        ]

    async def end(self, *ended: str) -> None:
        """Lead these no more: their agents keep what they have."""
        for name in ended:
            await self.pop(name).runner.stop()

    async def close(self) -> None:
        """Lead nothing more."""
        led = list(self.values())
        self.clear()
        await asyncio.gather(*(each.runner.stop() for each in led))


def _shared(seen: Seen) -> object:
    """The parts of an observation that the status of every zone depends on."""
    places = [(node.name, node.address, node.external_host) for node in seen.status.nodes]
    return seen.problem, seen.recovery, seen.refusal, places
