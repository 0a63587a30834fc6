"""How a cluster, its zones and what moves between agents look on a terminal."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from quorate.wire.resource import Condition
from quorate.wire.storage_cluster import StorageCluster
from quorate.wire.zone import Zone

GOOD, BAD, BUSY, QUIET = "green", "red", "yellow", "dim"


class StatusView:
    """Renders one look after the other; remembers how much there was to move, so that a bar can say
    how much of it is done."""

    def __init__(self) -> None:
        self._most_left: dict[str, int] = {}

    def render(self, clusters: Sequence[StorageCluster], zones: Sequence[Zone]) -> RenderableType:
        """Everything there is to see now."""
        if not clusters:
            return Text("no cluster is declared: `quorate apply -f examples/cluster.yaml`")
        parts: list[RenderableType] = [_cluster_table(each) for each in clusters]
        if zones:
            parts.append(_zone_table(zones))
        else:
            parts.append(Text("no zone is declared: `quorate apply -f examples/zone.yaml`"))
        parts.extend(self._migrations(zone) for zone in zones)
        parts.extend(_sentences(zone.metadata.name, zone.status.conditions) for zone in zones)
        return Group(*(part for part in parts if part is not None))

    def _migrations(self, zone: Zone) -> RenderableType:
        migrations = zone.status.migrations
        name = zone.metadata.name
        if not migrations.running and not migrations.queued:
            self._most_left.pop(name, None)
            return Text()
        most = max(self._most_left.get(name, 0), migrations.bytes_left, 1)
        self._most_left[name] = most
        line = Table.grid(padding=(0, 1))
        line.add_row(
            f"{name}: moving",
            ProgressBar(total=most, completed=most - migrations.bytes_left, width=40),
            f"{migrations.running} running, {migrations.queued} queued,"
            f" {size(migrations.bytes_left)} left",
        )
        return line


def size(count: int) -> str:
    """A number of bytes for people."""
    value, unit = float(count), "B"
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def _cluster_table(cluster: StorageCluster) -> Table:
    status = cluster.status
    title = f"cluster {cluster.metadata.name}: {status.online or 'no'} agents online"
    if status.master.identity:
        title += f", master {status.master.identity} (term {status.master.term})"
    table = Table(title=title, title_justify="left")
    for heading in ("agent", "state", "address", "store"):
        table.add_column(heading)
    for heading in ("primaries", "copies"):
        table.add_column(heading, justify="right")
    for member in status.members:
        style = GOOD if member.state.lower() == "online" else BAD
        table.add_row(
            member.name,
            Text(member.state, style),
            member.address,
            member.store_id[:8],
            str(member.primaries),
            str(member.owners),
        )
    return table


def _zone_table(zones: Sequence[Zone]) -> Table:
    table = Table(title="zones", title_justify="left")
    table.add_column("zone")
    table.add_column("phase")
    for heading in ("partitions", "available", "degraded", "unavailable", "copies missing"):
        table.add_column(heading, justify="right")
    table.add_column("clients connect to")
    for zone in zones:
        status = zone.status
        missing = sum(int(copies) * count for copies, count in status.under_replicated.items())
        table.add_row(
            zone.metadata.name,
            status.phase or "-",
            str(zone.spec.partitions),
            Text(str(status.partitions.available), GOOD),
            Text(str(status.partitions.degraded), BUSY if status.partitions.degraded else QUIET),
            Text(
                str(status.partitions.unavailable), BAD if status.partitions.unavailable else QUIET
            ),
            Text(str(missing), BUSY if missing else QUIET),
            " ".join(status.endpoints),
        )
    return table


def _sentences(name: str, conditions: Sequence[Condition]) -> RenderableType:
    """What a person should know: conditions that are not as one would have them."""
    lines = [
        Text(f"{name}: {condition.type} {condition.status}: {condition.message}", BUSY)
        for condition in conditions
        if (condition.status == "True") == (condition.type in BAD_WHEN_TRUE)
    ]
    return Group(*lines)


BAD_WHEN_TRUE = ("Rebalancing", "SpreadViolated", "RebalanceStuck", "Degraded", "Stuck")
"""Conditions that say that something is not (yet) as declared; the others say that all is well."""
