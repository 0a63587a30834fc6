"""The custom resource StorageCluster: the agents that belong together.

An earlier form had the word `agents: external`, with `addresses` beside it.  No structural schema
takes a word and an object in one field, and where a field becomes an object every write to a stored
one is refused, also that of its status.  So the union has names of its own, and the earlier fields
stay.
"""

import re
from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from quorate.facts.addresses import WAY_OUT
from quorate.wire.managed_agents import ManagedAgents
from quorate.wire.schema.resource import (
    Conditions,
    DeletionPolicy,
    Integer,
    Part,
    Resource,
    Rule,
    Text,
    name_rule,
)

ADDRESSES_MAX = 1000
MANAGED_NAME_MAX = 40
"""A StatefulSet's name is at most 52 characters long, with -agent-1000 behind the cluster's."""
EARLIER = ("agents", "addresses")
"""Fields that `external` has taken the place of."""
_HOST = r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?)"
_PORT = r"([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_ADDRESS = f"^{_HOST}:{_PORT}$"


def _check_unique(addresses: list[str]) -> list[str]:
    twice = sorted({each for each in addresses if addresses.count(each) > 1})
    if twice:
        raise ValueError(f"write each one once: {twice[0]} is listed twice")
    return addresses


Addresses = Annotated[
    list[Annotated[Text, Field(max_length=260)]],
    Field(
        min_length=1,
        max_length=ADDRESSES_MAX,
        json_schema_extra={"x-kubernetes-list-type": "set"},
    ),
    AfterValidator(_check_unique),
]


DrainAgents = Annotated[
    list[Annotated[Text, Field(min_length=1, max_length=253)]],
    Field(max_length=ADDRESSES_MAX, json_schema_extra={"x-kubernetes-list-type": "set"}),
    AfterValidator(_check_unique),
]


def _addresses_rule(condition: str = "") -> Rule:
    return Rule(
        "addresses",
        f"{condition}self.addresses.all(a, a.matches(r'{_ADDRESS}'))",
        WAY_OUT,
        lambda new, _: all(re.fullmatch(_ADDRESS, a) for a in new.addresses or ()),
    )


class ExternalAgents(Part):
    """Agents that you start yourself."""

    addresses: Addresses
    """host:port of every agent's peer port, each once."""

    rules: ClassVar[tuple[Rule, ...]] = (_addresses_rule(),)


class StorageClusterSpec(Part):
    """The agents of the cluster."""

    external: ExternalAgents | None = None
    """Agents that you start yourself, and their addresses."""

    managed: ManagedAgents | None = None
    """Agents that the operator creates, as pods.  Write either `external` or `managed`."""

    drain_agents: DrainAgents = Field(default_factory=list)
    """Names of agents to drain: their copies move to other agents, and come back when the name is
    removed.  On Kubernetes only; `kubectl quorate drain` and `undrain` write it."""

    deletion_policy: DeletionPolicy | None = None
    """What becomes of the data when the StorageCluster is deleted, on Kubernetes.  Retain (when
    absent): ownership and copies stay, and the same manifests applied again find them.  Delete:
    once no Zone is declared in it any more, all data goes, too."""

    addresses: Addresses | None = None
    """Deprecated: write external.addresses instead.  Read as that."""

    agents: Annotated[Text, Field(pattern="^external$")] | None = None
    """Deprecated: omit it.  Older objects have it; it has no effect."""

    rules: ClassVar[tuple[Rule, ...]] = (
        _addresses_rule("!has(self.addresses) || "),
        Rule(
            "",
            "[has(self.external), has(self.addresses), has(self.managed)].filter(x, x).size() == 1",
            "write either spec.external.addresses (agents that you start yourself) or "
            "spec.managed (agents as pods)",
            lambda new, _: [new.external, new.addresses, new.managed].count(None) == 2,
        ),
        Rule(
            "",
            "has(self.managed) == has(oldSelf.managed)",
            "spec.managed cannot be added to a StorageCluster or removed from it, because data "
            "does not move between pods and agents that you start yourself: declare another "
            "StorageCluster, and copy the data",
            lambda new, old: (new.managed is None) == (old.managed is None),
        ),
    )

    @property
    def dialed(self) -> list[str]:
        """The addresses that are declared, in whichever form; none where agents are managed."""
        return self.external.addresses if self.external is not None else self.addresses or []


def external(addresses: Sequence[str]) -> dict[str, object]:
    """The spec of a cluster whose agents are at `addresses`."""
    return {"external": {"addresses": [*addresses]}}


class ClusterMember(Part):
    """One agent as the master sees it."""

    name: Text
    """The agent's own name."""
    store_id: Text
    """Identity of its data; new when the data is lost."""
    address: Text
    """host:port that other agents dial."""
    external_host: Text = ""
    """The host that clients of the external listener are told.  Empty: they cannot reach it."""
    state: Text
    """Online, Offline, Draining, Leaving or Cordoned."""
    primaries: Integer = 0
    """Partitions whose primary it is, in all zones."""
    owners: Integer = 0
    """Copies that it owns, primaries included."""


class ClusterMaster(Part):
    """The operator process that may write ownership."""

    identity: Text = ""
    """Its host, process and a random word."""
    term: Integer = 0
    """The number of its mastership."""


class PodProblem(Part):
    """A pod of an agent that does not run, and why."""

    name: Text
    """The pod."""
    reason: Text
    """Why it does not run, in one word, such as ImagePullBackOff."""
    message: Text
    """The same in the words of Kubernetes."""


class StorageClusterStatus(Part):
    """What the operator observes."""

    observed_generation: Integer = 0
    """The `metadata.generation` of the spec that this status is of."""
    members: list[ClusterMember] = Field(default_factory=list)
    """The agents that are registered."""
    online: Text = ""
    """Online agents and named agents, for example 3/3."""
    addresses: list[Text] = Field(default_factory=list)
    """The addresses that are dialed: those of the spec, or of before it was paused."""
    master: ClusterMaster = ClusterMaster()
    replicas: Integer | None = None
    """The number of managed agents, for `kubectl scale` and autoscalers."""
    selector: Text | None = None
    """Labels of the pods of managed agents, for the same."""
    pods: list[PodProblem] = Field(default_factory=list)
    """Pods of agents that do not run, with the reason."""
    retained_zones: list[Text] = Field(default_factory=list)
    """Zones whose object was deleted and whose data is kept: they are served as before."""
    drained: list[Text] = Field(default_factory=list)
    """Agents that are drained because of spec.drainAgents, until that is undone."""
    emptied: list[Text] = Field(default_factory=list)
    """Those of spec.drainAgents that have no copies left."""
    conditions: Conditions = Field(default_factory=list)


class StorageCluster(Resource):
    """A cluster of agents that hold zones."""

    plural = "storageclusters"
    short_name = "stc"  # "sc" is StorageClass's own: kubectl would always take it for that
    has_status = True
    printer_columns = (
        ("Agents", "string", ".status.online"),
        ("Ready", "string", ".status.conditions[?(@.type=='Ready')].status"),
        ("Master", "string", ".status.master.identity"),
        ("Age", "date", ".metadata.creationTimestamp"),
    )
    scale = (".spec.managed.replicas", ".status.replicas", ".status.selector")
    rules = (
        name_rule("StorageCluster"),
        Rule(
            "",
            f"!has(self.spec.managed) || self.metadata.name.size() <= {MANAGED_NAME_MAX}",
            f"metadata.name of a StorageCluster with spec.managed: write at most {MANAGED_NAME_MAX}"
            " characters, because the names of its StatefulSets begin with it",
            lambda new, _: new.spec.managed is None or len(new.metadata.name) <= MANAGED_NAME_MAX,
        ),
    )

    spec: StorageClusterSpec
    status: StorageClusterStatus = StorageClusterStatus()
