"""Shows declared objects on a terminal: lists, whole objects, descriptions."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import yaml
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from quorate_cli.objects.resources import Kind, Whole, name_of


def print_list(kind: Kind, objects: Sequence[Whole], console: Console) -> None:
    """Print one line per object, with the columns that kubectl would print."""
    if not objects:
        console.print(f"there are no {kind.plural}")
        return
    lines = [("NAME", *(heading.upper() for heading, _, _ in kind.model.printer_columns))]
    for whole in objects:
        columns = kind.model.printer_columns
        lines.append((name_of(whole), *(_cell(whole, form, path) for _, form, path in columns)))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        # Lines are never cut to the terminal's width: other programs read such lists.
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        console.out("   ".join(padded).rstrip(), highlight=False)


def print_whole(shown: object, form: str, console: Console) -> None:
    """Print every field of one object, or of {"items": objects}, as `yaml` or `json`."""
    if form == "json":
        text = msgspec.json.format(msgspec.json.encode(shown), indent=2).decode()
    else:
        text = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True)
    console.out(text.rstrip("\n"), highlight=False)


def together(objects: Sequence[Whole], name: str | None) -> Whole:
    """Return the object that was named, or all in a list, however many there are."""
    return {"items": [*objects]} if name is None else objects[0]


def describe_all(
    kind: Kind, objects: Sequence[Whole], name: str | None, as_json: bool, console: Console
) -> None:
    """Print what `describe` shows; `name`: of the one object that was asked for."""
    if as_json:
        print_whole(together(objects, name), "json", console)
        return
    for whole in objects:
        print_description(kind, whole, console)


def print_description(kind: Kind, whole: Whole, console: Console) -> None:
    """Print one object: its spec, its status, and the sentences of its conditions."""
    console.print(f"{kind.name} {name_of(whole)}", style="bold")
    status = whole.get("status")
    status = dict(status) if isinstance(status, dict) else {}
    conditions = status.pop("conditions", None)
    for heading, part in (("spec", whole.get("spec")), ("status", status)):
        console.print(f"\n{heading}", style="bold")
        text = yaml.safe_dump(part, sort_keys=False, allow_unicode=True)
        console.out("\n".join(f"  {line}" for line in text.splitlines()), highlight=False)
    if isinstance(conditions, list) and conditions:
        console.print("\nconditions", style="bold")
        for condition in conditions:
            if isinstance(condition, dict):
                console.print(_condition(condition))


def _condition(condition: Whole) -> RenderableType:
    """Return a condition in one line, with its message below.

    A table would have no room for the message in 80 columns.
    """
    kind, status, reason, message, since = (
        str(condition.get(field, ""))
        for field in ("type", "status", "reason", "message", "lastTransitionTime")
    )
    return Group(
        Padding(Text(f"{kind} is {status} ({reason}) since {since}"), (0, 0, 0, 2)),
        Padding(Text(message), (0, 0, 0, 4)),
    )


def _cell(whole: Whole, column_type: str, path: str) -> str:
    value = value_at(whole, path)
    if value is None:
        return ""
    if column_type == "date":
        return _age(str(value))
    return str(value)


def value_at(whole: object, path: str) -> object:
    """Return what a printer column's JSONPath finds, None if nothing.

    Paths are `.a.b`, or `.a[?(@.type=='X')].b`: the first element of a list whose field has that
    value.
    """
    value = whole
    for name, field, wanted in re.findall(r"\.(\w+)(?:\[\?\(@\.(\w+)=='(\w+)'\)\])?", path):
        value = value.get(name) if isinstance(value, dict) else None
        if field:
            found = value if isinstance(value, list) else []
            value = next((e for e in found if isinstance(e, dict) and e.get(field) == wanted), None)
    return value


def _age(timestamp: str) -> str:
    try:
        since = datetime.fromisoformat(timestamp)
    except ValueError:
        return timestamp
    seconds = int((datetime.now(UTC) - since).total_seconds())
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{max(0, seconds)}s"
