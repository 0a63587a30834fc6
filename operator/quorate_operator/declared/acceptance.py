"""Whether a declared zone can be led as it stands, and if not, why and what to do."""

from dataclasses import dataclass

from quorate.facts.zone import ZoneRecord
from quorate.wire.zone import Zone, to_record, unsupported
from quorate_operator import names
from quorate_operator.declared.deletion import differs


@dataclass(frozen=True, slots=True)
class Acceptance:
    """`record` is what the master is to lead; None when it must not, with reason and message."""

    record: ZoneRecord | None
    reason: str
    message: str


def accept(zone: Zone, cluster_exists: bool, led: ZoneRecord | None) -> Acceptance:
    """Judge `zone`; `led` is what its master works with now, if it does.

    A zone that is led and then asks for what is not supported stays led as it was: taking its data
    out of service would not help anybody.  So does data that was kept when its Zone was deleted,
    and that the Zone of the same name could not have.
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
    missing = unsupported(zone)
    if missing and zone.metadata.deletion_timestamp is None:
        return Acceptance(led, names.REASON_NOT_SUPPORTED, missing)
    return Acceptance(to_record(zone), names.REASON_ACCEPTED, f"led by the master of {cluster}")


def paused_acceptance(acceptance: Acceptance, led: ZoneRecord | None, pause: str) -> Acceptance:
    """Return the acceptance of a zone that is paused: it is led as it was, or not at all when it is
    new."""
    if led is None:
        return Acceptance(None, names.REASON_PAUSED, pause)
    return Acceptance(led, acceptance.reason, acceptance.message)
