"""A cluster for a test: started in a folder of its own, declared, disturbed, gone at its end."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from redis.cluster import ClusterNode, RedisCluster

from quorate.facts.addresses import split_address
from quorate_cluster.operator_api import ApiError, Json, OperatorApi
from quorate_cluster.processes import HOST, Agent, Listening, Operator, secret_file
from quorate_cluster.waiting import wait_until
from quorate_control_plane.kept_folder import KeptFolder
from quorate_control_plane.ports import free_ports
from quorate_spark.reading.agent_link import Cluster as Access
from quorate_spark.reading.agent_link import read_cluster

_API_VERSION = "quorate.io/v1alpha1"
_AVAILABLE_S_MAX = 60.0
_QUIET_S_MAX = 90.0

open_clusters: list["Cluster"] = []
"""Those that run now; a failing test shows their logs."""


class Cluster:
    """`with Cluster(agents=3) as cluster:` starts one operator and agent-1 … agent-3, declares the
    StorageCluster and ends everything afterwards, whatever happened.

    `options` go to every agent's command line; `prefix` stands before it (a tracer, a namespace)
    and must exec, so that the pid stays the agent's own; `operator_prefix` likewise.  `host`: where
    all of them listen.
    """

    def __init__(
        self,
        agents: int = 3,
        *,
        name: str = "main",
        options: Sequence[str] = (),
        prefix: Sequence[str] = (),
        operator_prefix: Sequence[str] = (),
        host: str = HOST,
    ) -> None:
        self.name = name
        self.host = host
        self.agents: dict[str, Agent] = {}
        self._agent_count = agents
        self._options = options
        self._prefix = prefix
        self._operator_prefix = operator_prefix
        self._ports = free_ports(host)
        self._clients: list[RedisCluster] = []
        self._kept: KeptFolder | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # -- all of it ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything and wait until all agents are registered."""
        self._kept = KeptFolder("quorate-cluster-")
        self.folder = self._kept.path
        open_clusters.append(self)
        try:
            api_port = next(self._ports)
            self.operator = Operator(
                self.folder, api_port, host=self.host, prefix=self._operator_prefix
            )
            self.api = OperatorApi(self.host, api_port, self.folder / "operator" / "api-token")
            self.operator.start(wait=False)
            for _ in range(self._agent_count):
                self.define_agent().start(wait=False)
            for process in self.processes:
                process.wait_listening()
            if self.agents:
                self.declare()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process and remove the folder; a second time does nothing."""
        if self._kept is None:
            return
        for client in self._clients:
            client.close()
        self._kept.close()
        self._kept = None
        open_clusters.remove(self)
        for process in self.processes:
            process.forget()

    @property
    def processes(self) -> list[Listening]:
        """The operator and every agent."""
        return [self.operator, *self.agents.values()]

    @property
    def secret_file(self) -> Path:
        """The file of the cluster's secret."""
        return secret_file(self.folder, self.name)

    @property
    def access(self) -> Access:
        """The secret file that proves a tool to agents."""
        return read_cluster(self.name, str(self.secret_file))

    # -- agents ------------------------------------------------------------------------------------

    def define_agent(
        self,
        name: str = "",
        *,
        options: Sequence[str] | None = None,
        prefix: Sequence[str] | None = None,
    ) -> Agent:
        """One more agent, not started and not declared yet; agent-N unless it gets a name."""
        name = name or f"agent-{len(self.agents) + 1}"
        agent = Agent(
            name,
            self.folder,
            self.name,
            next(self._ports),
            next(self._ports),
            host=self.host,
            options=self._options if options is None else options,
            prefix=self._prefix if prefix is None else prefix,
        )
        self.agents[name] = agent
        return agent

    def add_agent(self, name: str = "", *, options: Sequence[str] | None = None) -> Agent:
        """Start one more agent and declare it; it takes part from now on."""
        agent = self.define_agent(name, options=options)
        agent.start()
        self.declare()
        return agent

    def declare(self, *names: str, timeout_s: float = 30) -> None:
        """Declare the StorageCluster with these agents (default: all known); wait until all of them
        are online."""
        wanted = names or tuple(self.agents)
        addresses = [self.agents[name].peer_address for name in wanted]
        spec = {"external": {"addresses": addresses}}
        self.apply("StorageCluster", "storageclusters", self.name, spec)
        self.wait_online(*wanted, timeout_s=timeout_s)

    def wait_online(self, *names: str, timeout_s: float = 30) -> None:
        """Wait until the master sees these agents (default: all)."""
        wanted = set(names or self.agents)

        def online() -> bool:
            nodes = self._ask_status().get("nodes", [])
            return wanted <= {node["name"] for node in nodes if node["online"]}

        wait_until(online, f"online {sorted(wanted)}", timeout_s, self._ask_status)

    def primaries(self) -> dict[str, int]:
        """How many partitions each agent is primary of, as the master's rows say."""
        return {node["name"]: node["primaries"] for node in self.api.status()["nodes"]}

    def agent_with_most_primaries(self) -> Agent:
        """The one whose loss is felt most."""
        primaries = self.primaries()
        return self.agents[max(primaries, key=primaries.__getitem__)]

    def wait_left(self, name: str, timeout_s: float = 30) -> None:
        """Wait until the master knows that this agent is gone."""

        def left() -> bool:
            nodes = self._ask_status().get("nodes", [])
            return any(node["name"] == name and not node["online"] for node in nodes)

        wait_until(left, f"loss of {name} at the master", timeout_s, self._ask_status)

    # -- declared objects --------------------------------------------------------------------------

    def apply(self, kind: str, plural: str, name: str, spec: Json) -> Json:
        """Declare one object; ApiError when it is refused."""
        body = {"apiVersion": _API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
        return self.api.put(plural, name, body)

    def apply_zone(self, name: str, *, wait_s: float = _AVAILABLE_S_MAX, **spec: Any) -> Json:
        """Declare a zone of this cluster (fields as in the manifest) and wait until it serves.

        Unless said otherwise: `partitions` 16, `replicas` as many as agents, at most 3, and a spare
        agent takes the place of one that has left after 10 s.
        """
        defaults = {
            "partitions": 16,
            "replicas": min(3, len(self.agents)),
            "dataNodesAutoAdjustScaleDownSeconds": 10,
        }
        whole = {"clusterRef": {"name": self.name}, **defaults, **spec}
        self.apply("Zone", "zones", name, whole)
        return self.wait_available(name, wait_s)

    def zone(self, name: str) -> Json:
        """The zone with its status."""
        return self.api.get("zones", name)

    def delete_zone(self, name: str, timeout_s: float = 30) -> None:
        """Delete the zone and wait until it is gone."""
        self.api.delete("zones", name)
        wait_until(lambda: not self._exists("zones", name), f"end of zone {name}", timeout_s)

    def wait_available(self, zone: str, timeout_s: float = _AVAILABLE_S_MAX) -> Json:
        """Wait until every partition serves; the zone as it is then."""
        return self._wait_conditions(zone, {"Available": "True"}, timeout_s)

    def wait_quiet(self, zone: str, timeout_s: float = _QUIET_S_MAX) -> Json:
        """Wait until every partition serves with all its copies and nothing moves."""
        wanted = {"Available": "True", "FullyReplicated": "True", "Rebalancing": "False"}
        return self._wait_conditions(zone, wanted, timeout_s)

    def zone_status(self, name: str) -> Json:
        """The zone as /status tells it: partitions by state, migrations, copies made."""
        zones = self.api.status()["zones"]
        return next(zone for zone in zones if zone["name"] == name)

    # -- clients -----------------------------------------------------------------------------------

    def endpoints(self, zone: str) -> list[tuple[str, int]]:
        """host and port of every agent's client port of the zone."""
        return [split_address(address) for address in self.zone(zone)["status"]["endpoints"]]

    def port(self, zone: str, agent: str) -> int:
        """Client port of the zone on one agent."""
        return int(self.zone(zone)["status"]["ports"][agent])

    def client(self, zone: str, *, first: Sequence[str] = (), **options: Any) -> RedisCluster:
        """A stock Redis Cluster client (redis-py); closed when the cluster ends, at the latest.

        It asks the agents `first` (all, unless some are named) who is primary of what.
        `options` are its own: protocol=2|3, socket_timeout, retry …
        """
        make: Any = ClusterNode  # its constructor ships without types
        endpoints = [(self.host, self.port(zone, name)) for name in first] or self.endpoints(zone)
        nodes = [make(host, port) for host, port in endpoints]
        settings: dict[str, Any] = {"socket_timeout": 20, "socket_connect_timeout": 5}
        client = RedisCluster(startup_nodes=nodes, **{**settings, **options})
        self._clients.append(client)
        return client

    # -- for those who look at a failure -----------------------------------------------------------

    def logs(self, line_count: int = 40) -> str:
        """The last lines of every process."""
        parts = [f"--- {each.name} ---\n{each.log_tail(line_count)}" for each in self.processes]
        return "\n".join(parts)

    # -- asking ------------------------------------------------------------------------------------

    def _wait_conditions(self, zone: str, wanted: dict[str, str], timeout_s: float) -> Json:
        def reached() -> Json | None:
            found = self._ask_zone(zone)
            if found is None:
                return None
            status = found.get("status", {})
            fresh = status.get("observedGeneration", 0) >= found["metadata"]["generation"]
            conditions = {each["type"]: each for each in status.get("conditions", [])}
            said = {name: each["status"] for name, each in conditions.items()}
            held = all(said.get(name) == value for name, value in wanted.items())
            # A zone serves a moment before the last agent has said where it listens for clients.
            refused = conditions.get("RefusedByAgents", {}).get("message", "")
            silent = {*status.get("dataNodes", [])} - {*status.get("ports", {})}
            held = held and all(f"agent {node}:" in refused for node in silent)
            return found if fresh and held else None

        def seen() -> object:
            found = self._ask_zone(zone)
            return None if found is None else found.get("status")

        return wait_until(reached, f"zone {zone} with {wanted}", timeout_s, seen) or {}

    def _ask_zone(self, name: str) -> Json | None:
        try:
            return self.zone(name)
        except OSError:  # the operator is being restarted
            return None

    def _ask_status(self) -> Json:
        try:
            return self.api.status()
        except OSError as error:
            return {"problem": str(error)}

    def _exists(self, plural: str, name: str) -> bool:
        try:
            self.api.get(plural, name)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True
