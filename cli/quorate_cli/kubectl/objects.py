"""Custom resources of one namespace as values: clusters, zones, registrations, rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from quorate.facts.errors import WireError
from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import NodeRecord
from quorate.facts.zone import ZoneRecord
from quorate.wire.exports.scheduled_zone_backup import ScheduledZoneBackup, backed_up
from quorate.wire.partition_table import PartitionTable, partition_row, zone_record
from quorate.wire.schema.resource import API_VERSION, GROUP, Resource
from quorate.wire.storage_cluster import StorageCluster
from quorate.wire.storage_node import StorageNode, node_record
from quorate.wire.zone import Zone
from quorate_cli.kubectl.kube_api import Forbidden, KubeApi, objects_path
from quorate_cli.objects import resources
from quorate_cli.objects.operator_api import NotThere
from quorate_cli.objects.resources import Kind, Whole, name_of
from quorate_cli.terminal.problem import Problem

LABEL_CLUSTER = f"{GROUP}/cluster"
LABEL_AGENT = f"{GROUP}/agent"
LABEL_ZONE_UID = f"{GROUP}/zone-uid"


class StoredRows(NamedTuple):
    """The rows of one zone, by partition, and the zone as its master accepted it."""

    record: ZoneRecord | None
    rows: Sequence[PartitionRow]

    def lost(self, nodes: Mapping[str, NodeRecord]) -> tuple[int, ...]:
        """Return the partitions all of whose voters' stores are gone for good."""
        persistent = self.record is None or self.record.persistent

        def is_dead(node: str, store: str) -> bool:
            record = nodes.get(node)
            return record is not None and record.zone_store(persistent) != store

        return tuple(
            row.partition
            for row in self.rows
            if row.voters and all(is_dead(voter.node, voter.store) for voter in row.voters)
        )


def fetch(api: KubeApi, kind: Kind, namespace: str, name: str) -> Whole:
    """Return one object; raise NotThere, which names those that exist, if there is none."""
    try:
        return api.get(objects_path(kind.plural, namespace, name))
    except NotThere as error:
        names = [name_of(whole) for whole in fetch_all(api, kind, namespace)]
        there = f"there are {', '.join(names)}" if names else "there are none"
        raise NotThere(
            f"{kind.singular} {name!r} does not exist in namespace {namespace}: {there};"
            " name another namespace with -n"
        ) from error


def fetch_all(api: KubeApi, kind: Kind, namespace: str) -> list[Whole]:
    """Return all objects of a kind, sorted; without `namespace`, of all namespaces."""
    found = api.collection(objects_path(kind.plural, namespace))
    made = [{"apiVersion": API_VERSION, "kind": kind.name, **whole} for whole in found]
    return sorted(made, key=lambda whole: (namespace_of(whole), name_of(whole)))


def namespace_of(whole: Mapping[str, Any]) -> str:
    """Return metadata.namespace."""
    return str(whole["metadata"].get("namespace", ""))


def clusters(api: KubeApi, namespace: str) -> list[StorageCluster]:
    """Return the StorageClusters of a namespace, or of all."""
    found = fetch_all(api, resources.STORAGE_CLUSTER, namespace)
    return [resources.cluster(whole) for whole in found]


def zones(api: KubeApi, namespace: str) -> list[Zone]:
    """Return the Zones of a namespace, or of all."""
    return [resources.zone(whole) for whole in fetch_all(api, resources.ZONE, namespace)]


def the_cluster(api: KubeApi, namespace: str, name: str = "") -> StorageCluster:
    """Return the cluster of that name, or the only one of the namespace."""
    if name:
        return resources.cluster(fetch(api, resources.STORAGE_CLUSTER, namespace, name))
    known = clusters(api, namespace)
    if len(known) == 1:
        return known[0]
    if not known:
        raise Problem(
            f"namespace {namespace} has no StorageCluster: name another namespace with -n"
        )
    names = ", ".join(each.metadata.name for each in known)
    raise Problem(
        f"namespace {namespace} has several StorageClusters: name one with --cluster: {names}"
    )


def registrations(api: KubeApi, namespace: str, cluster: str = "") -> dict[str, NodeRecord]:
    """Return the registered agents of a cluster by name."""
    selector = f"{LABEL_CLUSTER}={cluster}"
    found = api.collection(objects_path(StorageNode.plural, namespace), labelSelector=selector)
    return {
        record.name: record
        for whole in found
        if (record := node_record(parsed(StorageNode, whole).spec)) is not None
    }


def stored_rows(api: KubeApi, namespace: str, uid: str) -> StoredRows:
    """Return the rows of the zone whose data has this id."""
    selector = f"{LABEL_ZONE_UID}={uid}"
    tables = api.collection(objects_path(PartitionTable.plural, namespace), labelSelector=selector)
    record: ZoneRecord | None = None
    rows: list[PartitionRow] = []
    for table in tables:
        spec = parsed(PartitionTable, table).spec
        if spec.accepted is not None:
            record = zone_record(spec.zone_ref, spec.accepted)
        rows += [partition_row(row) for row in spec.rows or ()]
    return StoredRows(record, sorted(rows, key=lambda row: row.partition))


def zones_with_backups(api: KubeApi, namespace: str) -> set[str] | None:
    """Return the zones of which a schedule makes backups; None: schedules cannot be read."""
    try:
        found = api.collection(objects_path(ScheduledZoneBackup.plural, namespace))
    except (Forbidden, NotThere):
        return None
    kind = ScheduledZoneBackup.kind_name()  # a list comes without it
    return backed_up({**each, "apiVersion": API_VERSION, "kind": kind} for each in found)


R = TypeVar("R", bound=Resource)


def parsed(model: type[R], whole: Whole) -> R:
    """Return an object of a list, which comes without its kind, as its model."""
    read: Callable[[Mapping[str, Any]], R] = model.parse
    try:
        return read({**whole, "apiVersion": API_VERSION, "kind": model.kind_name()})
    except WireError as error:
        raise Problem(
            f"{error}: use the `kubectl quorate` of the operator's version, or see"
            " docs/operator.md on damaged ownership"
        ) from error
