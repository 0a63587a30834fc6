"""Panels of the commands that clients send, on the pages of a zone and of an agent."""

from quorate_dashboards.elements import Page, Query
from quorate_dashboards.queries import rate


def commands(page: Page, of: str) -> None:
    """Add the rates of commands by family and by result; `of`: the labels that choose them."""
    page.lines(
        "Commands by family",
        "What do clients do, and how much of it?",
        Query(rate("quorate_commands_total", of, "family"), "{{family}}"),
        unit="reqps",
        stacked=True,
    )
    page.lines(
        "Commands by result",
        "How are commands answered? error: the client's mistake. redirected: it asked the wrong"
        " agent. refused: no primary, or no room. unknown: the outcome cannot be determined.",
        Query(rate("quorate_commands_total", of, "result"), "{{result}}"),
        unit="reqps",
    )
