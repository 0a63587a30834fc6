"""Plots as inline SVG, drawn from figures: bars over time, and parts of a whole."""

from collections.abc import Sequence
from typing import NamedTuple

from quorate_spark.pages.markup import Markup, joined, tag

WIDTH, HEIGHT = 360, 116
LEFT, RIGHT, TOP, BOTTOM = 4, 356, 18, 94
GAP = 2.0
BAR_MAX = 24.0
SLIVER = 3.0
"""The least width or height of what is above 0, so that it is seen."""


class Bar(NamedTuple):
    """One value over time.  `kind`: a class of the style sheet, which has its colour.

    `begins`: it and those after it are of another thing than those before, and a line says so.
    """

    label: str
    value: float
    kind: str = ""
    begins: bool = False


class Share(NamedTuple):
    """One part of a whole."""

    label: str
    size: int
    kind: str


def bars(title: str, values: Sequence[Bar], unit: str = "") -> Markup:
    """Return a figure with one bar for each value, the last one to the right."""
    highest = max((each.value for each in values), default=0)
    step = min((RIGHT - LEFT) / max(len(values), 1), BAR_MAX)
    drawn = []
    for index, each in enumerate(values):
        if each.begins:
            at = _number(LEFT + index * step - GAP / 2)
            drawn.append(tag("line", class_="begin", x1=at, y1=TOP, x2=at, y2=BOTTOM))
        height = max(each.value / highest * (BOTTOM - TOP), SLIVER) if each.value > 0 else 0.0
        said = tag("title", f"{each.label}: {figure(each.value)}{unit}")
        drawn.append(
            tag(
                "rect",
                said,
                class_=f"bar {each.kind}".strip(),
                x=_number(LEFT + index * step),
                y=_number(BOTTOM - height),
                width=_number(max(step - GAP, 1.0)),
                height=_number(height),
            )
        )
    right = LEFT + max(len(values), 1) * step
    drawn += [
        tag("line", class_="axis", x1=LEFT, y1=BOTTOM, x2=_number(right), y2=BOTTOM),
        tag("text", f"highest {figure(highest)}{unit}", x=LEFT, y=TOP - 6),
    ]
    if values:
        drawn.append(tag("text", values[0].label, x=LEFT, y=BOTTOM + 14))
    if right > WIDTH * 2 / 3:  # else the two labels would overlap
        drawn.append(
            tag("text", values[-1].label, x=_number(right), y=BOTTOM + 14, text_anchor="end")
        )
    told = [f"{'new: ' * each.begins}{figure(each.value)}{unit}" for each in values]
    about = f"{title}: {', '.join(told)}"
    picture = tag("svg", *drawn, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=about)
    return tag("figure", tag("figcaption", title), picture)


def shares(title: str, parts: Sequence[Share]) -> Markup:
    """Return a figure with one bar that is divided into parts, and their counts below."""
    total = sum(each.size for each in parts)
    seen = [each for each in parts if each.size]
    widths = [max(each.size / total * WIDTH, SLIVER) for each in seen]
    scale = WIDTH / sum(widths) if widths else 0.0
    drawn, left = [], 0.0
    for each, width in zip(seen, widths, strict=True):
        said = tag("title", f"{each.label}: {each.size:,}")
        placed = {"x": _number(left), "y": 0, "height": 14}
        wide = _number(max(width * scale - GAP / 2, 1.0))
        drawn.append(tag("rect", said, class_=each.kind, width=wide, **placed))
        left += width * scale
    about = f"{title}: {', '.join(f'{each.label} {each.size:,}' for each in parts)}"
    picture = tag(
        "svg",
        *drawn,
        viewBox=f"0 0 {WIDTH} 14",
        role="img",
        aria_label=about,
        preserveAspectRatio="none",
        class_="shares",
    )
    legend = [
        tag("li", tag("i", class_=f"swatch {each.kind}"), f"{each.label}: {each.size:,}")
        for each in parts
    ]
    return tag("figure", tag("figcaption", title), picture, tag("ul", *legend, class_="legend"))


def strip(marks: Sequence[tuple[str, str, str]]) -> Markup:
    """Return one mark for each (sign, kind, label)."""
    return tag(
        "p",
        joined(
            tag("span", sign, class_=f"mark {kind}", title=label) for sign, kind, label in marks
        ),
        class_="strip",
    )


def figure(value: float) -> str:
    """Return a number for people."""
    return f"{value:,.1f}" if value != int(value) and value < 100 else f"{value:,.0f}"


def _number(value: float) -> str:
    return f"{value:.1f}"
