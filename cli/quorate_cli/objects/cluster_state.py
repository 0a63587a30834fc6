"""The operator's present knowledge of a cluster: its agents, zones, migrations."""

from urllib.parse import quote

import msgspec

from quorate.protocol.status import NodeStatus, ZoneStatus
from quorate_cli.objects.operator_api import OperatorApi


class ClusterState(msgspec.Struct, frozen=True):
    """Answer to GET /status.  `problem`: why the cluster is not led; empty while it is.

    `notes`: sentences on other deviations from what is declared, if only conditions tell them.
    """

    cluster: str
    identity: str
    problem: str
    master_term: int
    nodes: tuple[NodeStatus, ...]
    zones: tuple[ZoneStatus, ...]
    notes: tuple[str, ...] = ()

    def node(self, name: str) -> NodeStatus | None:
        """Return the agent of that name, None if there is none."""
        return next((node for node in self.nodes if node.name == name), None)

    def zone(self, name: str) -> ZoneStatus | None:
        """Return the zone of that name, None if there is none."""
        return next((zone for zone in self.zones if zone.name == name), None)


def fetch_state(api: OperatorApi, cluster: str) -> ClusterState:
    """Return the state of one cluster."""
    return api.get(f"/status?cluster={quote(cluster, safe='')}", ClusterState)
