"""Reads the metrics that processes answer: agents at their admin port, an operator at its API."""

import http.client

from quorate_cli.terminal.problem import Problem, words

TIMEOUT_S = 5.0
PARKED = "quorate_command_parked_seconds"


def parked_by_duration(host: str, port: int) -> dict[float, int]:
    """Return upper bound in seconds -> how many commands waited for a primary at most that long."""
    # Imported here: it takes long, and few commands read metrics.
    from prometheus_client.parser import text_string_to_metric_families

    text = fetch_metrics(host, port)
    for family in text_string_to_metric_families(text):
        if family.name == PARKED:
            return {
                float(sample.labels["le"]): int(sample.value)
                for sample in family.samples
                if sample.name.endswith("_bucket")
            }
    raise Problem(f"agent at {host}:{port} has no metric {PARKED}: it has another version")


def longest_parked(before: dict[float, int], after: dict[float, int]) -> tuple[int, float]:
    """Return how many commands waited between two readings, and an upper bound of the longest wait.

    The bound is in seconds, 0 if no command waited.
    """
    grown = {bound: after[bound] - before.get(bound, 0) for bound in sorted(after)}
    count = max(grown.values(), default=0)
    if not count:
        return 0, 0.0
    return count, next(bound for bound, so_far in grown.items() if so_far == count)


def fetch_metrics(host: str, port: int) -> str:
    """Return the text of a process's metrics."""
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    except (OSError, http.client.HTTPException) as error:
        why = words(error) if isinstance(error, OSError) else type(error).__name__
        raise Problem(f"{host}:{port}: metrics cannot be read: {why}") from error
    finally:
        connection.close()
