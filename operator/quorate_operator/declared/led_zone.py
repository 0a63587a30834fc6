"""Declares a Zone to its cluster's master, and finds it there as it is led."""

from collections.abc import Callable, Mapping

from quorate.wire.zone import Zone, ZoneStatus
from quorate_operator import names
from quorate_operator.declared.acceptance import Acceptance, accept
from quorate_operator.declared.declared_zone import DeclaredZone
from quorate_operator.declared.deletion import ambiguous, kept_ids, own_id, zone_id
from quorate_operator.declared.object_status import Seen, refused_zone_status, zone_status
from quorate_operator.declared.runs.recoveries import LedZone, NoZone
from quorate_operator.declared.watched_cluster import WatchedCluster
from quorate_operator.mastership.decisions import About
from quorate_operator.process.clock import rfc3339


def declare_zone(
    declared_zone: DeclaredZone,
    led: WatchedCluster | None,
    pause: str,
    note_about: Callable[[str, DeclaredZone], None],
    is_declared: bool,
) -> ZoneStatus:
    """Declare the zone to its cluster's master; return its current status.

    `led`: the cluster, None if it is not led; `pause`: why the zone is paused; `note_about`: called
    with the id of the zone's data; `is_declared`: the cluster's object exists.
    """
    zone, known = declared_zone.zone, declared_zone.known_status
    if zone is None:
        generation = declared_zone.body["metadata"]["generation"]
        return refused_zone_status(generation, declared_zone.problem, rfc3339(), known)
    zone = zone.model_copy(update={"status": known})
    if led is None:
        why = f"StorageCluster {declared_zone.cluster} is not led: its status says why"
        seen = Seen(problem=why if is_declared else "")
        return zone_status(zone, accept(zone, is_declared, None), None, seen, rfc3339())
    # Where the metastore has lost it, the object still says which data it has.
    name, zones = zone.metadata.name, led.runner.known_zones()
    own = own_id(declared_zone.body, known.zone_id, zones)
    if own not in zones and led.runner.is_recovering:  # until all agents have told
        return led.zone_status(zone, own, accept(zone, True, None), pause)
    kept = kept_ids(own, name, zones)
    if len(kept) > 1:
        why = ambiguous(name, {each: led.runner.keepers(each) for each in kept})
        acceptance = Acceptance(None, names.REASON_DATA_AMBIGUOUS, why)
        return led.zone_status(zone, own, acceptance, pause)
    uid = zone_id(own, name, zones)
    acceptance = led.declare_zone(zone, uid, pause)
    if led.has_data(zone, acceptance):
        note_about(uid, declared_zone)
    return led.zone_status(zone, uid, acceptance, pause)


def led_zone(
    name: str,
    zones: Mapping[str, DeclaredZone],
    clusters: Mapping[str, WatchedCluster],
    abouts: Mapping[str, About],
) -> LedZone | str:
    """Return the zone of that name as it is led, or a sentence on what is waited for.

    `zones`, `clusters`: by name; `abouts`: the objects that zones of the metastore belong to.
    """
    zone = zones.get(name)
    if zone is None:
        return NoZone(
            f"there is no Zone {name} in this namespace: create it, or delete this object"
        )
    led = clusters.get(zone.cluster)
    if led is None or not led.runner.is_leading:
        return f"StorageCluster {zone.cluster} of the zone is not led yet"
    if pause := zone.pause or led.pause:
        return pause
    about = About(Zone.kind_name(), name, zone.uid)
    known = led.runner.known_zones()
    uid = next((each for each in known if abouts.get(each) == about), None)
    if uid is None:
        return f"Zone {name} is not led yet"
    return LedZone(led.runner, uid, zone.cluster, zone.body)
