"""The text of /metrics as a scraper reads it."""

from prometheus_client.parser import text_string_to_metric_families


def families(text: str) -> set[str]:
    """The names of all metrics, as served; ValueError where the text is not valid.

    Without NAME_created, which the library adds."""
    found = text_string_to_metric_families(text)
    names = {each.name + ("_total" if each.type == "counter" else "") for each in found}
    return {name for name in names if not name.endswith("_created")}
