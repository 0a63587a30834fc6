"""A managed cluster on a real API server, with each pod's agent as a process."""

from collections.abc import Callable
from typing import Any

from redis.cluster import ClusterNode, RedisCluster

from quorate_cluster.digests import Digests, digests_of
from quorate_cluster.names import Names
from quorate_cluster.road import QUIET, Road, sound_operator
from quorate_cluster.waiting import wait_until
from quorate_control_plane.control_plane import ControlPlane
from quorate_operator.owned.agent_names import PEER_PORT
from quorate_owned.pod_processes import PodProcesses

Json = dict[str, Any]
PARTITIONS = 32
ZONE = "sessions"
OF_AGENTS = "app.kubernetes.io/component=agent"


class Sized:
    """A managed cluster that holds a zone with three copies."""

    def __init__(self, plane: ControlPlane, namespace: str, names: Names) -> None:
        self.plane = plane
        self.road = Road(plane, namespace)
        self.pods = PodProcesses(self.road, names)
        self._names = names
        self._clients: list[RedisCluster] = []

    def start(self, agents: int = 3, **of_zone: Any) -> None:
        """Have so many agents hold a zone, whose spec has also `of_zone`."""
        road, names = self.road, self._names
        road.use_example_role()
        self.pods.start()
        road.start_operator(program=lambda *words: [*names.prefix, *sound_operator(*words)])
        storage = {"size": "1Gi"}
        managed = {"replicas": agents, "image": "localhost/quorate-agent:1", "storage": storage}
        road.apply("StorageCluster", "main", managed=managed)
        road.apply(
            "Zone", ZONE, clusterRef={"name": "main"}, partitions=PARTITIONS, replicas=3,
            storage="Persistent", **of_zone,
        )  # fmt: skip
        self.wait_size(agents)

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.pods.close()
        self.road.close()
        self.pods.forget()

    def scale(self, replicas: int) -> None:
        self.road.kubectl("scale", "storagecluster", "main", f"--replicas={replicas}")

    def wait_size(self, agents: int) -> None:
        """Until these are all, and hold everything."""
        self.wait(lambda: self._is_sized(agents), f"{agents} agents at rest", 120)

    def _is_sized(self, agents: int) -> bool:
        cluster = self.road.get("storagecluster", "main") or {}
        status = cluster.get("status", {})
        states = self.road.conditions("storagecluster", "main")
        return (
            status.get("observedGeneration") == cluster["metadata"]["generation"]
            and {"Ready": "True", "AgentsUpdated": "True"}.items() <= states.items()
            and status["online"] == f"{agents}/{agents}"
            and len(status["members"]) == len(self.names("statefulsets")) == agents
            and QUIET.items() <= self.road.conditions(name=ZONE).items()
        )

    def wait(self, ask: Callable[[], object], what: str, timeout_s: float = 60) -> None:
        def facts() -> object:
            status = self.road.status("storagecluster", "main"), self.road.status("zone", ZONE)
            tails = [process.log_tail() for _, process in self.pods.running.values()]
            return *status, self.road.logs(), *tails

        wait_until(lambda: bool(ask()), what, timeout_s, facts)

    def names(self, kind: str) -> list[str]:
        found = self.road.names(kind, OF_AGENTS)
        return sorted(each.rpartition("/")[2] for each in found)

    def claims(self) -> dict[str, str]:
        """name -> uid."""
        claims = self.road.items("persistentvolumeclaims")
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in claims}

    def primaries(self) -> list[int]:
        members = self.road.status("storagecluster", "main")["members"]
        return [each["primaries"] for each in members]

    def domains_known(self) -> tuple[str, str]:
        """Status and message of the condition."""
        for each in self.road.status("storagecluster", "main").get("conditions", []):
            if each["type"] == "FailureDomainsKnown":
                return each["status"], each["message"]
        return "", ""

    def racks(self) -> dict[str, str]:
        """agent -> failure domain, as it is registered."""
        nodes = self.road.items("storagenodes")
        return {e["spec"]["node"]: e["spec"].get("failureDomain", "") for e in nodes}

    def attributes(self, name: str) -> dict[str, str]:
        """agent -> that attribute, as it is registered."""
        nodes = self.road.items("storagenodes")
        return {e["spec"]["node"]: e["spec"].get("attributes", {}).get(name, "") for e in nodes}

    def rows(self) -> list[Json]:
        tables = self.road.items("partitiontables")
        return [row for table in tables for row in table["spec"].get("rows", ())]

    def digests(self) -> Digests:
        """By agent, of the partitions that it owns."""
        secret = self.road.get("secret", "main-quorate")
        assert secret is not None
        owned: dict[str, list[int]] = {}
        for row in self.rows():
            for agent in row["replicas"]:
                owned.setdefault(agent, []).append(row["partition"])
        at = {each: f"{self.pods.address(f'main-{each}-0')}:{PEER_PORT}" for each in sorted(owned)}
        return digests_of("main", secret["data"], ZONE, owned, at)

    # -- what Pulses ask for -----------------------------------------------------------------------

    def zone(self, name: str) -> Json:
        found = self.road.get("zone", name)
        assert found is not None
        return found

    def client(self, zone: str, **options: Any) -> RedisCluster:
        make: Any = ClusterNode  # its constructor ships without types
        told = [each.rsplit(":", 1) for each in self.road.status("zone", zone)["endpoints"]]
        nodes = [make(host, int(port)) for host, port in told]
        client = RedisCluster(startup_nodes=nodes, **{"socket_timeout": 8, **options})
        self._clients.append(client)
        return client
