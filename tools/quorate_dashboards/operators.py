"""The operator: does one process lead, does it keep up, and does the API server answer it?"""

from quorate_dashboards.elements import NOT_ZERO, Page, Query
from quorate_dashboards.queries import CLUSTER, count, greatest, quantile, rate, total

_OF = 'job="$job"'
_PROCESS = "instance"


def operators() -> Page:
    """The dashboard."""
    page = Page(
        "quorate-operator",
        "Quorate / Operator",
        "Does one process lead, does it keep up, and does the API server answer it?",
    )
    page.variable("job", "Installation", "quorate_operator_is_master")
    _now(page)
    _lead(page)
    _work(page)
    _api(page)
    return page


def _now(page: Page) -> None:
    page.row("Does it lead?")
    page.stat(
        "Processes that lead",
        "Does exactly one process lead? With none, no failure is handled.",
        Query(f"sum(quorate_operator_is_master{{{_OF}}})", ""),
        steps=[(2, "red")],
        words={0: ("none", "red")},
        width=4,
    )
    page.stat(
        "Age of the lease",
        "When did the leading process begin its last renewal that was answered? It must be renewed"
        " in time. 0: no lease is used.",
        Query(
            f"max(quorate_operator_lease_age_seconds{{{_OF}}} and"
            f" quorate_operator_is_master{{{_OF}}} == 1)",
            "",
        ),
        unit="s",
        steps=[(10, "orange"), (15, "red")],
        width=4,
    )
    page.stat(
        "Objects that wait",
        "How many declared objects wait for reconciliation?",
        Query(f"max(quorate_operator_queue_length{{{_OF}}})", ""),
        steps=[(50, "orange")],
        width=4,
    )
    page.stat(
        "Broken invariants",
        "Was anything found, since the processes began, that must not exist?",
        Query(f"sum(quorate_operator_invariant_errors_total{{{_OF}}})", ""),
        steps=NOT_ZERO,
        width=4,
    )
    defects = f"sum(quorate_operator_master_defects_total{{{_OF}}})"
    page.stat(
        "Masters that a defect ended",
        "Did a defect end a master since its process began? The log has the reason.",
        Query(f"{defects} or 0 * sum(quorate_operator_is_master{{{_OF}}})", ""),
        steps=NOT_ZERO,
        width=4,
    )
    page.stat(
        "Loop lag",
        "By how much is the event loop late? Above a second it misses heartbeats of agents.",
        Query(f"max(quorate_operator_loop_lag_seconds{{{_OF}}})", ""),
        unit="s",
        steps=[(0.5, "orange"), (1, "red")],
        width=4,
    )


def _lead(page: Page) -> None:
    page.row("Since when?")
    page.timeline(
        "Which process leads",
        "Which process led when, and was there a time without?",
        Query(greatest("quorate_operator_is_master", _OF, _PROCESS), "{{instance}}"),
        {0: ("stands by", "blue"), 1: ("leads", "green")},
    )
    page.lines(
        "Term",
        "When did another master begin? Each has a higher term.",
        Query(greatest("quorate_operator_master_term", _OF, CLUSTER), "{{namespace}}/{{cluster}}"),
    )
    page.lines(
        "Clusters in trouble",
        "Of which clusters cannot decisions be stored, and which are not led because an invariant"
        " is broken? 0: none of it.",
        Query(
            greatest("quorate_operator_blocked", _OF, CLUSTER),
            "{{namespace}}/{{cluster}} blocked",
        ),
        Query(
            greatest("quorate_operator_invariant_broken", _OF, CLUSTER),
            "{{namespace}}/{{cluster}} invariant broken",
        ),
    )
    page.lines(
        "Agents by state",
        "What does the leader know of the agents?",
        Query(
            total("quorate_operator_nodes", _OF, f"{CLUSTER}, state", "state"),
            "{{state}}",
        ),
        stacked=True,
    )
    page.lines(
        "Events",
        "What did it decide, and when? docs/events.md explains each reason.",
        Query(count("quorate_events_total", _OF, "reason") + " > 0", "{{reason}}"),
    )
    page.lines(
        "Loop lag by process",
        "Since when is an event loop late?",
        Query(greatest("quorate_operator_loop_lag_seconds", _OF, _PROCESS), "{{instance}}"),
        unit="s",
    )
    page.lines(
        "Requests refused",
        "Does anything use the operator's own API without its token?",
        Query(count("quorate_operator_refused_requests_total", _OF, _PROCESS), "{{instance}}"),
    )


def _work(page: Page) -> None:
    page.row("Does it keep up?")
    page.lines(
        "Pass over all clusters",
        "How long does one pass over all clusters take?",
        Query(quantile(0.5, "quorate_operator_pass_seconds", _OF), "p50"),
        Query(quantile(0.99, "quorate_operator_pass_seconds", _OF), "p99"),
        unit="s",
    )
    page.lines(
        "Writes of ownership",
        "Are decisions stored? refused, unknown: no failover and no migration is carried out.",
        Query(rate("quorate_operator_metastore_writes_total", _OF, "outcome"), "{{outcome}}"),
        unit="ops",
    )
    page.lines(
        "Duration of a write of ownership",
        "How long does each decision wait until it is stored?",
        Query(quantile(0.5, "quorate_operator_metastore_write_seconds", _OF), "p50"),
        Query(quantile(0.99, "quorate_operator_metastore_write_seconds", _OF), "p99"),
        unit="s",
    )
    page.lines(
        "Reconciliations",
        "Which kinds of objects are reconciled, and which fail?",
        Query(
            rate("quorate_operator_reconciles_total", _OF, "kind, result"), "{{kind}} {{result}}"
        ),
        unit="ops",
        width=12,
    )
    page.lines(
        "Objects that wait",
        "Does the queue of declared objects grow?",
        Query(greatest("quorate_operator_queue_length", _OF, _PROCESS), "{{instance}}"),
        width=12,
    )


def _api(page: Page) -> None:
    page.row("Does the API server answer it? (on Kubernetes)")
    page.lines(
        "Requests to the API server",
        "Which requests are sent, and are they answered? none: no answer.",
        Query(
            rate("quorate_operator_api_requests_total", _OF, "method, code"), "{{method}} {{code}}"
        ),
        unit="reqps",
        width=6,
    )
    page.lines(
        "Limit of concurrent requests",
        "Is the API server slow? The limit is lower while it is.",
        Query(greatest("quorate_operator_api_requests_max", _OF, _PROCESS), "{{instance}}"),
        width=6,
    )
    page.lines(
        "Age of watches",
        "Does each watch show signs of life? At most about 60 s while all is well.",
        Query(greatest("quorate_operator_watch_age_seconds", _OF, "kind"), "{{kind}}"),
        unit="s",
        steps=[(120, "red")],
        width=6,
    )
    page.lines(
        "Age of the lease by process",
        "Is the lease renewed in time?",
        Query(greatest("quorate_operator_lease_age_seconds", _OF, _PROCESS), "{{instance}}"),
        unit="s",
        width=6,
    )
