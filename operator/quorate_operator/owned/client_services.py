"""The Services `ZONE-clients` of one namespace: each name can be had by one of its clusters.

A cluster also serves kept data of zones whose object was deleted, so several clusters can serve a
zone of one name.  Its Service belongs to the cluster for which a Zone of that name is declared;
while there is no such Zone, to the cluster that has it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from quorate_operator.kube.api import ApiRefused
from quorate_operator.owned.apply import NOT_OURS, Applier, Failure
from quorate_operator.owned.children import client_service_name, has_same_port
from quorate_operator.owned.external_listener import ZonePort

Json = dict[str, Any]


class OfCluster(Protocol):
    """A declared Zone."""

    @property
    def cluster(self) -> str:
        """The name of the StorageCluster that it is declared in."""


class DeclaredNames(NamedTuple):
    """The StorageClusters and Zones of one namespace by name, as their watches show them now."""

    clusters: Mapping[str, Mapping[str, Any]]
    zones: Mapping[str, OfCluster]

    def cluster_of(self, zone: str) -> str:
        """Return the StorageCluster for which a Zone is declared.

        Empty if there is no Zone of that name, or no such StorageCluster.
        """
        declared = self.zones.get(zone)
        cluster = declared.cluster if declared is not None else ""
        return cluster if cluster in self.clusters else ""

    def controller_of(self, item: Json) -> str:
        """Return the StorageCluster that controls an object; empty if none that exists does."""
        owners = item["metadata"].get("ownerReferences") or ()
        uids = {each["uid"] for each in owners if each.get("controller")}
        found = (name for name, body in self.clusters.items() if body["metadata"]["uid"] in uids)
        return next(found, "")


async def unnamed_zones(
    cluster: str,
    zones: Sequence[ZonePort],
    declared: DeclaredNames,
    services: Mapping[str, Json],
    applier: Applier,
) -> dict[str, str]:
    """Return the zones whose Service another cluster has, each with a sentence on why.

    Only kept data is concerned: a zone whose Zone is declared for `cluster` gets its Service.
    `services`: those with the cluster's label, by name.
    """
    unnamed: dict[str, str] = {}
    for zone in filter(has_same_port, zones):
        owner = declared.cluster_of(zone.zone)
        if owner == cluster:
            continue
        kept = f"no Service leads to the data kept of an earlier Zone {zone.zone}"
        if owner:
            unnamed[zone.zone] = f"{kept}: Zone {zone.zone} is declared for StorageCluster {owner}"
            continue
        service = client_service_name(zone.zone)
        present = services.get(service) or await applier.find("Service", service)
        holder = declared.controller_of(present) if present is not None else ""
        if holder not in ("", cluster):
            unnamed[zone.zone] = (
                f"{kept}: Service {service} is that of StorageCluster {holder}; declare a"
                f" Zone {zone.zone} for this StorageCluster to have it"
            )
    return unnamed


def services_of_others(
    zones: Sequence[ZonePort], failed: Mapping[tuple[str, str], Failure]
) -> dict[str, str]:
    """Return the zones whose Service somebody else has made, each with a sentence on the way out.

    `failed`: what could not be applied, by kind and name.
    """
    found: dict[str, str] = {}
    for zone in zones:
        failure = failed.get(("Service", client_service_name(zone.zone)))
        if isinstance(failure, ApiRefused) and failure.reason == NOT_OURS:
            found[zone.zone] = str(failure)
    return found
