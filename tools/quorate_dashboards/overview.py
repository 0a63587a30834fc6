"""The first page of a person on call: is anything wrong, and with which zone or agent?"""

from quorate_dashboards.elements import (
    ABOVE_ZERO,
    NOT_ZERO,
    WARN_ABOVE_ZERO,
    Column,
    Link,
    Page,
    Query,
)
from quorate_dashboards.queries import (
    AGENT,
    CLUSTER,
    IN_CLUSTER,
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

TO_ZONE = Link("zone", "quorate-zone", ["namespace", "cluster", "zone"])
TO_AGENT = Link("agent", "quorate-agent", ["namespace", "cluster", "agent"])

_ALERTS = 'ALERTS{alertname=~"Quorate.+", namespace=~"$namespace|", cluster=~"$cluster|"}'
_NODES = "quorate_operator_nodes"
_PARTITIONS = "quorate_operator_partitions"
_UNAVAILABLE = "quorate_operator_unavailable_partitions"


def overview() -> Page:
    """The dashboard."""
    page = Page(
        "quorate-overview",
        "Quorate / Overview",
        "Is anything wrong, and with which zone or agent? Click a name in a table to look closer.",
    )
    page.variable("namespace", "Namespace", "quorate_master_connected", every=True)
    page.variable(
        "cluster", "Cluster", 'quorate_master_connected{namespace=~"$namespace"}', every=True
    )
    _now(page)
    _zones_and_agents(page)
    _over_time(page)
    return page


def _now(page: Page) -> None:
    page.row("Is anything wrong?")
    page.stat(
        "Alerts firing",
        "How many alerts of Quorate fire? 0 also if Prometheus does not know the rules.",
        Query('count(ALERTS{alertname=~"Quorate.+", alertstate="firing"}) or vector(0)', ""),
        steps=NOT_ZERO,
    )
    page.stat(
        "Without a primary",
        "How many partitions does no primary serve? Their clients wait or are refused. No data: no"
        " operator leads.",
        Query(total(_UNAVAILABLE, IN_CLUSTER, f"{ZONE}, state"), ""),
        steps=NOT_ZERO,
    )
    page.stat(
        "Too few copies",
        "How many partitions are served, but by fewer copies than declared? The next loss may be"
        " one too many.",
        Query(total(_PARTITIONS, f'{IN_CLUSTER}, state="degraded"', ZONE), ""),
        steps=[(1, "orange")],
    )
    page.stat(
        "Commands refused",
        "How many commands per second are answered with CLUSTERDOWN, UNKNOWN or OOM?",
        Query(
            " + ".join(
                rate(metric, IN_CLUSTER)
                for metric in (
                    "quorate_commands_clusterdown_total",
                    "quorate_commands_unknown_total",
                    "quorate_client_memory_refused_total",
                )
            ),
            "",
        ),
        unit="reqps",
        steps=ABOVE_ZERO,
    )
    offline = total(_NODES, f'{IN_CLUSTER}, state="Offline"', CLUSTER)
    page.stat(
        "Agents offline",
        "How many agents does the operator not hear of? No data: no operator leads.",
        Query(f"{offline} or 0 * {total(_NODES, IN_CLUSTER, f'{CLUSTER}, state')}", ""),
        steps=NOT_ZERO,
    )
    full = f"{greatest('quorate_storage_full', IN_CLUSTER, AGENT)}"
    page.stat(
        "Agents without room",
        "How many agents refuse writes because their disk is full?",
        Query(f"sum({full})", ""),
        steps=NOT_ZERO,
    )
    page.stat(
        "Leading operators",
        "Does exactly one process lead, in each namespace of an operator? With none, no failure is"
        " handled.",
        Query("sum by (namespace) (quorate_operator_is_master)", "{{namespace}}"),
        steps=[(2, "red")],
        words={0: ("none", "red")},
    )
    loss = greatest("quorate_operator_data_loss_accepted", IN_CLUSTER, ZONE)
    page.stat(
        "Losses accepted",
        "How many zones went on without the majority of some copies, and are not whole again?",
        Query(f"sum({loss})", ""),
        steps=NOT_ZERO,
    )


def _zones_and_agents(page: Page) -> None:
    page.row("Where?")
    page.table(
        "Agents in trouble",
        "Which agent is sick, and by which sign? Click its name. An agent that was removed on"
        " purpose is listed for an hour.",
        ["namespace", "cluster", "agent", "sign"],
        Column("", signs_of_trouble(IN_CLUSTER)),
        link=TO_AGENT,
        nothing="No agent shows a sign of trouble",
        width=12,
    )
    labels = ["alertname", "alertstate", "severity", "namespace", "cluster", "zone"]
    page.table(
        "Alerts",
        "Which alerts fire, or will soon (pending)? The manual has a page for each: docs/runbooks.",
        labels,
        Column("", f"count by ({', '.join(labels)}) ({_ALERTS})"),
        nothing="No alert fires",
        width=12,
    )
    moves = total("quorate_operator_migrations", IN_CLUSTER, f"{ZONE}, state", ZONE)
    page.table(
        "Zones",
        "Which zone suffers? Click its name.",
        ["namespace", "cluster", "zone"],
        Column(
            "no primary",
            total(_UNAVAILABLE, IN_CLUSTER, f"{ZONE}, state", ZONE),
            steps=NOT_ZERO,
        ),
        Column(
            "too few copies",
            greatest(_PARTITIONS, f'{IN_CLUSTER}, state="degraded"', ZONE),
            steps=[(1, "orange")],
        ),
        Column("all copies there", greatest(_PARTITIONS, f'{IN_CLUSTER}, state="available"', ZONE)),
        Column("migrations", moves),
        Column(
            "stuck migrations",
            greatest("quorate_operator_stuck_migrations", IN_CLUSTER, ZONE),
            steps=[(1, "orange")],
        ),
        Column(
            "agents without room",
            greatest("quorate_operator_full_agents", IN_CLUSTER, ZONE),
            steps=NOT_ZERO,
        ),
        Column(
            "agents refusing it",
            greatest("quorate_operator_refusing_agents", IN_CLUSTER, ZONE),
            steps=NOT_ZERO,
        ),
        Column(
            "loss accepted",
            greatest("quorate_operator_data_loss_accepted", IN_CLUSTER, ZONE),
            steps=NOT_ZERO,
            words={0: ("no", "transparent"), 1: ("yes", "red")},
        ),
        Column(
            "copies differ",
            greatest(
                "quorate_operator_validation_verdict", f'{IN_CLUSTER}, verdict="differ"', ZONE
            ),
            words={0: ("no", "transparent"), 1: ("yes", "red")},
        ),
        link=TO_ZONE,
        nothing="No operator reports a zone",
        height=6,
    )
    free = greatest("quorate_disk_free_bytes", IN_CLUSTER, AGENT)
    reserve = greatest("quorate_disk_reserve_bytes", IN_CLUSTER, AGENT)
    memory = greatest("quorate_client_memory_bytes", IN_CLUSTER, AGENT)
    memory_max = greatest("quorate_client_memory_max_bytes", IN_CLUSTER, AGENT)
    page.table(
        "Agents",
        "How does one agent differ from the others? Click its name. silent: it gave metrics within"
        " the last hour, and gives none now.",
        ["namespace", "cluster", "agent"],
        Column("state", agent_state(IN_CLUSTER), words=STATE_WORDS),
        Column("primaries", total("quorate_primaries", IN_CLUSTER, f"{AGENT}, zone", AGENT)),
        Column("copies", total("quorate_copies", IN_CLUSTER, f"{AGENT}, zone", AGENT)),
        Column(
            "heartbeat p99",
            quantile(0.99, "quorate_heartbeat_seconds", IN_CLUSTER, AGENT),
            unit="s",
            steps=[(1, "orange"), (1.9, "red")],
        ),
        Column(
            "CLUSTERDOWN",
            rate("quorate_commands_clusterdown_total", IN_CLUSTER, AGENT),
            unit="reqps",
            steps=ABOVE_ZERO,
        ),
        Column(
            "waited for a primary",
            rate("quorate_commands_parked_total", IN_CLUSTER, AGENT),
            unit="reqps",
            steps=WARN_ABOVE_ZERO,
        ),
        Column("room on disk", f"{free} - {reserve}", unit="bytes"),
        Column(
            "memory for clients",
            f"{memory} / {memory_max}",
            unit="percentunit",
            steps=[(0.7, "orange"), (0.9, "red")],
        ),
        Column("connections", greatest("quorate_client_connections", IN_CLUSTER, AGENT)),
        link=TO_AGENT,
        nothing="No agent gives metrics",
    )


def _over_time(page: Page) -> None:
    page.row("Since when?")
    page.lines(
        "Partitions by state",
        "Since when are partitions not served, or served by too few copies?",
        Query(total(_PARTITIONS, IN_CLUSTER, f"{ZONE}, state", "state"), "{{state}}"),
        stacked=True,
    )
    page.lines(
        "Agents by state",
        "When did agents leave, come back, or begin to drain?",
        Query(total(_NODES, IN_CLUSTER, f"{CLUSTER}, state", "state"), "{{state}}"),
        stacked=True,
    )
    page.lines(
        "Commands that were not answered at once",
        "When did clients wait for a primary, and when were they refused?",
        Query(rate("quorate_commands_parked_total", IN_CLUSTER), "waited for a primary"),
        Query(rate("quorate_commands_clusterdown_total", IN_CLUSTER), "CLUSTERDOWN"),
        Query(rate("quorate_commands_unknown_total", IN_CLUSTER), "UNKNOWN"),
        Query(rate("quorate_client_memory_refused_total", IN_CLUSTER), "OOM"),
        unit="reqps",
    )
    page.lines(
        "Data moved",
        "How much data is moved between agents, and how much of it in vain?",
        Query(rate("quorate_operator_moved_bytes_total", IN_CLUSTER), "moved"),
        Query(rate("quorate_operator_wasted_bytes_total", IN_CLUSTER), "in vain"),
        unit="binBps",
    )
    page.lines(
        "Migrations",
        "Are migrations getting done, or do they pile up?",
        Query(
            total("quorate_operator_migrations", IN_CLUSTER, f"{ZONE}, state", "state"),
            "{{state}}",
        ),
    )
    page.lines(
        "Events",
        "What happened when? docs/events.md explains each reason.",
        Query(
            count("quorate_events_total", 'namespace=~"$namespace"', "reason") + " > 0",
            "{{reason}}",
        ),
    )
