"""The operator's present knowledge of a cluster: its agents, zones, migrations."""

from urllib.parse import quote

import msgspec

from quorate.protocol.status import NodeStatus, ZoneStatus
from quorate.wire.jobs.zone_history import ExportTold
from quorate_cli.objects.operator_api import OperatorApi


class ZoneBackups(msgspec.Struct, frozen=True):
    """The last verified backup and restore of a zone; None: none is known.

    `scheduled`: whether a ScheduledZoneBackup makes backups; None: that cannot be read.
    """

    zone: str
    last_backup: ExportTold | None
    last_restore: ExportTold | None
    scheduled: bool | None


class ClusterState(msgspec.Struct, frozen=True):
    """Answer to GET /status.  `problem`: why the cluster is not led; empty while it is.

    `notes`: sentences on other deviations from what is declared, if only conditions tell them.
    `backups`: of each zone; empty without Kubernetes.
    """

    cluster: str
    identity: str
    problem: str
    master_term: int
    nodes: tuple[NodeStatus, ...]
    zones: tuple[ZoneStatus, ...]
    notes: tuple[str, ...] = ()
    backups: tuple[ZoneBackups, ...] = ()

    def node(self, name: str) -> NodeStatus | None:
        """Return the agent of that name, None if there is none."""
        return next((node for node in self.nodes if node.name == name), None)

    def zone(self, name: str) -> ZoneStatus | None:
        """Return the zone of that name, None if there is none."""
        return next((zone for zone in self.zones if zone.name == name), None)


def fetch_state(api: OperatorApi, cluster: str) -> ClusterState:
    """Return the state of one cluster."""
    return api.get(f"/status?cluster={quote(cluster, safe='')}", ClusterState)
