"""Expressions that several dashboards share.

`of` is a list of label matchers in PromQL, without braces.  Only the leading operator reports
clusters and zones; while the lead changes, two may: `max` counts them once.
"""

from collections.abc import Mapping

IN_CLUSTER = 'namespace=~"$namespace", cluster=~"$cluster"'
"""Matchers where several clusters can be chosen."""
CLUSTER = "namespace, cluster"
ZONE = f"{CLUSTER}, zone"
AGENT = f"{CLUSTER}, agent"

SILENT, NOT_LED, LED = 0, 1, 2
STATE_WORDS = {
    SILENT: ("silent", "red"),
    NOT_LED: ("no master", "orange"),
    LED: ("led", "green"),
}


def agent_state(of: str) -> str:
    """Of each agent: 2 while a master leads it, 1 while none does, 0 if it gave metrics within
    the last hour and gives none now."""
    return (
        f"(max by ({AGENT}) (quorate_master_connected{{{of}}}) + {NOT_LED})"
        f" or ({SILENT} * max by ({AGENT}) (last_over_time(quorate_master_connected{{{of}}}[1h])))"
    )


def rate(metric: str, of: str, by: str = "") -> str:
    """How often per second, added up by these labels."""
    return f"{_sum(by)} (rate({metric}{{{of}}}[$__rate_interval]))"


def count(metric: str, of: str, by: str = "") -> str:
    """How often in each step of a graph, added up by these labels."""
    return f"{_sum(by)} (increase({metric}{{{of}}}[$__rate_interval]))"


def quantile(share: float, histogram: str, of: str, by: str = "") -> str:
    """What this share of the observations does not exceed."""
    labels = ", ".join(filter(None, (by, "le")))
    return f"histogram_quantile({share}, {rate(f'{histogram}_bucket', of, labels)})"


def greatest(metric: str, of: str, by: str) -> str:
    """The greatest of those that report."""
    return f"max by ({by}) ({metric}{{{of}}})"


def total(metric: str, of: str, within: str, by: str = "") -> str:
    """The sum over clusters or zones (labels `within`), each counted once."""
    return f"{_sum(by)} ({greatest(metric, of, within)})"


def signs_of_trouble(of: str) -> str:
    """Each agent in trouble, with the label `sign`: a row for each sign; none if all are well."""
    return "\nor ".join(
        f'label_replace({expr}, "sign", "{sign}", "", "")' for sign, expr in _signs(of).items()
    )


def _signs(of: str) -> Mapping[str, str]:
    connected = f"quorate_master_connected{{{of}}}"
    memory = greatest("quorate_client_memory_bytes", of, AGENT)
    memory_max = greatest("quorate_client_memory_max_bytes", of, AGENT)
    return {
        "gives no metrics, but did within the last hour": (
            f"max by ({AGENT}) (last_over_time({connected}[1h]))"
            f" unless max by ({AGENT}) ({connected})"
        ),
        "no master leads it": f"max by ({AGENT}) ({connected}) == 0",
        "heartbeats take more than 1 s": (
            f"{quantile(0.99, 'quorate_heartbeat_seconds', of, AGENT)} > 1"
        ),
        "no room on its disk": f"{greatest('quorate_storage_full', of, AGENT)} > 0",
        "cut off: does not serve a zone": f"{greatest('quorate_isolated', of, AGENT)} > 0",
        "answers CLUSTERDOWN": f"{rate('quorate_commands_clusterdown_total', of, AGENT)} > 0",
        "answers UNKNOWN": f"{rate('quorate_commands_unknown_total', of, AGENT)} > 0",
        "memory for clients nearly used up": f"{memory} > 0.9 * {memory_max}",
        "refuses large commands: OOM": (
            f"{rate('quorate_client_memory_refused_total', of, AGENT)} > 0"
        ),
    }


def _sum(by: str) -> str:
    return f"sum by ({by})" if by else "sum"
