"""A cluster whose processes reach each other through a proxy, so that its network can be hurt."""

from quorate_cluster.cluster import Cluster
from quorate_cluster.processes import HOST
from quorate_cluster.proxy import OPERATOR, Proxy


class ProxiedCluster(Cluster):
    """As Cluster; `proxy` is between the operator and agents, and between any two agents.

    Clients and tools are not cut off: they dial agents themselves.
    """

    def start(self) -> None:
        self.proxy = Proxy()
        super().start()

    def stop(self) -> None:
        super().stop()
        self.proxy.close()

    def declare(self, *names: str, timeout_s: float = 30) -> None:
        """As Cluster.declare, by the addresses that the proxy gives the agents."""
        for reader in self.agents:
            for agent in self.agents.values():
                if agent.name != reader:
                    self.proxy.road(reader, agent.name, agent.peer_port)
        agents = [self.agents[name] for name in names or self.agents]
        ports = [self.proxy.road(OPERATOR, agent.name, agent.peer_port) for agent in agents]
        spec = {"external": {"addresses": [f"{HOST}:{port}" for port in ports]}}
        self.apply("StorageCluster", "storageclusters", self.name, spec)
        self.wait_online(*names, timeout_s=timeout_s)


def cuts_around(cluster: ProxiedCluster, name: str) -> list[tuple[str, str]]:
    """Every direction between one agent and all others."""
    others = [OPERATOR, *(other for other in cluster.agents if other != name)]
    return [pair for other in others for pair in ((name, other), (other, name))]
