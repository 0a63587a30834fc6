"""Deletion of declared objects: whether their data is deleted, and how kept data is found again.

A zone's data has an id that outlives the object: the uid of the first Zone of that name.  A new
Zone with the name of a zone whose data was kept gets that data, if partitions and storage are the
same.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from quorate.facts.zone import ZoneRecord
from quorate.wire.schema.resource import DeletionPolicy
from quorate.wire.zone import Zone
from quorate_operator import names

Body = Mapping[str, Any]


def erases(body: Body) -> bool:
    """Return whether data is deleted with the object.  Every policy but Delete keeps it."""
    return (body.get("spec") or {}).get("deletionPolicy") == DeletionPolicy.DELETE.value


def is_freed(body: Body) -> bool:
    """Return whether a user has asked that the object's deletion wait for nothing."""
    annotations = body["metadata"].get("annotations") or {}
    return annotations.get(names.ANNOTATION_RELEASE) == "true"


def is_held(body: Body) -> bool:
    """Return whether the object waits for the operator; a user may have removed the finaliser."""
    return names.FINALIZER in (body["metadata"].get("finalizers") or ())


def zone_id(uid: str, name: str, known: Mapping[str, ZoneRecord]) -> str:
    """Return the id of the zone that an object of this uid and name declares.

    It is the object's uid, unless data of that name was kept.  `known`: the metastore's zones.
    """
    return next(iter(kept_ids(uid, name, known)), uid)


def kept_ids(uid: str, name: str, known: Mapping[str, ZoneRecord]) -> list[str]:
    """Return the ids of the `known` zones whose data an object of this uid and name can have.

    There are several only if everything but the agents' data was lost, and an agent still has a
    zone that was deleted and created again while the agent was away.
    """
    if uid in known:
        return [uid]
    return [each for each, record in known.items() if record.name == name and not record.deleting]


def chosen_id(body: Body) -> str:
    """Return the id of the data that a user has chosen for a Zone; empty: none was chosen."""
    annotations = body["metadata"].get("annotations") or {}
    return str(annotations.get(names.ANNOTATION_ZONE_ID, ""))


def own_id(body: Body, told: str, known: Mapping[str, ZoneRecord]) -> str:
    """Return the id of the data that a Zone object says it has; else its uid.

    `told`: the zoneId of its status; `known`: the metastore's zones.  A chosen id counts only where
    the id that was told is not known, and only for data of the object's name.
    """
    metadata = body["metadata"]
    own = told or str(metadata["uid"])
    chosen = known.get(chosen_id(body))
    if own not in known and chosen is not None and chosen.name == metadata["name"]:
        return chosen.uid
    return own


def ambiguous(name: str, keepers: Mapping[str, Sequence[str]]) -> str:
    """Return why a Zone has no data yet.  `keepers`: the agents by id of a zone of its name."""
    found = "; ".join(f"{each} ({', '.join(agents)})" for each, agents in keepers.items())
    return (
        f"Zone {name}: agents keep data of {len(keepers)} zones of this name: {found}: choose one "
        f"of them: kubectl annotate zone {name} {names.ANNOTATION_ZONE_ID}=ID"
    )


def erasable(
    body: Body, told: str, zone: Zone | None, known: Mapping[str, ZoneRecord]
) -> ZoneRecord | None:
    """Return the zone whose data is deleted with this object, None if it has none.

    `told`: the zoneId of its status.  `zone` is None if the object cannot be read: then only data
    under the object's uid is its own.  If it said which data it has, and this is gone, data that is
    kept under its name belongs to another zone.
    """
    uid, name = str(body["metadata"]["uid"]), str(body["metadata"]["name"])
    own = own_id(body, told, known)
    if own not in known and (told or chosen_id(body)):
        return None
    if len(kept_ids(own, name, known)) > 1:
        return None
    record = known.get(zone_id(own, name, known))
    if record is None or record.uid == uid:
        return record
    if zone is None or record.name != name or differs(zone, record):
        return None
    return record


def differs(zone: Zone, kept: ZoneRecord | None) -> str:
    """Return why a zone cannot have the data kept under its name; empty if it can."""
    name, partitions, storage = zone.metadata.name, zone.spec.partitions, zone.spec.storage
    if kept is None or (kept.partitions, kept.storage) == (partitions, storage):
        return ""
    return (
        f"Zone {name}: data of an earlier zone of this name is kept, with partitions: "
        f"{kept.partitions} and storage: {kept.storage.value}, but this one has partitions: "
        f"{partitions} and storage: {storage.value}: declare it as it was, or under another name; "
        "to erase that data, declare it as it was with deletionPolicy: Delete, and delete it"
    )
