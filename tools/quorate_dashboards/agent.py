"""One agent: is it well, what do its clients feel, and what does it have?"""

from quorate_dashboards.commands import commands
from quorate_dashboards.elements import ABOVE_ZERO, NOT_ZERO, Page, Query
from quorate_dashboards.queries import (
    AGENT,
    STATE_WORDS,
    agent_state,
    count,
    greatest,
    quantile,
    rate,
    total,
)

_OF = 'namespace="$namespace", cluster="$cluster", agent="$agent"'
_LEASE_S = 1.9


def agent() -> Page:
    """The dashboard."""
    page = Page(
        "quorate-agent",
        "Quorate / Agent",
        "Is this agent well, what do its clients feel, and what does it have?",
    )
    known = "quorate_master_connected"
    page.variable("namespace", "Namespace", known)
    page.variable("cluster", "Cluster", f'{known}{{namespace="$namespace"}}')
    page.variable("agent", "Agent", f'{known}{{namespace="$namespace", cluster="$cluster"}}')
    _now(page)
    _health(page)
    _clients(page)
    _data(page)
    _peers(page)
    return page


def _now(page: Page) -> None:
    page.row("Is it well?")
    page.stat(
        "State",
        "Does it answer, and does a master lead it? silent: it gave metrics within the last hour,"
        " and gives none now.",
        Query(agent_state(_OF), ""),
        words=STATE_WORDS,
    )
    page.stat(
        "Commands refused",
        "How many commands per second does it answer with CLUSTERDOWN, UNKNOWN or OOM?",
        Query(
            " + ".join(
                rate(metric, _OF)
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
    page.stat(
        "Heartbeat p99",
        "How long do the slowest of its heartbeats take? Its lease ends 1.9 s after one was sent.",
        Query(quantile(0.99, "quorate_heartbeat_seconds", _OF), ""),
        unit="s",
        steps=[(1, "orange"), (_LEASE_S, "red")],
    )
    free = greatest("quorate_disk_free_bytes", _OF, AGENT)
    reserve = greatest("quorate_disk_reserve_bytes", _OF, AGENT)
    page.stat(
        "Room on disk",
        "How much can be written before it refuses writes? What is reserved does not count.",
        Query(f"{free} - {reserve}", ""),
        unit="bytes",
    )
    memory = greatest("quorate_client_memory_bytes", _OF, AGENT)
    memory_max = greatest("quorate_client_memory_max_bytes", _OF, AGENT)
    page.stat(
        "Memory for clients",
        "How much of the memory for clients is used? At 100 % large commands are refused with OOM.",
        Query(f"{memory} / {memory_max}", ""),
        unit="percentunit",
        steps=[(0.7, "orange"), (0.9, "red")],
    )
    page.stat(
        "Primaries",
        "How many partitions does it serve?",
        Query(total("quorate_primaries", _OF, f"{AGENT}, zone"), ""),
    )
    page.stat(
        "Copies",
        "How many copies does it have?",
        Query(total("quorate_copies", _OF, f"{AGENT}, zone"), ""),
    )
    page.stat(
        "Zones cut off",
        "How many zones does it not serve because no operator had a report of it for their"
        " isolationTimeoutSeconds?",
        Query(total("quorate_isolated", _OF, f"{AGENT}, zone"), ""),
        steps=NOT_ZERO,
    )


def _health(page: Page) -> None:
    page.row("Since when?")
    page.timeline(
        "State",
        "Since when does it not answer, or has it no master?",
        Query(agent_state(_OF), "{{agent}}"),
        STATE_WORDS,
    )
    page.lines(
        "Heartbeats",
        "Do answers to its heartbeats come before its lease ends (dashed)? If not, it is slow, or"
        " the network or the operator is.",
        Query(quantile(0.5, "quorate_heartbeat_seconds", _OF), "p50"),
        Query(quantile(0.99, "quorate_heartbeat_seconds", _OF), "p99"),
        unit="s",
        steps=[(_LEASE_S, "red")],
    )
    page.lines(
        "Event loop",
        "Is the agent too busy for what is due? A command or a scrape that takes long holds up all"
        " others.",
        Query(quantile(0.5, "quorate_loop_lag_seconds", _OF), "late, p50"),
        Query(quantile(0.99, "quorate_loop_lag_seconds", _OF), "late, p99"),
        unit="s",
    )
    page.lines(
        "Memory of the process",
        "Does the agent come close to the memory limit of its pod?",
        Query(greatest("quorate_resident_memory_bytes", _OF, "agent"), "resident"),
        unit="bytes",
    )
    page.lines(
        "Disk",
        "When will the free bytes reach those that are reserved, below which writes are refused?",
        Query(greatest("quorate_disk_free_bytes", _OF, "agent"), "free"),
        Query(greatest("quorate_disk_reserve_bytes", _OF, "agent"), "reserved"),
        Query(greatest("quorate_disk_size_bytes", _OF, "agent"), "size"),
        unit="bytes",
    )


def _clients(page: Page) -> None:
    page.row("What do its clients feel?")
    commands(page, _OF)
    page.lines(
        "Time of commands",
        "How long do commands take here, from their arrival until the reply is made? Writes wait"
        " for a quorum, and on disk for its syncs.",
        *(
            Query(quantile(share, "quorate_command_seconds", f'{_OF}, family="{family}"'), legend)
            for family in ("read", "write")
            for share, legend in ((0.5, f"{family} p50"), (0.99, f"{family} p99"))
        ),
        unit="s",
    )
    page.lines(
        "Commands that were not answered at once",
        "When did clients wait for a primary, or ask the wrong agent?",
        Query(rate("quorate_commands_parked_total", _OF), "waited for a primary"),
        Query(rate("quorate_commands_forwarded_total", _OF), "forwarded to the primary"),
        Query(rate("quorate_commands_moved_total", _OF), "MOVED"),
        unit="reqps",
    )
    page.lines(
        "Commands refused",
        "Which commands are refused? UNKNOWN: the outcome of a write cannot be determined.",
        Query(rate("quorate_commands_clusterdown_total", _OF), "CLUSTERDOWN"),
        Query(rate("quorate_commands_unknown_total", _OF), "UNKNOWN"),
        Query(rate("quorate_client_memory_refused_total", _OF), "OOM"),
        unit="reqps",
    )
    page.lines(
        "Time waited for a primary",
        "How long do commands wait that have to wait for a primary?",
        Query(quantile(0.5, "quorate_command_parked_seconds", _OF), "p50"),
        Query(quantile(0.99, "quorate_command_parked_seconds", _OF), "p99"),
        unit="s",
    )
    page.lines(
        "Connections",
        "How many clients are connected?",
        Query(greatest("quorate_client_connections", _OF, "agent"), "open"),
    )
    page.lines(
        "Memory for clients",
        "Do large commands and unread replies fill the memory for clients?",
        Query(greatest("quorate_client_memory_bytes", _OF, "agent"), "held"),
        Query(greatest("quorate_client_memory_max_bytes", _OF, "agent"), "budget"),
        unit="bytes",
    )
    page.lines(
        "Connections closed for want of memory",
        "How many connections were closed because they held the most memory?",
        Query(count("quorate_client_memory_closed_total", _OF), "closed"),
    )
    page.lines(
        "Transactions over several partitions",
        "How do transactions end?",
        Query(rate("quorate_transactions_total", _OF, "outcome"), "{{outcome}}"),
        unit="reqps",
        width=12,
    )
    page.lines(
        "Syncs",
        "How often are updates made durable? One sync serves many commands.",
        Query(rate("quorate_syncs_total", _OF), "syncs"),
        unit="ops",
        width=12,
    )


def _data(page: Page) -> None:
    page.row("What does it have?")
    page.lines(
        "Primaries by zone",
        "Which zones does it serve, and since when?",
        Query(greatest("quorate_primaries", _OF, "zone"), "{{zone}}"),
        stacked=True,
    )
    page.lines(
        "Copies by zone",
        "Of which zones has it copies, and since when?",
        Query(greatest("quorate_copies", _OF, "zone"), "{{zone}}"),
        stacked=True,
    )
    page.lines(
        "Copies that caught up",
        "Did copies catch up from the log, or had all their rows to be sent, and why?",
        Query(count("quorate_delta_copies_total", _OF), "from the log"),
        Query(count("quorate_full_copies_total", _OF, "reason"), "all rows: {{reason}}"),
    )
    page.timeline(
        "Room by zone",
        "For which zones is there no room for more?",
        Query(greatest("quorate_storage_full", _OF, "zone"), "{{zone}}"),
        {0: ("room", "green"), 1: ("no room", "red")},
    )
    page.timeline(
        "Cut off, by zone",
        "Which zones did it not serve because no operator had a report of it?",
        Query(greatest("quorate_isolated", _OF, "zone"), "{{zone}}"),
        {0: ("serves", "green"), 1: ("cut off", "red")},
    )
    page.lines(
        "Disk by zone",
        "Which zone fills the disk? Files of Persistent zones, with what is set aside.",
        Query(greatest("quorate_zone_disk_bytes", _OF, "zone"), "{{zone}}"),
        unit="bytes",
        stacked=True,
    )
    page.lines(
        "Memory by zone",
        "Which zone takes memory? Rows and logs of InMemory zones, buffers of Persistent ones.",
        Query(greatest("quorate_zone_memory_bytes", _OF, "zone"), "{{zone}}"),
        unit="bytes",
        stacked=True,
    )
    page.lines(
        "Reach of the logs, by zone",
        "For how long may a copy be away and still catch up from the log, without a full copy?",
        Query(greatest("quorate_log_reach_seconds", _OF, "zone"), "{{zone}}"),
        unit="s",
    )
    page.lines(
        "Rows set aside, by zone",
        "How much data was set aside after resets, and waits for a person to look at it?",
        Query(greatest("quorate_set_aside_bytes", _OF, "zone"), "{{zone}}"),
        unit="bytes",
    )


def _peers(page: Page) -> None:
    page.row("What does it exchange with other agents and the operator?")
    page.lines(
        "Bytes from and to peers",
        "How much does replication, and the moving of data, send?",
        Query(rate("quorate_peer_received_bytes_total", _OF), "received"),
        Query(rate("quorate_peer_sent_bytes_total", _OF), "sent"),
        unit="binBps",
    )
    page.lines(
        "Strangers",
        "Did anything connect that does not know the cluster's secret?",
        Query(count("quorate_peer_strangers_total", _OF), "connections closed"),
    )
    page.lines(
        "Messages not sent",
        "Are there peers of an earlier version, to which it cannot say everything?",
        Query(count("quorate_peer_messages_unspoken_total", _OF), "not sent"),
    )
