"""One zone: is it served, is it whole, what moves, and which of its agents is the cause?"""

from quorate_dashboards.commands import commands
from quorate_dashboards.elements import NOT_ZERO, Column, Page, Query
from quorate_dashboards.overview import TO_AGENT
from quorate_dashboards.queries import (
    AGENT,
    STATE_WORDS,
    ZONE,
    agent_state,
    count,
    greatest,
    quantile,
    rate,
    signs_of_trouble,
    total,
)

_CLUSTER = 'namespace="$namespace", cluster="$cluster"'
_OF = f'{_CLUSTER}, zone="$zone"'
_HAS_COPIES = f"and on ({AGENT}) last_over_time(quorate_copies{{{_OF}}}[1h])"
_PARTITIONS = "quorate_operator_partitions"
_UNAVAILABLE = "quorate_operator_unavailable_partitions"
_MIGRATIONS = "quorate_operator_migrations"


def zone() -> Page:
    """The dashboard."""
    page = Page(
        "quorate-zone",
        "Quorate / Zone",
        "Is this zone served and whole, and which of its agents is the cause if it is not?",
    )
    page.variable("namespace", "Namespace", _PARTITIONS)
    page.variable("cluster", "Cluster", f'{_PARTITIONS}{{namespace="$namespace"}}')
    page.variable("zone", "Zone", f"{_PARTITIONS}{{{_CLUSTER}}}")
    _now(page)
    _agents(page)
    _commands(page)
    _states(page)
    _moves(page)
    _copies(page)
    _validations(page)
    _backups(page)
    return page


def _now(page: Page) -> None:
    page.row("Is it served, and is it whole?")
    for title, question, metric, matcher, colour in (
        (
            "All copies there",
            "How many partitions have all the copies that are declared?",
            _PARTITIONS,
            'state="available"',
            "",
        ),
        (
            "Too few copies",
            "How many partitions are served by fewer copies than declared?",
            _PARTITIONS,
            'state="degraded"',
            "orange",
        ),
        (
            "Waiting",
            "How many partitions wait for a quorum or for a primary, and serve nobody?",
            _UNAVAILABLE,
            'state="waiting"',
            "red",
        ),
        (
            "Read only",
            "How many partitions have no quorum, but a copy that answers READONLY connections?",
            _UNAVAILABLE,
            'state="read_only"',
            "red",
        ),
        (
            "Lost",
            "How many partitions have lost every copy for good, and wait for a person?",
            _UNAVAILABLE,
            'state="lost"',
            "red",
        ),
    ):
        page.stat(
            title,
            question,
            Query(greatest(metric, f"{_OF}, {matcher}", ZONE), ""),
            steps=[(1, colour)] if colour else (),
        )
    page.stat(
        "Loss accepted",
        "Did partitions go on without the majority of their copies, and are they not whole again?",
        Query(greatest("quorate_operator_data_loss_accepted", _OF, ZONE), ""),
        words={0: ("no", "green"), 1: ("yes", "red")},
    )
    page.stat(
        "Agents without room",
        "How many agents have no room for more of this zone?",
        Query(greatest("quorate_operator_full_agents", _OF, ZONE), ""),
        steps=NOT_ZERO,
    )
    page.stat(
        "Agents refusing it",
        "How many agents are online and refuse this zone? The zone's status has their reasons.",
        Query(greatest("quorate_operator_refusing_agents", _OF, ZONE), ""),
        steps=NOT_ZERO,
    )


def _agents(page: Page) -> None:
    page.row("Which agent is the cause?")
    page.table(
        "Agents of this zone in trouble",
        "Which agent with copies of this zone is sick, and by which sign? Click its name.",
        ["namespace", "cluster", "agent", "sign"],
        Column("", f"({signs_of_trouble(_CLUSTER)}) {_HAS_COPIES}"),
        link=TO_AGENT,
        nothing="No agent of this zone shows a sign of trouble",
        width=10,
    )
    page.table(
        "Agents of this zone",
        "How does one agent differ from the others? Click its name.",
        ["namespace", "cluster", "agent"],
        Column("state", f"({agent_state(_CLUSTER)}) {_HAS_COPIES}", words=STATE_WORDS),
        Column("primaries", greatest("quorate_primaries", _OF, AGENT)),
        Column("copies", greatest("quorate_copies", _OF, AGENT)),
        Column(
            "heartbeat p99",
            f"{quantile(0.99, 'quorate_heartbeat_seconds', _CLUSTER, AGENT)} {_HAS_COPIES}",
            unit="s",
            steps=[(1, "orange"), (1.9, "red")],
        ),
        Column(
            "room",
            greatest("quorate_storage_full", _OF, AGENT),
            words={0: ("yes", "transparent"), 1: ("none", "red")},
        ),
        Column(
            "serves",
            greatest("quorate_isolated", _OF, AGENT),
            words={0: ("yes", "transparent"), 1: ("cut off", "red")},
        ),
        link=TO_AGENT,
        nothing="No agent has copies of this zone",
        width=14,
    )


def _commands(page: Page) -> None:
    page.row("What do clients do with it?")
    commands(page, _OF)
    page.lines(
        "Commands by agent",
        "Is the load even? One agent with most of it serves a key that is asked for very often.",
        Query(rate("quorate_commands_total", _OF, "agent"), "{{agent}}"),
        unit="reqps",
    )


def _states(page: Page) -> None:
    page.row("Since when?")
    page.lines(
        "Partitions by state",
        "Since when are partitions not served, or served by too few copies?",
        Query(greatest(_PARTITIONS, _OF, "state"), "{{state}}"),
        stacked=True,
    )
    page.lines(
        "Partitions that no primary serves",
        "Why are they not served? waiting: for a quorum or a primary. lost: all copies are gone.",
        Query(greatest(_UNAVAILABLE, _OF, "state"), "{{state}}"),
        stacked=True,
    )
    page.lines(
        "Failovers",
        "How many partitions were taken over without a hand-over, because their primary was gone?",
        Query(count("quorate_operator_failovers_total", _OF), "failovers"),
    )
    page.lines(
        "Events",
        "What happened to this zone, and when? docs/events.md explains each reason.",
        Query(
            count("quorate_events_total", 'namespace="$namespace", zone="$zone"', "reason")
            + " > 0",
            "{{reason}}",
        ),
    )


def _moves(page: Page) -> None:
    page.row("What moves?")
    page.lines(
        "Migrations",
        "Do migrations get done? stuck: failed at least three times in succession.",
        Query(greatest(_MIGRATIONS, _OF, "state"), "{{state}}"),
        Query(greatest("quorate_operator_stuck_migrations", _OF, "zone"), "stuck"),
    )
    page.lines(
        "Migrations that ended",
        "How did migrations end in each step of this graph?",
        Query(count("quorate_operator_migrations_ended_total", _OF, "outcome"), "{{outcome}}"),
    )
    page.lines(
        "Data moved",
        "How much data is moved between agents, and how much of it in vain?",
        Query(rate("quorate_operator_moved_bytes_total", _OF), "moved"),
        Query(rate("quorate_operator_wasted_bytes_total", _OF), "in vain"),
        unit="binBps",
    )


def _copies(page: Page) -> None:
    page.row("Who has it, and how did copies catch up?")
    page.lines(
        "Primaries by agent",
        "Is the load spread, and when did primaries move to other agents?",
        Query(greatest("quorate_primaries", _OF, "agent"), "{{agent}}"),
        stacked=True,
    )
    page.lines(
        "Copies by agent",
        "Are copies spread evenly, and when were they made elsewhere?",
        Query(greatest("quorate_copies", _OF, "agent"), "{{agent}}"),
        stacked=True,
    )
    page.lines(
        "Copies that caught up",
        "Did copies catch up from the log, or had all their rows to be sent, and why?",
        Query(count("quorate_delta_copies_total", _OF), "from the log"),
        Query(count("quorate_full_copies_total", _OF, "reason"), "all rows: {{reason}}"),
    )
    page.lines(
        "Replication lag, by agent",
        "How many updates does the copy furthest behind lack, of partitions that an agent serves?",
        Query(greatest("quorate_replication_lag_updates", _OF, "agent"), "{{agent}}"),
    )
    page.lines(
        "Reach of the logs, by agent",
        "For how long may a copy be away and still catch up from the log, without a full copy?"
        " At most an hour.",
        Query(greatest("quorate_log_reach_seconds", _OF, "agent"), "{{agent}}"),
        unit="s",
    )
    page.lines(
        "Updates in the shortest log, by agent",
        "How many updates may such a copy lack? No data: no log was cut, they have all there is.",
        Query(greatest("quorate_log_reach_updates", _OF, "agent"), "{{agent}}"),
    )
    page.lines(
        "Bytes in the shortest log, by agent",
        "How many bytes of updates may such a copy lack?",
        Query(greatest("quorate_log_reach_bytes", _OF, "agent"), "{{agent}}"),
        unit="bytes",
    )
    page.lines(
        "Keys and values, by agent",
        "How much data does the zone have on each agent, all copies together?",
        Query(greatest("quorate_data_bytes", _OF, "agent"), "{{agent}}"),
        unit="bytes",
        stacked=True,
    )
    page.lines(
        "Update logs, by agent",
        "How much do the logs take? At most 64 MiB on each agent.",
        Query(greatest("quorate_log_bytes", _OF, "agent"), "{{agent}}"),
        unit="bytes",
    )
    page.lines(
        "Disk, by agent",
        "How much do the zone's files take on the disk of each agent?",
        Query(greatest("quorate_zone_disk_bytes", _OF, "agent"), "{{agent}}"),
        unit="bytes",
        stacked=True,
    )
    page.lines(
        "Rows set aside, by agent",
        "How much data was set aside after resets, and waits for a person to look at it?",
        Query(greatest("quorate_set_aside_bytes", _OF, "agent"), "{{agent}}"),
        unit="bytes",
    )
    page.lines(
        "Copies with rows set aside",
        "Of how many copies were rows set aside after resets?",
        Query(total("quorate_set_aside_copies", _OF, AGENT, "agent"), "{{agent}}"),
    )


def _validations(page: Page) -> None:
    page.row("Do its copies agree? (last DataValidation, on Kubernetes)")
    ended = greatest("quorate_operator_validation_end_timestamp_seconds", _OF, ZONE)
    page.stat(
        "Age of the last validation",
        "How long ago did the last validation end? No data: there was none.",
        Query(f"time() - {ended}", ""),
        unit="s",
        width=4,
    )
    page.timeline(
        "Verdict",
        "What did the last validation find, and since when?",
        Query(greatest("quorate_operator_validation_verdict", _OF, "verdict"), "{{verdict}}"),
        {0: ("no", "blue"), 1: ("yes", "green")},
        width=10,
    )
    page.lines(
        "Differences by class",
        "How many partitions or keys differ, and how? docs/metrics.md explains the classes.",
        Query(greatest("quorate_operator_validation_differences", _OF, "class"), "{{class}}"),
        width=10,
    )


def _backups(page: Page) -> None:
    page.row("Could it be restored? (last verified ZoneBackup, on Kubernetes)")
    for title, question, metric in (
        (
            "Age of the last backup",
            "How old is what the last verified backup has? No data: there is none.",
            "quorate_operator_backup_timestamp_seconds",
        ),
        (
            "Time since the last restore",
            "How long ago did the last restore into this zone end? No data: there was none.",
            "quorate_operator_restore_end_timestamp_seconds",
        ),
    ):
        page.stat(
            title,
            question,
            Query(f"time() - {greatest(metric, _OF, ZONE)}", ""),
            unit="s",
            width=4,
        )
    backup = greatest("quorate_operator_backup_timestamp_seconds", _OF, ZONE)
    due = greatest("quorate_operator_backup_due_timestamp_seconds", _OF, ZONE)
    page.lines(
        "Age of the last backup, and what the schedule allows",
        "Is the last backup older than the last but one time of the schedule? Then two runs in"
        " succession have failed.",
        Query(f"time() - {backup}", "age"),
        Query(f"time() - {due}", "allowed"),
        unit="s",
        width=16,
    )
    page.lines(
        "Duration of the last backup",
        "How long did the last verified backup take, from its Job until the operator saw its end"
        " (with the wait for its pod)? Does it still fit into the time between two?",
        Query(greatest("quorate_operator_backup_duration_seconds", _OF, ZONE), "duration"),
        unit="s",
    )
    page.lines(
        "Rows of the last backup",
        "Has the last verified backup as many rows as the zone is to have?",
        Query(greatest("quorate_operator_backup_rows", _OF, ZONE), "rows"),
    )
    page.lines(
        "Runs that ended",
        "Which validations, backups, restores and repairs of this zone ended, and how?",
        Query(
            count("quorate_operator_runs_ended_total", _OF, "kind, outcome"), "{{kind}} {{outcome}}"
        ),
    )
