"""Renders a verdict: for people (rich), for programs (JSON), in short for the operator."""

import msgspec
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from quorate.wire.jobs.validation_result import (
    Outvoted,
    ValidationMode,
    ValidationResult,
    ValidationVerdict,
)
from quorate_spark.verdict import (
    CHANGE_HEADINGS,
    CopyRow,
    DigestFigures,
    KeyDifference,
    Mode,
    Outcome,
    Verdict,
    change_rows,
    change_title,
    rate_text,
)

STYLES = {Outcome.AGREE: "bold green", Outcome.DIFFER: "bold red", Outcome.UNKNOWN: "bold yellow"}
_VERDICTS = {
    Outcome.AGREE: ValidationVerdict.AGREE,
    Outcome.DIFFER: ValidationVerdict.DIFFER,
    Outcome.UNKNOWN: ValidationVerdict.COULD_NOT_TELL,
}
_MODES = {Mode.LIVE: ValidationMode.LIVE, Mode.IDLE: ValidationMode.IDLE}
KEY_COLUMNS_MAX = 60
LISTED_MAX = 5
COMMANDS_MAX = 50


def report_json(verdict: Verdict) -> bytes:
    """Return the whole verdict as one JSON object, with its exit code."""
    fields = msgspec.to_builtins(verdict)
    fields["exit_code"] = verdict.exit_code
    return msgspec.json.format(msgspec.json.encode(fields), indent=2) + b"\n"


def result_of(verdict: Verdict) -> ValidationResult:
    """Return the verdict in short."""
    return ValidationResult(
        _VERDICTS[verdict.outcome],
        verdict.classes,
        verdict.partitions,
        verdict.copies,
        verdict.settled_keys,
        verdict.unsettled_keys,
        verdict.confirmed_keys,
        verdict.reasons,
        tuple(Outvoted(each.partition, each.node, each.suppliers) for each in verdict.outvoted),
        verdict.duration_ms,
        _MODES[verdict.mode],
        verdict.zone_uid,
    )


def print_report(verdict: Verdict, console: Console) -> None:
    """Print the verdict with its figures, the differences, and why something could not be told."""
    console.print(_report(verdict))
    for line in _ways_out(verdict):
        console.print(line, soft_wrap=True)  # a command stays on one line, to be copied


def _report(verdict: Verdict) -> RenderableType:
    parts: list[RenderableType] = [_summary(verdict)]
    if verdict.counter_differences:
        parts.append(_counter_table(verdict))
    if verdict.changes:
        parts.append(_change_table(verdict))
    if verdict.digests is not None and verdict.digests.differing:
        parts.append(_digest_table(verdict.digests))
    if verdict.key_differences:
        parts.append(_key_table(verdict))
    parts += [Text(f"could not tell: {reason}", "yellow") for reason in verdict.reasons]
    parts += [Text(f"note: {note}", "dim") for note in verdict.notes]
    return Group(*parts)


def _ways_out(verdict: Verdict) -> list[Text]:
    """Return the commands that mend the copies that the others out-vote, or single keys."""
    lines: list[Text] = []
    for partition in verdict.undecided[:LISTED_MAX]:
        text = f"partition {partition}: no majority of its copies agrees: none can be refilled"
        lines.append(Text(text, "red"))
    if verdict.outvoted:
        lines.append(Text("Copies that the others out-vote get the rows of these by:"))
    for copy in verdict.outvoted[:COMMANDS_MAX]:
        command = f"quorate debug refill {verdict.zone} {copy.partition} --agent {copy.node}"
        if verdict.digests is None:  # digests need not show the damage
            command += "".join(f" --from {node}" for node in copy.suppliers)
        lines.append(Text(f"  {command}"))
    if len(verdict.outvoted) > COMMANDS_MAX:
        lines.append(Text(f"and {len(verdict.outvoted) - COMMANDS_MAX} more: --report names them"))
    if verdict.key_differences:
        lines.append(Text("Or the keys are repaired one by one, after a plan that only reports:"))
        lines.append(Text(f"  quorate repair {verdict.zone} --strategy RELATIVE_MAJORITY"))
    return lines


def _summary(verdict: Verdict) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row("zone", escape(verdict.zone))
    table.add_row("level", verdict.level)
    table.add_row("mode", verdict.mode)
    table.add_row("verdict", Text(verdict.outcome, STYLES[verdict.outcome]))
    table.add_row("nodes", escape(", ".join(verdict.nodes)))
    table.add_row("partitions", str(verdict.partitions))
    table.add_row("copies", str(verdict.copies))
    if verdict.digests is not None:
        table.add_row("partitions by digest", _by_digest(verdict.digests))
        table.add_row("rows not read", f"{verdict.digests.rows_unread:,} (their digests are equal)")
        table.add_row("rows read", f"{verdict.digests.rows_read:,} (of all copies)")
    if verdict.settled_keys or verdict.unsettled_keys or verdict.differing_keys:
        table.add_row("keys settled", f"{verdict.settled_keys:,}")
        if verdict.mode is Mode.LIVE:
            table.add_row("keys unsettled", f"{verdict.unsettled_keys:,} (written meanwhile)")
        table.add_row(
            "keys differing",
            f"{verdict.differing_keys:,} ({verdict.confirmed_keys:,} read again and confirmed)",
        )
    table.add_row("took", f"{verdict.duration_ms / 1000:.1f} s")
    if verdict.answered is not None:
        told = rate_text(verdict.answered, verdict.level)
        table.add_row("agents answered", escape(told))
    if verdict.max_mib_per_second_per_agent is not None:
        table.add_row("limit", f"{verdict.max_mib_per_second_per_agent} MiB/s of each agent")
    return table


def _counter_table(verdict: Verdict) -> Table:
    listed = len(verdict.counter_differences)
    table = Table(
        title=f"Counters differ in {verdict.differing_partitions} partitions, {listed} listed"
    )
    for heading in ("partition", "what", "node", "replica index", "term", "LWM", "HWM", "gaps"):
        table.add_column(heading)
    for difference in verdict.counter_differences:
        for copy in difference.copies:
            table.add_row(
                str(difference.partition),
                difference.what,
                escape(copy.node),
                str(copy.replica_index),
                str(copy.term),
                str(copy.lwm),
                str(copy.hwm),
                ", ".join(f"holds {first} to {last}" for first, last in copy.above),
            )
        table.add_row("", "", Text(difference.detail), end_section=True)
    return table


def _change_table(verdict: Verdict) -> Table:
    table = Table(*CHANGE_HEADINGS, title=change_title(verdict))
    for cells in change_rows(verdict):
        table.add_row(*map(Text, cells), end_section="after" in cells)
    return table


def _by_digest(digests: DigestFigures) -> str:
    return f"{digests.partitions_compared} compared, {digests.partitions_differing} differ"


def _digest_table(digests: DigestFigures) -> Table:
    listed = len(digests.differing)
    table = Table(
        title=f"Digests differ in {digests.partitions_differing} partitions, {listed} listed",
        show_lines=True,
    )
    for heading in ("partition", "counter", "node", "digest", "buckets", "rows read", "keys"):
        table.add_column(heading)
    for difference in digests.differing:
        no_key = "confirmed, none is listed" if difference.confirmed else "none confirmed"
        table.add_row(
            str(difference.partition),
            str(difference.counter),
            Text("\n".join(copy.node for copy in difference.copies)),
            "\n".join(copy.digest[:8] for copy in difference.copies),
            _listed(tuple(map(str, difference.buckets))),
            str(difference.rows_read),
            Text(_listed(difference.keys) or no_key),
        )
    return table


def _listed(names: tuple[str, ...]) -> str:
    more = len(names) - LISTED_MAX
    shown = ", ".join(_cut(name) for name in names[:LISTED_MAX])
    return f"{shown}, and {more} more" if more > 0 else shown


def _key_table(verdict: Verdict) -> Table:
    listed = len(verdict.key_differences)
    table = Table(title=f"{verdict.differing_keys} keys differ, {listed} listed", show_lines=True)
    table.add_column("key", overflow="fold")
    for heading in ("node", "index", "counter", "term", "expires at", "value"):
        table.add_column(heading, no_wrap=True)
    for difference in verdict.key_differences:
        lines = zip(*(_cells(copy) for copy in difference.copies), strict=True)
        table.add_row(
            Text(
                f"{_shortened(difference)}\npartition {difference.partition}\n"
                f"differs: {', '.join(difference.what)}"
            ),
            *(Text("\n".join(column)) for column in lines),
        )
    return table


def _shortened(difference: KeyDifference) -> str:
    return _cut(difference.key)


def _cut(key: str) -> str:
    return key if len(key) <= KEY_COLUMNS_MAX else key[: KEY_COLUMNS_MAX - 1] + "…"


def _cells(copy: CopyRow) -> tuple[str, ...]:
    place = (copy.node, str(copy.replica_index))
    if not copy.present:
        return (*place, "-", "-", "-", "no row")
    value = "deleted" if copy.tombstone else f"{copy.value_bytes} B {copy.value_sha256[:8]}"
    expires = str(copy.expires_at) if copy.expires_at else "never"
    return (*place, str(copy.counter), str(copy.term), expires, value)
