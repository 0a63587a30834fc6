"""Dashboards drawn as one HTML page from what Prometheus answered, to be looked at without Grafana.

Positions, units, words and colours are read from the dashboards as Grafana would.
"""

import html
from collections.abc import Callable, Mapping, Sequence

from quorate_documented.dashboards import PAGES, Asked, Json
from quorate_documented.prometheus import Series

Answers = Mapping[str, Sequence[tuple[Asked, list[Series]]]]
"""Number of a panel -> each of its expressions with its answer."""

_ROW_PX = 34
_PALETTE = ["#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#b877d9", "#37872d", "#fade2a"]
_COLOURS = {"green": "#37872d", "red": "#c4162a", "orange": "#e0752d", "blue": "#1f60c4"}
_COLOURS["transparent"] = "transparent"
_STYLE = """
body {background: #111217; color: #ccccdc; font: 12px sans-serif; margin: 12px; width: 1560px}
.page {position: relative; margin-bottom: 24px} .panel, .row {position: absolute; overflow: hidden}
.panel {background: #181b1f; border: 1px solid #2c2f36; box-sizing: border-box; padding: 3px 6px}
.row {font-weight: bold; padding-top: 10px; font-size: 14px} b {font-size: 12px}
i {color: #8e8e99; display: block; font-size: 9px; line-height: 1.1} table {border-spacing: 0}
th, td {text-align: left; padding: 1px 8px; border-bottom: 1px solid #2c2f36} a {color: #6e9fff}
.big {font-size: 24px; text-align: center; padding: 12px; margin-top: 4px} svg {display: block}
.legend span {margin-right: 8px; font-size: 10px}
"""


def draw(answers: Mapping[str, Answers]) -> str:
    """The page.  `answers`: file name of a dashboard -> its answers."""
    pages = "".join(_page(PAGES[file], found) for file, found in answers.items())
    return f"<!doctype html><meta charset=utf-8><style>{_STYLE}</style>{pages}"


def _page(page: Json, answers: Answers) -> str:
    height = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in page["panels"]) * _ROW_PX
    drawn = "".join(_placed(panel, answers) for panel in page["panels"])
    title = html.escape(page["title"])
    return f"<h2>{title}</h2><div class=page style='height:{height}px'>{drawn}</div>"


def _placed(panel: Json, answers: Answers) -> str:
    at, cell = panel["gridPos"], 65
    size = (at["w"] * cell - 6, at["h"] * _ROW_PX - 6)
    place = (
        f"left:{at['x'] * cell}px;top:{at['y'] * _ROW_PX}px;width:{size[0]}px;height:{size[1]}px"
    )
    title = html.escape(panel["title"])
    if panel["type"] == "row":
        return f"<div class=row style='{place}'>{title}</div>"
    kinds: dict[str, Callable[[Json, Sequence[tuple[Asked, list[Series]]]], str]] = {
        "stat": _stat,
        "table": _table,
        "timeseries": lambda panel, found: _lines(panel, found, (size[0] - 14, size[1] - 66)),
        "state-timeline": lambda panel, found: _timeline(panel, found, size[0] - 14),
    }
    drawn = kinds[panel["type"]](panel, answers[f"{panel['id']}"])
    question = html.escape(panel["description"])
    return f"<div class=panel style='{place}'><b>{title}</b><i>{question}</i>{drawn}</div>"


def _shown(value: float, field: Json) -> tuple[str, str]:
    """The text and colour of a value, by the settings of its field."""
    for mapping in field.get("mappings", ()):
        word = mapping["options"].get(f"{value:g}")
        if word:
            return word["text"], _COLOURS[word["color"]]
    colour = "transparent"
    for step in field.get("thresholds", {}).get("steps", ()):
        if step["value"] is None or value >= step["value"]:
            colour = _COLOURS[step["color"]]
    return _in_unit(value, field.get("unit", "short")), colour


def _in_unit(value: float, unit: str) -> str:
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit in ("bytes", "binBps"):
        names = ["B", "KiB", "MiB", "GiB", "TiB"]
        while abs(value) >= 1024 and len(names) > 1:
            value, names = value / 1024, names[1:]
        return f"{value:.4g} {names[0]}" + ("/s" if unit == "binBps" else "")
    suffix = {"s": " s", "reqps": " /s", "ops": " /s"}.get(unit, "")
    return f"{value:.3g}{suffix}" if suffix else f"{value:.6g}"


def _stat(panel: Json, found: Sequence[tuple[Asked, list[Series]]]) -> str:
    defaults = panel["fieldConfig"]["defaults"]
    tiles = [
        _shown(series.last, defaults) for _, answer in found for series in answer if series.values
    ]
    return "".join(
        f"<div class=big style='background:{colour}'>{html.escape(text)}</div>"
        for text, colour in tiles or [("No data", "transparent")]
    )


def _table(panel: Json, found: Sequence[tuple[Asked, list[Series]]]) -> str:
    organized = panel["transformations"][1]["options"]
    settings = {
        override["matcher"]["options"]: {
            each["id"]: each["value"] for each in override["properties"]
        }
        for override in panel["fieldConfig"]["overrides"]
    }
    rows: dict[tuple[str, ...], dict[str, float]] = {}
    names = sorted(organized["indexByName"], key=organized["indexByName"].__getitem__)
    labels = [name for name in names if not name.startswith("Value")]
    for asked, answer in found:
        name = f"Value #{asked.letter}" if len(found) > 1 else "Value"
        for series in answer:
            key = tuple(series.labels.get(label, "") for label in labels)
            rows.setdefault(key, {})[name] = series.last
    shown = [
        name for name in organized["renameByName"] if len(found) == 1 or name.startswith("Value #")
    ]
    head = "".join(f"<th>{each}" for each in (*labels, *map(organized["renameByName"].get, shown)))
    lines = []
    for key, values in sorted(rows.items()):
        cells = [
            f"<td>{'<a>' if 'links' in settings.get(label, {}) else ''}{html.escape(text)}</a>"
            for label, text in zip(labels, key, strict=True)
        ]
        for name in shown:
            field = settings[organized["renameByName"][name]]
            text, colour = _shown(values[name], field) if name in values else ("", "transparent")
            cells.append(f"<td style='background:{colour}'>{text}")
        lines.append(f"<tr>{''.join(cells)}")
    nothing = panel["fieldConfig"]["defaults"].get("noValue", "No data")
    return f"<table><tr>{head}{''.join(lines)}</table>" if lines else f"<p>{nothing}"


def _named(found: Sequence[tuple[Asked, list[Series]]], panel: Json) -> list[tuple[str, Series]]:
    legends = {target["refId"]: target["legendFormat"] for target in panel["targets"]}
    named = []
    for asked, answer in found:
        for series in answer:
            name = legends[asked.letter]
            for label, text in series.labels.items():
                name = name.replace(f"{{{{{label}}}}}", text)
            named.append((name, series))
    return named


def _lines(panel: Json, found: Sequence[tuple[Asked, list[Series]]], size: tuple[int, int]) -> str:
    named = [(name, series) for name, series in _named(found, panel) if series.values]
    if not named:
        return "<p>No data"
    stacked = "stacking" in panel["fieldConfig"]["defaults"].get("custom", {})
    moments = sorted({moment for _, series in named for moment, _ in series.values})
    base = dict.fromkeys(moments, 0.0)
    drawn: list[tuple[str, list[tuple[float, float]], float]] = []
    for name, series in named:
        points = []
        for moment, value in series.values:
            base[moment] = value + (base[moment] if stacked else 0.0)
            points.append((moment, base[moment]))
        drawn.append((name, points, series.last))
    top = max((value for _, points, _ in drawn for _, value in points), default=0) or 1.0
    first, lasts = moments[0], (moments[-1] - moments[0]) or 1.0
    width, height = size
    unit = panel["fieldConfig"]["defaults"]["unit"]
    paths, legend = [], []
    for number, (name, points, last) in enumerate(drawn):
        colour = _PALETTE[number % len(_PALETTE)]
        text = " ".join(
            f"{width * (moment - first) / lasts:.1f},{height * (1 - value / top):.1f}"
            for moment, value in points
        )
        paths.append(f"<polyline points='{text}' fill=none stroke='{colour}' stroke-width=1.5 />")
        legend.append(
            f"<span style='color:{colour}'>{html.escape(name)} {_in_unit(last, unit)}</span>"
        )
    return (
        f"<i>up to {_in_unit(top, unit)}</i>"
        f"<svg width={width} height={height}>{''.join(paths)}</svg>"
        f"<div class=legend>{''.join(legend)}</div>"
    )


def _timeline(panel: Json, found: Sequence[tuple[Asked, list[Series]]], width: int) -> str:
    named = _named(found, panel)
    moments = [moment for _, series in named for moment, _ in series.values]
    if not moments:
        return "<p>No data"
    first, lasts = min(moments), (max(moments) - min(moments)) or 1.0
    step = width / (lasts + 1)
    bars = []
    for name, series in named:
        parts = "".join(
            f"<rect x={(moment - first) * step:.1f} width={step + 0.5:.1f} height=16"
            f" fill='{_shown(value, panel['fieldConfig']['defaults'])[1]}' />"
            for moment, value in series.values
        )
        bars.append(f"{html.escape(name)}<svg width={width} height=16>{parts}</svg>")
    return "".join(bars)
