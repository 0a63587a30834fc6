"""Decides whether a declared object is acted on as it stands; if not, says why and what to do.

A zone may be one that cannot be led.  A Zone or a StorageCluster may be paused: its spec is not
acted on, so addresses are neither dialed anew nor drained, a zone is neither changed nor deleted, a
new one is not created.  The last spec that was acted on stays in force, and failover, catch-up and
the migrations it asks for go on.
"""

from dataclasses import dataclass

from quorate.facts.zone import ZoneRecord
from quorate.planning.target.label_selector import FilterError
from quorate.planning.target.node_filter import node_filter
from quorate.wire.schema.resource import Metadata
from quorate.wire.zone import Zone, to_record
from quorate_operator import names
from quorate_operator.declared.deletion import differs

WAY_OUT = f"remove the annotation {names.ANNOTATION_PAUSED}"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Result of judging a zone.  `record`: what the master is to lead, None if nothing."""

    record: ZoneRecord | None
    reason: str
    message: str


def accept(zone: Zone, cluster_exists: bool, led: ZoneRecord | None) -> Acceptance:
    """Judge `zone`.  `led`: the record that its master leads now, None if it leads none.

    If the filter of a zone that is led is wrong, it stays led as before: taking its data out of
    service would help no user.  The same holds for data kept from a deleted Zone if its partitions
    or storage differ from those of the new Zone of that name.
    """
    name, cluster = zone.metadata.name, zone.spec.cluster_ref.name
    if not cluster_exists:
        return Acceptance(
            None,
            names.REASON_CLUSTER_NOT_FOUND,
            f"Zone {name}: spec.clusterRef.name is {cluster}, and there is no StorageCluster of "
            f"that name: create it, or declare the Zone with another clusterRef",
        )
    other = differs(zone, led)
    if other:
        return Acceptance(led, names.REASON_DATA_DIFFERS, other)
    wrong = _wrong_filter(zone)
    if wrong and zone.metadata.deletion_timestamp is None:
        return Acceptance(led, names.REASON_INVALID, wrong)
    return Acceptance(to_record(zone), names.REASON_ACCEPTED, f"led by the master of {cluster}")


def _wrong_filter(zone: Zone) -> str:
    """Return where the zone's filter cannot be read, a sentence; "" if it can."""
    try:
        node_filter(zone.spec.data_nodes_filter or "")
    except FilterError as error:
        about = f"spec.dataNodesFilter is {zone.spec.data_nodes_filter}"
        return f"Zone {zone.metadata.name}: {about}: {error}"
    return ""


def paused_acceptance(acceptance: Acceptance, led: ZoneRecord | None, pause: str) -> Acceptance:
    """Return the acceptance of a paused zone: it stays led as before; a new zone is not led."""
    if led is None:
        return Acceptance(None, names.REASON_PAUSED, pause)
    return Acceptance(led, acceptance.reason, acceptance.message)


def pause_of(kind: str, metadata: Metadata) -> str:
    """Return a sentence that says that the object is paused; empty if it is not."""
    if metadata.annotations.get(names.ANNOTATION_PAUSED) != "true":
        return ""
    return (
        f"{kind} {metadata.name} has the annotation {names.ANNOTATION_PAUSED}: changes of its spec "
        f"wait, failover continues; {WAY_OUT} to resume"
    )
