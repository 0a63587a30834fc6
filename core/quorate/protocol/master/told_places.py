"""Facts about agents that the operator reads from Kubernetes: addresses, failure domains, labels,
storage classes.

An agent with an external listener announces its own external address (Hello, ZoneReady), or leaves
that to the operator, which knows the Services in front of it. Hosts are registered with nodes,
ports with zones. So agents learn them like all other addresses, from Members and ZoneTable, and a
new master has them. An address that the operator does not know at present stays as it was.

The failure domain of an agent in a pod is that of the pod's node. If the operator can read the
Node, it tells the master the domain, which takes precedence over the one that the agent was started
with. It is written in the registration and holds through restarts, until the operator tells another
one, or until the agent says another one than before: then its pod is on another node.

The labels of an agent's pod, and of the node that this is on, are attributes of the agent. Of equal
names the pod's label counts before the node's, and the agent's own attribute before both. A node's
labels that the operator does not know at present stay as they were, unless the pod is on another
node now. The StorageClass of an agent's volume is one more storage profile that it offers. What was
told is written in the registration, apart from what the agent says. Source: docs/protocol.md,
section 7.
"""

from collections.abc import Callable, Mapping

import msgspec

from quorate.facts.topology import PodFacts
from quorate.protocol.members.membership import KnownAgent
from quorate.protocol.messages.handshake import Hello
from quorate.protocol.zone_master.zone_master import ZoneMaster


class ToldPlaces:
    """The places that the operator has told one master.

    `wishes_changed`: called with the name of a node whose registration is to be written again.
    """

    def __init__(
        self,
        agents: Mapping[str, KnownAgent],
        zones: Mapping[str, ZoneMaster],
        wishes_changed: Callable[[str], None],
    ) -> None:
        self._agents = agents
        self._zones = zones
        self._wishes_changed = wishes_changed
        self._hosts: dict[str, str] = {}
        self._domains: dict[str, str] = {}
        self._pods: dict[str, PodFacts] = {}
        self._said: dict[str, str] = {}
        """Node -> the failure domain in its last Hello to this master."""

    def tell(self, hosts: Mapping[str, str], ports: Mapping[str, Mapping[str, int]]) -> None:
        """Take hosts by node, and ports by zone uid and node. Idempotent."""
        self._hosts.update(hosts)
        for node, host in hosts.items():
            agent = self._agents.get(node)
            if agent is not None and agent.awaits_external and agent.external_host != host:
                agent.external_host = host
                self._wishes_changed(node)
        for uid, by_node in ports.items():
            zone = self._zones.get(uid)
            if zone is not None:
                zone.take_external_ports(by_node)

    def tell_domains(self, domains: Mapping[str, str]) -> None:
        """Take failure domains by node; "": what the agent itself says counts. Idempotent."""
        self._domains.update(domains)
        for node, domain in domains.items():
            agent = self._agents.get(node)
            if agent is not None and agent.in_pod and agent.told_domain != domain:
                agent.told_domain = domain
                self._wishes_changed(node)

    def tell_pods(self, pods: Mapping[str, PodFacts]) -> None:
        """Take labels and storage classes of agents in pods, by node. Idempotent."""
        for node, told in pods.items():
            agent = self._agents.get(node)
            known = self._pods.get(node) or (agent and agent.pod)
            pod = self._pods[node] = _completed(told, known) if known else told
            if agent is not None and agent.in_pod and agent.pod != pod:
                agent.pod = pod
                self._wishes_changed(node)

    def tell_all(self, domains: Mapping[str, str], pods: Mapping[str, PodFacts]) -> None:
        """Take failure domains, labels and storage classes, by node. Idempotent."""
        self.tell_domains(domains)
        self.tell_pods(pods)

    def greeted(self, agent: KnownAgent, hello: Hello) -> None:
        """Take what an agent's Hello says of these: host, failure domain, attributes, profiles.

        The agent announces its external host, or leaves that to the operator, or has no external
        listener (any more). A failure domain that it says takes precedence over one that an earlier
        master was told. One that this master was told holds, unless the agent said another one
        before: then the told one is that of another node.
        """
        agent.in_pod = hello.client_ports is not None
        before = self._said.get(hello.node, hello.failure_domain)
        self._said[hello.node] = hello.failure_domain
        if hello.failure_domain not in ("", before):
            self._domains.pop(hello.node, None)
        agent.said_domain = hello.failure_domain
        known = agent.told_domain if agent.in_pod and not hello.failure_domain else ""
        agent.told_domain = self._domains.get(hello.node, known) if agent.in_pod else ""
        agent.said_attributes = hello.attributes
        agent.said_profiles = hello.storage_profiles
        agent.pod = self._pods.get(hello.node, agent.pod) if agent.in_pod else None
        agent.awaits_external = hello.external_host == ""
        if agent.awaits_external:
            agent.external_host = self._hosts.get(hello.node, agent.external_host)
        else:
            agent.external_host = hello.external_host or ""


def _completed(told: PodFacts, known: PodFacts) -> PodFacts:
    """Return what was told with what was known before in the place of what is unknown now."""
    node, of_node, storage_class = told.node or known.node, told.of_node, told.storage_class
    if of_node is None and node == known.node:
        of_node = known.of_node
    if storage_class is None:
        storage_class = known.storage_class
    return msgspec.structs.replace(told, of_node=of_node, storage_class=storage_class, node=node)
