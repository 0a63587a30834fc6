"""Agents that the operator makes as pods: how many, with what, where they run."""

import enum
import re
from typing import Annotated, Any, ClassVar

from pydantic import Field

from quorate.wire.schema.resource import Integer, Part, Rule, Text
from quorate.wire.zone import memory_bytes

AGENTS_MAX = 1000
ZONE_LABEL = "topology.kubernetes.io/zone"
COPIED_LABELS = (ZONE_LABEL, "topology.kubernetes.io/region")
"""Labels of nodes that the API server copies to pods, from Kubernetes 1.35 on."""
SIZE_MIN = 1 << 30
_LABEL = r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
_DOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
QUANTITY = r"^[1-9][0-9]*(Ki|Mi|Gi|Ti|k|M|G|T)?$"

FreeForm = Annotated[
    dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})
]
"""A piece of the pod's own schema: it is handed on as it is, and the API server judges the pod."""
EnvVariable = Annotated[
    dict[str, Any],
    Field(
        json_schema_extra={
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {
                "name": {"type": "string", "maxLength": 253, "description": "Its name."}
            },
        }
    ),
]
"""The same, whose name rules can be about."""
Labels = dict[str, Text]


class AgentStorage(Part):
    """The volume for each agent's data."""

    size: Annotated[Text, Field(pattern=QUANTITY, max_length=20)]
    """Its size, such as 10Gi.  It may grow later where the class allows, and never shrinks."""

    class_name: Annotated[Text, Field(min_length=1, max_length=253)] | None = None
    """Its storage class; absent: the default class.  Existing volumes keep theirs."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "size",
            "quantity(self.size).compareTo(quantity('1Gi')) >= 0",
            "write at least 1Gi",
            lambda new, _: memory_bytes(new.size) >= SIZE_MIN,
        ),
    )


class PodAdditions(Part):
    """Additions to pods.  Fields that the operator itself writes win."""

    labels: Labels = Field(default_factory=dict)
    """Labels of the pods, besides the operator's."""
    annotations: Labels = Field(default_factory=dict)
    """Annotations of the pods."""
    env: list[EnvVariable] = Field(default_factory=list, max_length=100)
    """Environment variables of the container, as in a pod."""
    image_pull_secrets: list[FreeForm] = Field(default_factory=list, max_length=20)
    """Secrets by which nodes may pull the image, as in a pod."""
    priority_class_name: Annotated[Text, Field(max_length=253)] | None = None
    """PriorityClass of the pods."""


class ListenerType(enum.StrEnum):
    """How clients outside of the Kubernetes cluster reach an agent."""

    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


INGRESS = "{ingress}"
NODE_IP = "{node_ip}"
PLACEHOLDERS = ("{agent}", "{cluster}", "{namespace}", "{node}", NODE_IP, INGRESS)
_TEMPLATE = f"^([A-Za-z0-9._-]|{'|'.join(map(re.escape, PLACEHOLDERS))})+$"


class ExternalListener(Part):
    """A Service per agent, and a second port per zone on each agent.  Clients that come by it are
    told external addresses."""

    type: ListenerType
    """NodePort or LoadBalancer."""

    host_template: Annotated[Text, Field(pattern=_TEMPLATE, max_length=253)] | None = None
    """The host that clients are told of an agent, with {agent}, {cluster}, {namespace}, {node} and
    {node_ip} (name and address of the node that its pod runs on) and {ingress} (what its
    LoadBalancer has been given) filled in.  If absent: {node_ip}, with LoadBalancer {ingress}."""

    annotations: Labels = Field(default_factory=dict)
    """Annotations of each Service.  {agent}, {cluster} and {namespace} are filled in."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "hostTemplate",
            f"!has(self.hostTemplate) || self.type == 'LoadBalancer' || "
            f"!self.hostTemplate.contains('{INGRESS}')",
            f"a NodePort has no {INGRESS}: write {NODE_IP}, or type: LoadBalancer",
            lambda new, _: (
                new.type is ListenerType.LOAD_BALANCER or INGRESS not in (new.host_template or "")
            ),
        ),
    )

    @property
    def template(self) -> str:
        """The host template, or that of the type."""
        of_type = INGRESS if self.type is ListenerType.LOAD_BALANCER else NODE_IP
        return self.host_template or of_type


class Listeners(Part):
    """Ways for clients to connect, besides the agents' ports in the cluster."""

    external: ExternalListener | None = None
    """For clients outside of the Kubernetes cluster.  Adding or removing it replaces the pods, one
    at a time."""


class AnnouncedNames(Part):
    """Agents are known to clients and to each other by the DNS names of their pods."""

    cluster_domain: Annotated[Text, Field(pattern=_DOMAIN, max_length=120)] = "cluster.local"
    """The domain under which the Kubernetes cluster has its names."""


class ManagedAgents(Part):
    """Agents as pods, one StatefulSet with one pod each."""

    replicas: Annotated[Integer, Field(ge=0, le=AGENTS_MAX)]
    """The number of agents.  `kubectl scale` writes it."""

    image: Annotated[Text, Field(min_length=1, max_length=1000)]
    """The agent's image, best by digest."""

    storage: AgentStorage

    resources: FreeForm = Field(default_factory=dict)
    """Requests and limits of the container, as in a pod."""

    node_selector: Labels = Field(default_factory=dict)
    """Labels of the nodes that agents may run on."""
    tolerations: list[FreeForm] = Field(default_factory=list, max_length=100)
    """As in a pod."""
    affinity: FreeForm | None = None
    """As in a pod.  If absent, agents of one cluster keep apart from each other where they can."""

    failure_domain_label: Annotated[Text, Field(pattern=_LABEL, max_length=317)] = ZONE_LABEL
    """The label of a node that names the failure domain of its agents.  Copies of a partition
    are spread over these.  The operator reads it from Nodes, if it may.  Where it may not, the API
    server copies topology.kubernetes.io/zone and /region to pods (Kubernetes 1.35), and no other
    label."""

    pod_template: PodAdditions | None = None
    """Additions to each pod."""

    announced_names: AnnouncedNames | None = None
    """If present (`{}` for the usual domain), clients and agents are told the DNS names of pods
    instead of their addresses: POD.CLUSTER-agents.NAMESPACE.svc.cluster.local.  Adding or removing
    it replaces the pods, one at a time."""

    listeners: Listeners | None = None
    """Ways for clients to connect, besides the agents' ports in the cluster."""

    @property
    def external_listener(self) -> ExternalListener | None:
        """The listener for clients outside, if there is one."""
        return self.listeners.external if self.listeners is not None else None
