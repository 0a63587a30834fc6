"""The custom resource StorageNode, which stores the registration of one agent."""

from typing import Annotated, ClassVar

from pydantic import Field

from quorate.facts.topology import STORAGE_PROFILES, Happening, NodeRecord, PodFacts
from quorate.wire.schema.resource import Integer, Part, Resource, Rule, Text, immutable
from quorate.wire.zone import ObjectName

Name = Annotated[Text, Field(min_length=1, max_length=253)]
Port = Annotated[Integer, Field(ge=0, le=65535)]


class PortRange(Part):
    """Ports from the first to the last."""

    first: Annotated[Integer, Field(ge=1, le=65535)]
    """The lowest port."""
    last: Annotated[Integer, Field(ge=1, le=65535)]
    """The highest port, itself included."""


class StoredHappening(Part):
    """When the agent last joined, or left: timers of zones count from it."""

    revision: Annotated[Integer, Field(ge=0)]
    """Numbers the joins and leaves of the cluster's agents; a later one has a higher number."""
    age_ms: Annotated[Integer, Field(ge=0)] = 0
    """Milliseconds from then until this was written, without the time when no operator led."""
    wall_ms: Annotated[Integer, Field(ge=0)] = 0
    """Of a leave: the `leftSinceMs` that belongs to it."""


class StoredPod(Part):
    """The facts that the operator last read of the agent's pod, its claim and its node."""

    labels: dict[str, Text] = Field(default_factory=dict)
    """Labels of the pod."""
    node: Text = ""
    """The node of Kubernetes that the pod is on."""
    node_labels: dict[str, Text] | None = None
    """Labels of that node.  Absent: not known."""
    storage_class: Text | None = None
    """The StorageClass of the claim; empty: none.  Absent: not known."""


class StorageNodeSpec(Part):
    """Written by the operator only."""

    cluster_ref: ObjectName
    node: Name
    """The agent's own name."""
    store_id: Name
    """Identity of the data: created with the agent's folder, new when the data is lost."""
    incarnation: Annotated[Integer, Field(ge=0)]
    """Counts the starts of the agent over its store."""
    host: Text
    """Where other agents dial it."""
    peer_port: Port
    """The port for that."""
    client_host: Text
    """The host that clients are told."""
    failure_domain: Text = ""
    """Copies of a partition are spread over these; empty: the agent is one by itself."""
    weight: Annotated[Integer, Field(ge=1)] = 1
    """Its share of the copies, in comparison with other agents."""
    left_since_ms: Integer | None = None
    """Wall clock milliseconds; absent while the agent is online."""
    process: Text = ""
    """A random word of the process that has this incarnation, different from that of a process on
    a copy of its data folder."""
    draining: bool = False
    """It is drained: its copies move to other agents."""
    client_ports: PortRange | None = None
    """The master gives each zone a client port of these.  If absent, the agent chooses."""
    external_host: Text = ""
    """The host that clients of an external listener are told.  Empty: they cannot reach it."""
    since: StoredHappening | None = None
    """When it joined or, if it is away, when it left."""
    attributes: dict[str, Text] = Field(default_factory=dict)
    """Names and values by which `dataNodesFilter` of zones chooses agents: from the agent's command
    line, and from the labels of its pod and of the node of Kubernetes that this is on."""
    storage_profiles: list[Text] = Field(default_factory=lambda: [*STORAGE_PROFILES])
    """The kinds of storage that it offers to zones with a `storageProfile`: from its command line,
    and the StorageClass of its claim."""
    pod: StoredPod | None = None
    """The part of both that comes from the agent's pod, as last read.  Absent: not known."""
    frame_format: Annotated[Integer, Field(ge=0)] = 3
    """The frame format that it speaks with the operator.  Zones in HIGH_AVAILABILITY need 4."""
    ended: bool = False
    """Kubernetes shows that the process of this incarnation has ended: what it had in memory is
    gone for good."""

    rules: ClassVar[tuple[Rule, ...]] = (
        immutable("node", "a registration belongs to one agent; create another StorageNode"),
        Rule(
            "incarnation",
            "self.storeId != oldSelf.storeId || self.incarnation >= oldSelf.incarnation",
            "the incarnations of a store never decrease: write a higher one",
            lambda new, old: new.store_id != old.store_id or new.incarnation >= old.incarnation,
        ),
        Rule(
            "process",
            "self.storeId != oldSelf.storeId || self.incarnation != oldSelf.incarnation || "
            "self.process == oldSelf.process",
            "an incarnation of a store is one process: write a higher incarnation with another one",
            lambda new, old: (
                (new.store_id, new.incarnation) != (old.store_id, old.incarnation)
                or new.process == old.process
            ),
        ),
    )


class StorageNode(Resource):
    """One registered agent.  Written by the operator; users only read it."""

    plural = "storagenodes"
    short_name = "sn"
    printer_columns = (
        ("Cluster", "string", ".spec.clusterRef.name"),
        ("Node", "string", ".spec.node"),
        ("Host", "string", ".spec.host"),
        ("Port", "integer", ".spec.peerPort"),
        ("Incarnation", "integer", ".spec.incarnation"),
        ("Left", "integer", ".spec.leftSinceMs"),
        ("Ended", "boolean", ".spec.ended"),
        ("Draining", "boolean", ".spec.draining"),
        ("Age", "date", ".metadata.creationTimestamp"),
    )

    spec: StorageNodeSpec


def node_spec(cluster: str, record: NodeRecord) -> StorageNodeSpec:
    """A registration as it is stored."""
    return StorageNodeSpec(
        cluster_ref=ObjectName(name=cluster),
        node=record.name,
        store_id=record.store,
        incarnation=record.incarnation,
        host=record.host,
        peer_port=record.peer_port,
        client_host=record.client_host,
        failure_domain=record.failure_domain,
        weight=record.weight,
        left_since_ms=record.left_since_ms,
        process=record.process,
        draining=record.draining,
        client_ports=_stored_range(record.client_ports),
        external_host=record.external_host,
        since=_stored_happening(record.since),
        attributes=record.attributes,
        storage_profiles=[*record.storage_profiles],
        pod=_stored_pod(record.pod),
        frame_format=record.frame_format,
        ended=record.ended,
    )


def node_record(spec: StorageNodeSpec) -> NodeRecord:
    """A stored registration as the core uses it."""
    return NodeRecord(
        spec.node,
        spec.store_id,
        spec.incarnation,
        spec.host,
        spec.peer_port,
        spec.client_host,
        spec.failure_domain,
        spec.weight,
        spec.left_since_ms,
        spec.process,
        spec.draining,
        (spec.client_ports.first, spec.client_ports.last) if spec.client_ports else None,
        spec.external_host,
        _happening(spec.since),
        spec.attributes,
        tuple(spec.storage_profiles),
        _pod(spec.pod),
        spec.frame_format,
        spec.ended,
    )


def _stored_happening(happening: Happening | None) -> StoredHappening | None:
    if happening is None:
        return None
    return StoredHappening(
        revision=happening.revision, age_ms=happening.age_ms, wall_ms=happening.wall_ms
    )


def _happening(stored: StoredHappening | None) -> Happening | None:
    if stored is None:
        return None
    return Happening(stored.revision, stored.age_ms, stored.wall_ms)


def _stored_pod(pod: PodFacts | None) -> StoredPod | None:
    if pod is None:
        return None
    return StoredPod(
        labels=pod.of_pod,
        node=pod.node,
        node_labels=pod.of_node,
        storage_class=pod.storage_class,
    )


def _pod(stored: StoredPod | None) -> PodFacts | None:
    if stored is None:
        return None
    return PodFacts(stored.labels, stored.node_labels, stored.storage_class, stored.node)


def _stored_range(ports: tuple[int, int] | None) -> PortRange | None:
    return PortRange(first=ports[0], last=ports[1]) if ports else None
