"""Frees the pod and the claim of a managed agent that is lost for good.

A new pod with an empty volume then takes its place.  Refused while a write could be lost with the
agent's store.
"""

from typing import Any, NamedTuple

import typer

from quorate.facts.partition_row import PartitionRow
from quorate.facts.zone import ZoneRecord
from quorate.planning.absence.lost_stores import left_on, lost_without
from quorate.wire.partition_table import PartitionTable, partition_row, zone_record
from quorate.wire.storage_cluster import StorageCluster
from quorate_cli.guard import INTERRUPT_EXIT_CODE
from quorate_cli.kubectl.kube_api import Conflict, Forbidden, KubeApi, core_path, objects_path
from quorate_cli.kubectl.objects import LABEL_CLUSTER, StoredRows, parsed, registrations
from quorate_cli.kubectl.options import Place, shell_words
from quorate_cli.objects.operator_api import NotThere
from quorate_cli.objects.resources import Whole
from quorate_cli.terminal.problem import Problem


class Freed(NamedTuple):
    """The objects that are freed for an agent; None if they do not exist."""

    agent: str
    namespace: str
    pod: dict[str, Any] | None
    claim: dict[str, Any] | None
    place: Place
    warnings: tuple[str, ...] = ()

    def sentences(self) -> list[str]:
        """Return sentences that say what is freed and what becomes of it."""
        said = list(self.warnings)
        if self.pod is not None:
            node = self.pod["spec"].get("nodeName")
            where = f" on node {node}" if node else " (on no node)"
            said.append(f"pod {self.pod['metadata']['name']}{where} will be deleted at once")
        if self.claim is not None:
            volume = self.claim["spec"].get("volumeName")
            of = f" with its volume {volume}" if volume else " (without a volume)"
            said.append(
                f"claim {self.claim['metadata']['name']}{of} will be deleted, and with it the data"
                f" of {self.agent}"
            )
        return said


def find_freed(api: KubeApi, cluster: StorageCluster, agent: str, place: Place) -> Freed:
    """Return what would be freed; raise Problem with the reason if nothing may be."""
    warnings = check_replaceable(api, cluster, agent, place)
    namespace, name = cluster.metadata.namespace, f"{cluster.metadata.name}-{agent}"
    freed = Freed(
        agent,
        namespace,
        _find(api, core_path("pods", namespace, f"{name}-0")),
        _find(api, core_path("persistentvolumeclaims", namespace, name)),
        place,
        warnings,
    )
    there = place.kubectl_words
    if freed.pod is not None and _is_ready(freed.pod):
        raise Problem(
            f"agent {agent}: its pod {name}-0 is Ready. If its node has lost power, wait until"
            f" `kubectl get nodes{there}` shows it as NotReady. Otherwise the operator cannot reach"
            f" the agent: see `kubectl logs {name}-0{there}` and the network. To restart the agent"
            " with its data, delete the pod"
        )
    if freed.pod is None and freed.claim is None:
        raise Problem(
            f"agent {agent}: namespace {namespace} has neither pod {name}-0 nor claim {name}, so"
            " there is nothing to delete; the operator creates both"
        )
    return freed


def check_replaceable(
    api: KubeApi, cluster: StorageCluster, agent: str, place: Place
) -> tuple[str, ...]:
    """Raise Problem unless the agent is managed, has left, and no voter is lost with its store.

    Return sentences on what resets left there.
    """
    name, namespace = cluster.metadata.name, cluster.metadata.namespace
    if cluster.spec.managed is None:
        raise Problem(
            f"StorageCluster {name} has agents that you start yourself (spec.external): start"
            f" {agent} with an empty data folder under its name"
        )
    nodes = registrations(api, namespace, name)
    record = nodes.get(agent)
    if record is None:
        known = ", ".join(sorted(nodes)) or "none"
        raise Problem(
            f"agent {agent!r} is not registered in StorageCluster {name}: registered agents are"
            f" {known}"
        )
    if record.left_since_ms is None:
        raise Problem(
            f"agent {agent} is online and needs no replacement; to move its copies away:"
            f" kubectl quorate drain {agent}{place.words}{shell_words(['--cluster', name])}"
        )
    left: list[str] = []
    for rows in all_rows(api, namespace, name):
        zone = rows.record
        assert zone is not None
        if zone.placed and len(rows.rows) < zone.partitions:
            raise Problem(
                f"agent {agent}: rows of Zone {zone.name} are missing and are rebuilt from the"
                " agents' data, perhaps also from its own: wait until OwnershipDamaged is False"
            )
        lost = lost_without(agent, zone.name, zone.persistent, rows.rows, nodes)
        if lost:
            raise Problem(
                f"agent {agent}: acknowledged writes could be lost with its data: {lost}; bring"
                f" back {agent} with its volume, or first the other agents that are offline"
            )
        left.append(left_on(agent, zone.name, zone.persistent, rows.rows, nodes))
    return tuple(filter(None, left))


def all_rows(api: KubeApi, namespace: str, cluster: str) -> list[StoredRows]:
    """Return the rows of every zone of which the cluster has data, declared or not."""
    selector = f"{LABEL_CLUSTER}={cluster}"
    tables = api.collection(objects_path(PartitionTable.plural, namespace), labelSelector=selector)
    records: dict[str, ZoneRecord] = {}
    rows: dict[str, list[PartitionRow]] = {}
    for table in tables:
        spec = parsed(PartitionTable, table).spec
        uid = spec.zone_ref.uid
        if spec.accepted is not None:
            records[uid] = zone_record(spec.zone_ref, spec.accepted)
        else:
            rows.setdefault(uid, []).extend(partition_row(row) for row in spec.rows or ())
    headless = {*rows} - {*records}
    if headless:
        raise Problem(
            f"PartitionTable {min(headless)}-head is missing, so it is unknown how many copies the"
            " zone needs: wait until the operator has written it again"
        )
    return [StoredRows(record, rows.get(uid, ())) for uid, record in sorted(records.items())]


def free(api: KubeApi, cluster: StorageCluster, freed: Freed) -> None:
    """Delete exactly this claim and pod.  The claim goes when the pod no longer holds it.

    Nothing is deleted if one of both deletions is refused.  If it ends between the first deletion
    and the answer to the last one, also by Ctrl-C, it says what is deleted or may be.
    """
    # Another agent may have left meanwhile.
    check_replaceable(api, cluster, freed.agent, freed.place)
    for plural, whole in (("persistentvolumeclaims", freed.claim), ("pods", freed.pod)):
        _delete(api, freed.namespace, plural, whole, {"dryRun": ["All"]})
    is_claim_gone = False
    try:
        _delete(api, freed.namespace, "persistentvolumeclaims", freed.claim, {})
        is_claim_gone = True
        _delete(api, freed.namespace, "pods", freed.pod, {})
    except Problem as problem:
        is_nothing_gone = freed.claim is None or not is_claim_gone
        if is_nothing_gone and isinstance(problem, Conflict | Forbidden):
            raise
        unfinished = _unfinished(freed, is_claim_gone)
        raise Problem(f"agent {freed.agent}: {problem}; {unfinished}") from problem
    except KeyboardInterrupt:
        typer.echo(f"interrupted; {_unfinished(freed, is_claim_gone)}", err=True)
        raise typer.Exit(INTERRUPT_EXIT_CODE) from None


def _unfinished(freed: Freed, is_claim_gone: bool) -> str:
    """Return a sentence that says what is deleted or may be, and how to go on."""
    if freed.claim is None:
        return "whether the pod is deleted is unknown: run the command again"
    claim = freed.claim["metadata"]["name"]
    if is_claim_gone:
        return (
            f"claim {claim} is deleted already, and its data is lost when the agent's pod ends: run"
            " the command again"
        )
    return (
        f"whether claim {claim} is deleted is unknown; if it is, its data is lost when the agent's"
        f" pod ends: kubectl get persistentvolumeclaim {claim}{freed.place.kubectl_words}; run the"
        " command again"
    )


def _delete(
    api: KubeApi, namespace: str, plural: str, whole: dict[str, Any] | None, options: Whole
) -> None:
    if whole is None:
        return
    options = {**options, "preconditions": {"uid": whole["metadata"]["uid"]}}
    if plural == "pods":
        # Its kubelet is gone and would never report its end.
        options["gracePeriodSeconds"] = 0
    try:
        api.delete(core_path(plural, namespace, whole["metadata"]["name"]), options)
    except NotThere:
        return


def _find(api: KubeApi, path: str) -> dict[str, Any] | None:
    try:
        return api.get(path)
    except NotThere:
        return None


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
