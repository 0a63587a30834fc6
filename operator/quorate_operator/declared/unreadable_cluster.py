"""A StorageCluster that cannot be read: the API server has another version's CRD.

If this process could read it before, it stays led as it was read last, also by a master's
successor: taking its data out of service would help no user.  Else it is not led until it can be
read.  In both cases its status says so, and keeps what the next master needs: the term, the
addresses, drains, and the names of kept zones.
"""

from collections.abc import Mapping
from typing import Any

from quorate.facts.errors import WireError
from quorate.wire.schema.resource import Condition
from quorate.wire.storage_cluster import ClusterMaster, StorageCluster, StorageClusterStatus
from quorate_operator import names
from quorate_operator.declared.deletion import erases
from quorate_operator.declared.watched_cluster import WatchedCluster, known_status
from quorate_operator.kube.api import KubeApi, path_of
from quorate_operator.process.clock import rfc3339

Body = Mapping[str, Any]


def read_cluster(body: Body) -> tuple[StorageCluster | None, str]:
    """Return the StorageCluster; None if it cannot be read, and why."""
    try:
        return StorageCluster.parse_stored(body), ""
    except WireError as error:
        return None, str(error)


class Readings:
    """The StorageClusters of one namespace as they could be read last.

    Kept beside the clusters that are led, because a master may end while its object is unreadable,
    and is to have a successor.
    """

    def __init__(self) -> None:
        self._last: dict[str, StorageCluster] = {}  # by uid

    def read(self, body: Body) -> tuple[StorageCluster | None, str]:
        """Return the StorageCluster; why it cannot be read now, empty if it can.

        If it cannot, it is returned as it was read last, with its present annotations: None if it
        never was.
        """
        uid = str(body["metadata"]["uid"])
        cluster, why = read_cluster(body)
        if cluster is not None:
            self._last[uid] = cluster
            return cluster, why
        last = self._last.get(uid)
        if last is None:
            return None, why
        annotations = body["metadata"].get("annotations") or {}
        metadata = last.metadata.model_copy(update={"annotations": annotations})
        return last.model_copy(update={"metadata": metadata}), why

    def forget(self, uid: str) -> None:
        """Forget a StorageCluster that is gone."""
        self._last.pop(uid, None)


async def tell_unreadable(
    api: KubeApi, namespace: str, body: Body, why: str, led: WatchedCluster | None, identity: str
) -> Body:
    """Write the status of a cluster that cannot be read, if it has changed; return the object.

    `led`: None if it is not led; `identity`: of this process.  Raises the API's errors.
    """
    status = _status(body, why, led, identity)
    fresh = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    if led is not None:  # once the object can be read, what is told of it is new
        led.told = None
        led.cluster = led.cluster.model_copy(update={"status": status})
    if fresh == body.get("status"):
        return body
    metadata = body["metadata"]
    path = path_of(namespace, StorageCluster.plural, metadata["name"])
    await api.set_status(path, fresh, uid=str(metadata["uid"]))
    return {**body, "status": fresh}


def _status(
    body: Body, why: str, led: WatchedCluster | None, identity: str
) -> StorageClusterStatus:
    before, generation = known_status(body), int(body["metadata"]["generation"])
    master = ClusterMaster(identity=identity, term=before.master.term)
    kept: list[Condition] = []
    if led is not None:
        now = led.status(led.cluster, identity, before.retained_zones)
        kept = [each for each in now.conditions if each.type != names.CONDITION_READY]
    else:
        now = before.model_copy(update={"members": [], "online": "", "pods": [], "master": master})
    known = next((each for each in before.conditions if each.type == names.CONDITION_READY), None)
    is_old = known is not None and known.status == "False"
    ready = Condition(
        type=names.CONDITION_READY,
        status="False",
        reason=names.REASON_INVALID,
        message=f"{why}: {_consequence(body, led is not None)}",
        last_transition_time=known.last_transition_time if known and is_old else rfc3339(),
        observed_generation=generation,
    )
    return now.model_copy(update={"observed_generation": generation, "conditions": [ready, *kept]})


def _consequence(body: Body, is_led: bool) -> str:
    """Return what becomes of the cluster, and the way out."""
    way_out = "correct it, or apply the CRDs of this version"
    if is_led:
        return f"the cluster is led as the object was read last: {way_out}"
    if body["metadata"].get("deletionTimestamp") is not None and erases(body):
        return (
            "the cluster is not led, so its data cannot be deleted, and the object waits:"
            f' {way_out}; or let it go with the annotation {names.ANNOTATION_RELEASE}: "true",'
            " which keeps the data"
        )
    return f"the cluster is not led; agents keep serving: {way_out}"
