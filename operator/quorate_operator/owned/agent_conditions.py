"""Conditions of a StorageCluster about its managed agents: their objects, volumes, places, pods."""

from collections.abc import Mapping

from quorate.wire.storage_cluster import StorageCluster
from quorate_operator import names
from quorate_operator.owned.kube_nodes import NO_NODE_YET
from quorate_operator.owned.owned_objects import ManagedView

Fact = tuple[str, bool | None, str, str]
"""(type, true | false | unknown, reason, message) of a condition."""


def agent_conditions(
    cluster: StorageCluster, managed: ManagedView | None, kept: Mapping[str, str]
) -> list[Fact]:
    """Make all of them.  `kept`: agent -> why it cannot be drained, though it is to leave."""
    return [
        *_owned(cluster, managed, kept),
        *_domains(cluster, managed),
        *_grown(cluster, managed),
        *_outside(managed),
        *_unnamed(managed),
        *_evictions(managed),
    ]


def _owned(
    cluster: StorageCluster, managed: ManagedView | None, kept: Mapping[str, str]
) -> list[Fact]:
    """Make the condition that managed agents' Kubernetes objects are as declared.

    A user who waits for it takes the first one told of the new spec, so knowledge of an earlier
    spec does not count.
    """
    if managed is None:
        return []
    name = names.CONDITION_AGENTS_UPDATED
    if managed.spec != cluster.spec:
        return [(name, None, "NotLookedAt", "the changed spec is not processed yet")]
    if managed.waits_for:
        return [(name, False, "Replacing", managed.waits_for)]
    if managed.refused:
        return [(name, False, "Refused", f"the API server refuses an object: {managed.refused}")]
    if refused := [kept[agent] for agent in managed.agents.leaving if agent in kept]:
        return [(name, False, "ScaleDownRefused", "; ".join(refused))]
    if managed.agents.leaving:
        leaving = ", ".join(managed.agents.leaving)
        first = managed.untold or "copies move to other agents first"
        return [(name, False, "ScalingDown", f"{leaving}: {first}")]
    return [(name, True, "Updated", "all pods have the declared template")]


def _domains(cluster: StorageCluster, managed: ManagedView | None) -> list[Fact]:
    """Make the condition that every agent's failure domain is known; only for managed agents."""
    if managed is None or managed.domainless is None or cluster.spec.managed is None:
        return []
    name = names.CONDITION_FAILURE_DOMAINS_KNOWN
    label = cluster.spec.managed.failure_domain_label
    if not managed.domainless:
        return [(name, True, "Known", f"the node of every agent has the label {label}")]
    pressing = sorted((why == NO_NODE_YET, agent) for agent, why in managed.domainless.items())
    is_on_its_way, agent = pressing[0]
    why = managed.domainless[agent]
    more = f", and {len(managed.domainless) - 1} more" if len(managed.domainless) > 1 else ""
    if is_on_its_way:
        return [(name, False, "Unknown", f"agent {agent}: {why}{more}")]
    way_out = (
        f"label the nodes with {label}, and let the operator read Nodes (`rbac.nodes` of the chart,"
        " or examples/operator-cluster-role.yaml); until then each such agent is its own failure"
        " domain"
    )
    return [(name, False, "Unknown", f"agent {agent}: {why}{more}: {way_out}")]


def _grown(cluster: StorageCluster, managed: ManagedView | None) -> list[Fact]:
    """Make the condition that volumes are as large as declared; told from the first growth on."""
    name = names.CONDITION_VOLUMES_GROWN
    was_told = any(each.type == name for each in cluster.status.conditions)
    if cluster.spec.managed is None:
        return []
    if managed is None or managed.spec != cluster.spec:
        unknown = (name, None, "NotLookedAt", "the volumes are not processed yet")
        return [unknown] if was_told else []
    if managed.growth.reason:
        return [(name, False, managed.growth.reason, managed.growth.message)]
    return [(name, True, "Grown", "every volume has the declared size")] if was_told else []


def _outside(managed: ManagedView | None) -> list[Fact]:
    """Make the condition that external clients reach every agent; only with a listener."""
    if managed is None or managed.unreachable is None:
        return []
    name = names.CONDITION_EXTERNALLY_REACHABLE
    if not managed.unreachable:
        return [(name, True, "AddressesKnown", "every agent has an external address")]
    agent, why = min(managed.unreachable.items())
    more = len(managed.unreachable) - 1
    sentence = f"{agent}: {why}" + (f", and {more} more agents" if more else "")
    return [(name, False, "AddressMissing", sentence)]


def _unnamed(managed: ManagedView | None) -> list[Fact]:
    """Make the condition that the name of a zone's Service is taken; told only while it is."""
    if managed is None or not managed.unnamed:
        return []
    more = len(managed.unnamed) - 1
    sentence = min(managed.unnamed.items())[1] + (f", and {more} more zones" if more else "")
    return [(names.CONDITION_CLIENT_SERVICES_MADE, False, "NameTaken", sentence)]


def _evictions(managed: ManagedView | None) -> list[Fact]:
    """Make the condition that the PodDisruptionBudget allows an eviction, while there are pods."""
    if managed is None or not managed.agents.run:
        return []
    name = names.CONDITION_EVICTIONS_ALLOWED
    if managed.no_eviction is None:
        return [(name, True, "Spare", "a pod can be evicted: every partition keeps its majority")]
    why = managed.no_eviction
    return [
        (name, False, why.reason, f"no pod that a partition needs can be evicted: {why.message}")
    ]
