"""Finds whether an operator leads, by the age of its Lease."""

from datetime import datetime
from typing import Any, NamedTuple

from quorate.wire.storage_cluster import StorageCluster
from quorate_cli.kubectl.kube_api import Forbidden, KubeApi, group_path, objects_path
from quorate_cli.objects.operator_api import NotThere

LEASE = "quorate-operator"
GROUP = "coordination.k8s.io/v1"


class Operator(NamedTuple):
    """Whether an operator leads.

    `problem`: why no operator decides anything, a sentence, empty while one does; `unknown`: why
    that cannot be told.
    """

    problem: str = ""
    unknown: str = ""
    holder: str = ""


def find_operator(api: KubeApi, namespace: str, operator_namespace: str = "") -> Operator:
    """Return whether an operator leads clusters of `namespace`.

    Its Lease is looked for in `operator_namespace` if given, else in `namespace`, else everywhere:
    there it is the one whose holder the StorageClusters of `namespace` name as their master.
    """
    places = [operator_namespace] if operator_namespace else [namespace]
    try:
        found = [api.get(group_path(GROUP, "leases", place, LEASE)) for place in places]
    except Forbidden as forbidden:
        return Operator(unknown=f"whether an operator runs is unknown: {forbidden}")
    except NotThere:
        if operator_namespace:
            return Operator(_none(operator_namespace))
        try:
            found = api.collection(
                group_path(GROUP, "leases"), fieldSelector=f"metadata.name={LEASE}"
            )
        except Forbidden:
            return Operator(
                unknown=f"whether an operator runs is unknown: namespace {namespace} has no Lease"
                f" {LEASE}: name the operator's namespace with --operator-namespace"
            )
        if not found:
            return Operator(_none(namespace))
        judged = [_judge(api, each) for each in found]
        if all(each.problem for each in judged):
            return judged[0]
        try:
            masters = _masters(api, namespace)
        except Forbidden as forbidden:
            return Operator(unknown=f"whether an operator runs is unknown: {forbidden}")
        theirs = [each for each in found if _holder(each) in masters]
        if len(theirs) != 1 and (masters or len(found) > 1):
            where = ", ".join(sorted(_place(each) for each in found))
            return Operator(
                unknown=f"whether an operator runs is unknown: Leases {LEASE} are in {where}, and"
                f" no single one is known to be of the operator of namespace {namespace}: name its"
                " namespace with --operator-namespace"
            )
        found = theirs or found
    return _judge(api, found[0])


def _masters(api: KubeApi, namespace: str) -> set[str]:
    """Return the processes that lead the StorageClusters of `namespace`, as these record it."""
    clusters: list[Any] = [*api.collection(objects_path(StorageCluster.plural, namespace))]
    masters = [(each.get("status") or {}).get("master") or {} for each in clusters]
    return {str(each["identity"]) for each in masters if each.get("identity")}


def _place(lease: Any) -> str:
    return str(lease["metadata"]["namespace"])


def _holder(lease: Any) -> str:
    return str(lease.get("spec", {}).get("holderIdentity") or "")


def _none(namespace: str) -> str:
    return (
        f"no operator runs: namespace {namespace} has no Lease {LEASE}: install the operator"
        " (helm install), or name its namespace with --operator-namespace"
    )


def _judge(api: KubeApi, lease: Any) -> Operator:
    spec = lease.get("spec", {})
    holder, renewed = _holder(lease), spec.get("renewTime")
    where = f"Lease {LEASE} in namespace {_place(lease)}"
    look = "see the operator's pods and their logs"
    if not holder or not renewed:
        return Operator(f"no operator leads: {where} has no holder: {look}")
    age_s = (api.now - datetime.fromisoformat(str(renewed))).total_seconds()
    if age_s > int(spec.get("leaseDurationSeconds") or 10):
        return Operator(
            f"no operator leads: {where} was last renewed {age_s:.0f} s ago, by {holder}; the state"
            f" shown here may be old: {look}"
        )
    return Operator(holder=holder)
