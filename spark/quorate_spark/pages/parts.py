"""Parts that all sections of the page are made of, and how it writes times and counts."""

from collections.abc import Sequence
from datetime import UTC, datetime

from quorate_spark.pages.markup import Markup, tag


def section(title: str, *parts: str) -> Markup:
    """Return a section with a heading."""
    return tag("section", tag("h2", title), *parts)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> Markup:
    """Return a table of texts.  `kind`: its class in the style sheet."""
    made = [tag("tr", *(tag("td", cell) for cell in row)) for row in rows]
    return grid(headings, made, kind)


def grid(headings: Sequence[str], rows: Sequence[Markup], kind: str = "") -> Markup:
    """Return a table of rows that are made already."""
    head = []
    if any(headings):
        head = [tag("thead", tag("tr", *(tag("th", each, scope="col") for each in headings)))]
    made = tag("table", *head, tag("tbody", *rows), class_=kind or None)
    return tag("div", made, class_="wide")


def many(count: int, one: str, several: str = "") -> str:
    """Return a count with its noun."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


def time_text(wall_ms: int) -> str:
    """Return a wall time for people."""
    return _formatted(wall_ms, "%Y-%m-%d %H:%M:%S UTC")


def day_text(wall_ms: int) -> str:
    """Return a wall time in short, for a plot."""
    return _formatted(wall_ms, "%d %b %H:%M")


def _formatted(wall_ms: int, form: str) -> str:
    """Return a wall time in this form; one that no calendar has, as its number."""
    try:
        return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime(form)
    except (OverflowError, ValueError, OSError):
        return f"{wall_ms} ms"
