"""Renders plans and what became of them, for people (rich)."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from quorate_spark.repairing.decide import Action, Strategy
from quorate_spark.repairing.execute import Done, KeyDone
from quorate_spark.repairing.plan import PlannedKey
from quorate_spark.verdict import CopyRow

LISTED_MAX = 20
KEY_COLUMNS_MAX = 40
STYLES = {
    Done.REPAIRED: "green",
    Done.CHANGED: "yellow",
    Done.FAILED: "red",
    Done.UNKNOWN: "red",
    Done.IRREPARABLE: "yellow",
}
EXPLAINED = {
    Done.REPAIRED: "a quorum of the copies has the planned row",
    Done.CHANGED: "written since the plan: left alone",
    Done.FAILED: "not written: see below",
    Done.UNKNOWN: "perhaps written, by no quorum that is known: see below",
    Done.IRREPARABLE: "the strategy decides nothing",
}


def print_plan(
    keys: Sequence[PlannedKey], path: Path, incomplete: Sequence[str], console: Console
) -> None:
    """Print the first keys of a plan, how many there are, and how it is executed."""
    if not keys:
        and_so = "so there is no plan" if incomplete else "there is nothing to repair"
        console.print(f"No key is confirmed to differ: {and_so}.")
    else:
        first = keys[0]
        console.print(_plan_table(keys))
        counts = Counter(key.action for key in keys)
        console.print(
            Text(
                f"{len(keys)} keys differ: {counts[Action.WRITE]} to write,"
                f" {counts[Action.REMOVE]} to remove, {counts[Action.IRREPARABLE]} irreparable"
                f" by {first.strategy}. Nothing is changed yet."
            )
        )
        _line(console, f"The plan is in {path}. A person may read it, and remove rows.")
        if len(keys) > counts[Action.IRREPARABLE]:
            _line(console, "It is executed by:")
            _line(console, f"  quorate repair {first.zone} --execute {path}")
        elif first.strategy is not Strategy.CHECK_ONLY:
            _line(console, "Another strategy may decide: write --strategy and another --plan")
    for sentence in incomplete:
        console.print(Text(sentence, "yellow"), soft_wrap=True)


def print_executed(zone: str, keys: Sequence[KeyDone], console: Console) -> None:
    """Print how many keys are repaired, and why others are not."""
    if not keys:
        console.print("The plan has no keys.")
        return
    table = Table.grid(padding=(0, 2))
    counts = Counter(key.done for key in keys)
    for done in Done:
        if counts[done]:
            table.add_row(Text(done, STYLES[done]), str(counts[done]), EXPLAINED[done])
    console.print(table)
    left = [key for key in keys if key.done is not Done.REPAIRED]
    for key in left[:LISTED_MAX]:
        _line(console, f"{key.done}: {_cut(key.key)} (partition {key.partition}): {key.detail}")
    if len(left) > LISTED_MAX:
        _line(console, f"and {len(left) - LISTED_MAX} more: --json names them")
    _line(console, f"Whether all copies agree now: quorate validate {zone}")


def _plan_table(keys: Sequence[PlannedKey]) -> Table:
    listed = keys[:LISTED_MAX]
    title = f"Plan, {len(listed)} of {len(keys)} keys" if len(listed) < len(keys) else "Plan"
    table = Table(title=title, show_lines=True)
    table.add_column("key", overflow="fold")
    for heading in ("node", "version", "value"):
        table.add_column(heading, no_wrap=True)
    table.add_column("decision", overflow="fold")
    for key in listed:
        nodes, versions, values = zip(*map(_cells, key.copies), strict=True)
        table.add_row(
            Text(f"{_cut(key.key)}\npartition {key.partition}"),
            Text("\n".join(nodes)),
            Text("\n".join(versions)),
            Text("\n".join(values)),
            Text(f"{_decision(key)}\n{key.reason}"),
        )
    return table


def _cells(copy: CopyRow) -> tuple[str, str, str]:
    node = f"{copy.node} (primary)" if copy.replica_index == 0 else copy.node
    if not copy.present:
        return node, "-", "no row"
    value = "deleted" if copy.tombstone else f"{copy.value_bytes} B {copy.value_sha256[:8]}"
    return node, f"{copy.counter} of term {copy.term}", value


def _decision(key: PlannedKey) -> str:
    if key.action is not Action.WRITE:
        return key.action
    return f"write {key.new_value_bytes} B {(key.new_value_sha256 or '')[:8]}"


def _cut(key: str) -> str:
    return key if len(key) <= KEY_COLUMNS_MAX else key[: KEY_COLUMNS_MAX - 1] + "…"


def _line(console: Console, text: str) -> None:
    console.print(Text(text), soft_wrap=True)  # a command stays on one line, to be copied
