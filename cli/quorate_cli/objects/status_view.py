"""Shows a cluster, its zones and its migrations on a terminal."""

import time
from collections.abc import Callable, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from quorate.facts.time import duration_text, wall_ms_of
from quorate.planning.target.data_nodes import TimerKind
from quorate.protocol.status import (
    PHASE_UNKNOWN,
    MigrationStatus,
    NodeStatus,
    TimerStatus,
    ZoneStatus,
    unrecorded_zones,
)
from quorate.wire.jobs.zone_history import ExportTold
from quorate_cli.objects.cluster_state import ClusterState, ZoneBackups
from quorate_cli.terminal.figures import moment, size
from quorate_cli.terminal.problem import Problem

GOOD, BAD, BUSY, QUIET = "green", "red", "yellow", "dim"
MIGRATIONS_SHOWN = 12
POLL_S = 0.25
NO_CLUSTER = "no cluster is declared; create one: quorate dev up"
NO_ZONE = "no zone is declared; declare one: quorate apply -f examples/zone.yaml"


class StatusView:
    """Renders successive looks.

    It remembers how many migrations there were to do, so that a bar can show how many are done.
    """

    def __init__(self, no_cluster: str = NO_CLUSTER, no_zone: str = NO_ZONE) -> None:
        """`no_cluster`, `no_zone`: the text if there is none."""
        self._no_cluster = no_cluster
        self._no_zone = no_zone
        self._most: dict[str, int] = {}

    def render(self, states: Sequence[ClusterState]) -> RenderableType:
        """Return everything that can be shown now."""
        if not states:
            return Text(self._no_cluster)
        parts: list[RenderableType] = []
        for state in states:
            parts.append(_nodes(state))
            if state.zones:
                parts.append(_zones(state))
            else:
                parts.append(Text(self._no_zone))
            for zone in state.zones:
                parts.extend(self._migrations(zone))
            parts.extend(_sentences(state))
        return Group(*parts)

    def _migrations(self, zone: ZoneStatus) -> list[RenderableType]:
        left = zone.migrations_running + zone.migrations_queued
        if not left:
            self._most.pop(zone.uid, None)
            return []
        is_unknown = zone.phase == PHASE_UNKNOWN
        if is_unknown:
            self._most.pop(zone.uid, None)  # those that wait are not counted, and are not done
        most = self._most[zone.uid] = max(self._most.get(zone.uid, 0), left)
        if left == most and not zone.migrations:
            # A lost agent is waited for, as after a kill: there is no progress to show.
            many = f"{left} partitions are not placed as planned"
            waits = Text(f"zone {zone.name}: {many}, and nothing is being moved now", BUSY)
            return [waits, *_intents(zone)]
        table = Table.grid(padding=(0, 1))
        for _ in range(3):
            table.add_column(no_wrap=True)
        # One look tells how much is left to do, not how much there was.
        running, queued = zone.migrations_running, "?" if is_unknown else zone.migrations_queued
        done = f"{most - left} of {most} migrations done"
        table.add_row(
            f"zone {zone.name}: "
            + (done if left < most else f"{running} migrations running, {queued} waiting"),
            ProgressBar(total=most, completed=most - left, width=20) if left < most else "",
            f"{size(zone.bytes_moved)} moved so far" if zone.bytes_moved else "",
        )
        for migration in zone.migrations[:MIGRATIONS_SHOWN]:
            table.add_row(*_migration(migration))
        if len(zone.migrations) > MIGRATIONS_SHOWN:
            table.add_row(f"  and {len(zone.migrations) - MIGRATIONS_SHOWN} more", "", "")
        return [table, *_intents(zone)]


def show(look: Callable[[], RenderableType], watch: bool, console: Console) -> None:
    """Show one look, or look after look until Ctrl-C."""
    if not watch:
        console.print(look())
        return
    with Live(console=console, auto_refresh=False) as live:
        while True:
            try:
                seen: RenderableType = look()
            except Problem as problem:
                seen = str(problem)  # an operator that restarts is waited for
            live.update(seen, refresh=True)
            time.sleep(POLL_S)


def _migration(migration: MigrationStatus) -> tuple[RenderableType, ...]:
    road = " > ".join(node for node in (migration.source, migration.destination) if node)
    return (
        f"  partition {migration.partition} {migration.kind} {road} (row {migration.version})",
        ProgressBar(total=migration.bytes_total, completed=migration.bytes_done, width=20)
        if migration.bytes_total
        else "",
        migration.phase,
    )


def _intents(zone: ZoneStatus) -> list[RenderableType]:
    """Return what is planned for partitions that have more to do than is under way."""
    lines: list[RenderableType] = [Text(f"  {intent.sentence}") for intent in zone.intents]
    more = zone.planned - len(zone.intents)
    if lines and more > 0:
        lines.append(Text(f"  and {more} more with something planned"))
    return lines


def _nodes(state: ClusterState) -> Table:
    online = sum(node.online for node in state.nodes)
    title = f"cluster {state.cluster}: {online} of {len(state.nodes)} agents online"
    table = Table(title=f"{title}, master term {state.master_term}", title_justify="left")
    for heading in ("agent", "state", "address", "store"):
        table.add_column(heading)
    for heading in ("primaries", "copies"):
        table.add_column(heading, justify="right")
    for node in state.nodes:
        table.add_row(*_node(node))
    return table


def _node(node: NodeStatus) -> tuple[RenderableType, ...]:
    return (
        node.name,
        Text(node.state, GOOD if node.online else BAD),
        node.address,
        node.store[:8],
        str(node.primaries),
        str(node.owners),
    )


def _zones(state: ClusterState) -> Table:
    table = Table(title="zones", title_justify="left")
    for heading in ("zone", "phase"):
        table.add_column(heading)
    headings = ["serving\nfully", "de-\ngraded", "un-\navailable"]
    is_moving = any(zone.migrations_running or zone.planned for zone in state.zones)
    headings += ["pending\nplanned"] if is_moving else []  # else the room is for ports
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("client ports")
    known = {node.name for node in state.nodes}
    for zone in state.zones:
        ports = [port for node, port in sorted(zone.ports.items()) if node in known]
        planned = "?" if zone.phase == PHASE_UNKNOWN else zone.planned
        table.add_row(
            zone.name,
            zone.phase,
            *_partitions(zone),
            *([f"{zone.migrations_running} / {planned}"] if is_moving else []),
            " ".join(map(str, ports)),
        )
    return table


def _partitions(zone: ZoneStatus) -> list[Text]:
    """Return how many are served fully, degraded and unavailable."""
    parts = [(zone.read_only, "read-only"), (zone.lost, "lost")]
    named = ", ".join(f"{count} {what}" for count, what in parts if count)
    more = f" ({named})" if named else ""
    if zone.phase == PHASE_UNKNOWN:
        style = BAD if zone.lost else BUSY
        return [Text(f"? of {zone.partitions}", BUSY), Text("?", BUSY), Text(f"?{more}", style)]
    return [
        Text(f"{zone.available} of {zone.partitions}", GOOD),
        Text(str(zone.degraded), BUSY if zone.degraded else QUIET),
        Text(f"{zone.unavailable}{more}", BAD if zone.unavailable else QUIET),
    ]


def timer_sentence(timer: TimerStatus) -> str:
    """Return what a zone's timer will do, and when."""
    who, is_up = ", ".join(timer.nodes), timer.kind is TimerKind.SCALE_UP
    happened = f"{who} {'joined' if is_up else 'left'}"
    if timer.kind is TimerKind.RESET:
        return f"{happened}: {_reset_sentence(timer.due_ms)}"
    if timer.due_ms is None:
        field = f"dataNodesAutoAdjust{timer.kind.value}Seconds"
        return f"{happened}; {'no copies go there' if is_up else 'copies stay'}: {field} is Never"
    at = moment(timer.due_ms)
    return f"{happened}; {'copies go there' if is_up else 'copies are made elsewhere'} from {at} on"


def _reset_sentence(due_ms: int | None) -> str:
    if due_ms is None:
        return (
            "partitions without a majority wait: partitionDistributionResetTimeoutSeconds is Never"
        )
    return f"partitions without a majority narrow to what is left from {moment(due_ms)} on"


def backups_sentence(backups: ZoneBackups, now_ms: int) -> str:
    """Return the age of the last backup and restore; empty if there is nothing to say."""
    told = []
    if backups.last_backup is not None:
        age = _age(backups.last_backup, now_ms)
        told.append(f"last backup {age} ({backups.last_backup.place})")
    elif backups.scheduled:
        told.append("no backup yet, though a ScheduledZoneBackup is to make them")
    if backups.last_restore is not None:
        told.append(f"last verified restore {_age(backups.last_restore, now_ms)}")
    return ", ".join(told)


def _age(export: ExportTold, now_ms: int) -> str:
    time_ms = wall_ms_of(export.time)
    return f"{duration_text(now_ms - time_ms)} ago" if time_ms is not None else "at an unknown time"


def _aside_sentence(zone: ZoneStatus) -> str:
    told = ", ".join(f"{node} {copies}" for node, (copies, _) in zone.aside.items())
    whole = sum(copies for copies, _ in zone.aside.values())
    used = size(sum(used for _, used in zone.aside.values()))
    return (
        f"rows of {whole} copies are set aside after resets ({told}; {used}):"
        f" `quorate aside list {zone.name}`"
    )


def unrecorded_sentence(nodes: Sequence[NodeStatus]) -> str:
    """Return which data has no record, and the way out; empty if there is none."""
    zones = unrecorded_zones(nodes)
    if not zones:
        return ""
    return (
        f"agents have data of zones without a record: {zones}: `quorate dev recover` (elsewhere"
        " `quorate-operator recover`) declares them again. Several may have one name: before you"
        " delete one by `quorate delete zone NAME`, compare this id with metadata.uid of"
        " `quorate get zone NAME -o yaml`"
    )


def _sentences(state: ClusterState) -> list[RenderableType]:
    """Return what is waited for, if not all is as declared."""
    lines: list[RenderableType] = []
    if state.problem:
        lines.append(Text(f"cluster {state.cluster} is not led: {state.problem}", BAD))
    lines += [Text(f"cluster {state.cluster}: {note}", BUSY) for note in state.notes]
    if said := unrecorded_sentence(state.nodes):
        lines.append(Text(f"cluster {state.cluster}: {said}", BUSY))
    for backups in state.backups:
        if said := backups_sentence(backups, time.time_ns() // 1_000_000):
            is_missing = backups.last_backup is None and backups.scheduled
            lines.append(Text(f"zone {backups.zone}: {said}", BUSY if is_missing else QUIET))
    for zone in state.zones:
        if zone.available < zone.partitions and zone.sentence:
            style = BAD if zone.unavailable else BUSY
            lines.append(Text(f"zone {zone.name}: {zone.sentence}", style))
        for node, why in zone.full.items():
            lines.append(Text(f"zone {zone.name}: agent {node} is full: {why}", BAD))
        lines += [Text(f"zone {zone.name}: {each.sentence}", BUSY) for each in zone.stuck]
        lines += [Text(f"zone {zone.name}: {timer_sentence(each)}", BUSY) for each in zone.timers]
        if zone.data_loss:
            lines.append(Text(f"zone {zone.name}: {zone.data_loss}", BAD))
        if zone.aside:
            lines.append(Text(f"zone {zone.name}: {_aside_sentence(zone)}", BUSY))
        if zone.misfits and zone.misfits not in zone.sentence:
            lines.append(Text(f"zone {zone.name}: {zone.misfits}", BAD))
        for domain, count in zone.spread_violations:
            lines.append(
                Text(
                    f"zone {zone.name}: {count} partitions have two copies in failure domain"
                    f" {domain}: start agents in more domains",
                    BUSY,
                )
            )
    return lines
