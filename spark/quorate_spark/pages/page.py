"""The report of a validation as one HTML page that loads nothing: verdict first, then its proof.

Every text of a zone (keys, nodes, reasons) is escaped by `markup`; the page allows no script.
"""

from collections import Counter
from collections.abc import Sequence

from quorate.wire.jobs.validation_result import DifferenceClass
from quorate_spark.pages.change import change_since, last_of_zone, new_zones
from quorate_spark.pages.commands import Step, dev_commands, kubectl_commands
from quorate_spark.pages.markup import Markup, joined, tag
from quorate_spark.pages.parts import day_text, grid, many, section, table, time_text
from quorate_spark.pages.past import backups, last_day
from quorate_spark.pages.plots import Bar, Share, bars, shares, strip
from quorate_spark.pages.style import STYLE
from quorate_spark.verdict import (
    CHANGE_HEADINGS,
    ClientTimes,
    CopyRow,
    KeyDifference,
    Level,
    Mode,
    Outcome,
    Verdict,
    change_rows,
    change_title,
    rate_text,
)

KINDS = {Outcome.AGREE: "agree", Outcome.DIFFER: "differ", Outcome.UNKNOWN: "unknown"}
SIGNS = {Outcome.AGREE: "✓", Outcome.DIFFER: "✗", Outcome.UNKNOWN: "?"}
CHANGED_MAX = 20
"""Keys that are listed as new or gone."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_CLASSES = {
    DifferenceClass.COUNTER: "partitions in which a copy lacks updates and does not catch up",
    DifferenceClass.LINEAGE: "partitions with one counter in different terms",
    DifferenceClass.GAP: "partitions with counters that no copy holds",
    DifferenceClass.KEY_COUNTER: "keys whose rows are of different updates",
    DifferenceClass.VALUE: "keys with different values of one length",
    DifferenceClass.SIZE: "keys with values of different lengths",
    DifferenceClass.EXPIRY: "keys that expire at different times",
    DifferenceClass.MISSING: "keys that a copy has not, or has as deleted",
    DifferenceClass.OTHER: "keys that differ otherwise",
}
_UNSEEN = {
    Level.COUNTERS: "No row was compared: copies with equal counters may have different rows."
    " Level digest or rows compares them.",
    Level.DIGEST: "Rows that changed on disk behind their agent: agents keep digests as they write,"
    " and read no rows for them. Level rows compares these.",
}
_UNSETTLED = (
    "They were written while their copies were read one after the other, so correct copies may show"
    " different rows. A quiet minute settles them."
)
_UNREACHED = (
    "No agent that answered has them as an owner. The reasons below name agents and partitions."
)
_UNCONFIRMED = (
    "They differed when first read, and were not read again: there were too many of them, or they"
    " were overwritten."
)
_MODES = {
    Mode.LIVE: "while clients were served",
    Mode.IDLE: "mode idle: nothing may be written meanwhile",
}
_SAME_DAMAGE = "A value that is damaged in the same way in every copy agrees."


def page_of(verdict: Verdict, earlier: Sequence[Verdict] = ()) -> bytes:
    """Return the page.  `earlier`: runs of the same zone before this one, the oldest first."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("title", f"{verdict.zone}: {verdict.outcome}"),
        tag("style", Markup(STYLE)),
    )
    body = tag(
        "body",
        _header(verdict),
        _since(verdict, earlier),
        _unproven(verdict),
        _differences(verdict),
        _ways_out(verdict),
        _coverage(verdict),
        _trends([*earlier, verdict]),
        last_day(verdict.history),
        backups(verdict.history, verdict.started_ms),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n".encode()


def sentence(verdict: Verdict) -> str:
    """Return the verdict in one sentence."""
    copies = f"{many(verdict.copies, 'copy', 'copies')} of {many(verdict.partitions, 'partition')}"
    if verdict.outcome is Outcome.AGREE:
        unwritten = ", and nothing was written meanwhile" if verdict.mode is Mode.IDLE else ""
        if verdict.level is Level.COUNTERS:
            return f"All {copies} agree in their counters{unwritten}."
        return f"All {copies} agree{unwritten}: {many(verdict.settled_keys, 'key')} compared."
    if verdict.outcome is Outcome.UNKNOWN:
        why = verdict.reasons[0] if verdict.reasons else "no reason was given"
        return f"Could not tell whether all copies agree: {why}."
    found = []
    if verdict.confirmed_keys:
        found.append(f"{many(verdict.confirmed_keys, 'key')} confirmed to differ")
    if verdict.differing_partitions:
        found.append(f"{many(verdict.differing_partitions, 'partition')} with differing counters")
    return f"Copies differ: {' and '.join(found)}, among {copies}."


def _header(verdict: Verdict) -> Markup:
    began = time_text(verdict.started_ms) if verdict.started_ms else "time unknown"
    return tag(
        "header",
        tag("span", f"{SIGNS[verdict.outcome]} {verdict.outcome}", class_="badge"),
        tag("h1", sentence(verdict)),
        tag(
            "p",
            f"Zone {verdict.zone}, level {verdict.level}, {began}, {_MODES[verdict.mode]}.",
            class_="quiet",
        ),
        class_=KINDS[verdict.outcome],
    )


def _unproven(verdict: Verdict) -> Markup:
    """Return what this run has not proven, and why."""
    rows: list[tuple[str, str, str]] = []
    skipped = verdict.classes.get(DifferenceClass.SKIPPED, 0)
    if skipped:
        rows.append(("Partitions not judged", f"{skipped:,}", "The reasons are below."))
    if verdict.copies < verdict.copies_expected:
        count = f"{verdict.copies_expected - verdict.copies:,} of {verdict.copies_expected:,}"
        rows.append(("Copies missing or not reached", count, _UNREACHED))
    if verdict.unsettled_keys:
        rows.append(
            (
                "Keys unsettled",
                f"{verdict.unsettled_keys:,}",
                _UNSETTLED,
            )
        )
    if verdict.differing_keys > verdict.confirmed_keys:
        rows.append(
            (
                "Keys not confirmed",
                f"{verdict.differing_keys - verdict.confirmed_keys:,}",
                _UNCONFIRMED,
            )
        )
    parts: list[Markup] = []
    if rows:
        parts.append(table(("what", "count", "why"), rows, "why"))
    if verdict.reasons:
        parts.append(tag("h3", "Reasons"))
        parts.append(tag("ul", *(tag("li", reason) for reason in verdict.reasons)))
    if verdict.changes:
        parts.append(tag("h3", change_title(verdict)))
        parts.append(table(CHANGE_HEADINGS, list(change_rows(verdict))))
    if not parts:
        parts.append(
            tag("p", "Every partition was judged, and no key was being written meanwhile.")
        )
    limits = [_UNSEEN[verdict.level]] if verdict.level in _UNSEEN else []
    parts.append(tag("h3", "What this level cannot see"))
    parts.append(tag("ul", *(tag("li", each) for each in (*limits, _SAME_DAMAGE))))
    if verdict.notes:
        parts.append(tag("h3", "Notes"))
        parts.append(tag("ul", *(tag("li", note) for note in verdict.notes)))
    return section("Not proven", *parts)


def _differences(verdict: Verdict) -> Markup:
    if verdict.outcome is not Outcome.DIFFER:
        return section("Differences", tag("p", "None is proven."))
    counts = [
        (f"{verdict.classes[each]:,}", said)
        for each, said in _CLASSES.items()
        if verdict.classes.get(each)
    ]
    parts: list[Markup] = [table(("count", "what differs; one key may be of several"), counts)]
    if verdict.key_differences:
        listed = len(verdict.key_differences)
        more = f", {listed:,} listed" if listed < verdict.confirmed_keys else ""
        parts.append(tag("h3", f"{many(verdict.confirmed_keys, 'confirmed key')}{more}"))
        parts += [_key_card(each) for each in verdict.key_differences]
    if verdict.counter_differences:
        listed = len(verdict.counter_differences)
        more = f", {listed:,} listed" if listed < verdict.differing_partitions else ""
        count = many(verdict.differing_partitions, "partition")
        parts.append(tag("h3", f"{count} with differing counters{more}"))
        parts += [_counter_card(verdict, index) for index in range(listed)]
    return section("Differences", *parts)


def _key_card(difference: KeyDifference) -> Markup:
    contents = [_content(copy) for copy in difference.copies]
    content, votes = Counter(contents).most_common(1)[0]
    has_majority = 2 * votes > len(contents)
    rows = [
        tag(
            "tr",
            *(tag("td", cell) for cell in _cells(copy)),
            tag("td", "contradicted" if has_majority and own != content else ""),
            class_="odd" if has_majority and own != content else None,
        )
        for copy, own in zip(difference.copies, contents, strict=True)
    ]
    headings = ("node", "copy", "counter", "term", "expires", "value", "")
    about = [f"partition {difference.partition}, differs in {', '.join(difference.what)}"]
    if not has_majority:
        about.append("no majority of its copies agrees")
    return tag(
        "div",
        tag("h3", tag("code", difference.key)),
        tag("p", "; ".join(about), class_="quiet"),
        grid(headings, rows),
        class_="card",
    )


def _content(copy: CopyRow) -> tuple[object, ...]:
    """Return what must be the same on every copy."""
    if not copy.present:
        return (False,)
    return (True, copy.counter, copy.term, copy.expires_at, copy.tombstone, copy.value_sha256)


def _cells(copy: CopyRow) -> tuple[str, ...]:
    place = (copy.node, "primary" if copy.replica_index == 0 else f"backup {copy.replica_index}")
    if not copy.present:
        return (*place, "-", "-", "-", "no row")
    value = "deleted" if copy.tombstone else f"{copy.value_bytes:,} B, {copy.value_sha256[:8]}"
    expires = time_text(copy.expires_at) if copy.expires_at else "never"
    return (*place, str(copy.counter), str(copy.term), expires, value)


def _counter_card(verdict: Verdict, index: int) -> Markup:
    difference = verdict.counter_differences[index]
    rows = [
        tag(
            "tr",
            *(
                tag("td", cell)
                for cell in (
                    copy.node,
                    "primary" if copy.replica_index == 0 else f"backup {copy.replica_index}",
                    str(copy.lwm),
                    str(copy.hwm),
                    str(copy.term),
                    ", ".join(f"{first} to {last}" for first, last in copy.above),
                )
            ),
        )
        for copy in difference.copies
    ]
    headings = ("node", "copy", "LWM", "HWM", "term", "holds above its LWM")
    return tag(
        "div",
        tag("h3", f"partition {difference.partition}: {difference.what}"),
        tag("p", difference.detail, class_="quiet"),
        grid(headings, rows),
        class_="card",
    )


def _ways_out(verdict: Verdict) -> Markup:
    parts = [
        tag("p", f"Partition {partition}: no majority of its copies agrees, so no copy can be made"
            " anew from the others. A repair of its keys can decide.")
        for partition in verdict.undecided[:CHANGED_MAX]
    ]  # fmt: skip
    parts += [tag("h3", "On Kubernetes"), *_steps(kubectl_commands(verdict))]
    parts += [tag("h3", "Development cluster"), *_steps(dev_commands(verdict))]
    return section("What to do", *parts)


def _steps(steps: Sequence[Step]) -> list[Markup]:
    made = []
    for step in steps:
        about = f" {step.about}" if step.about else ""
        made.append(tag("p", tag("b", f"{step.title}."), about))
        made.append(tag("pre", "\n".join(step.lines)))
    return made


def _coverage(verdict: Verdict) -> Markup:
    skipped = verdict.classes.get(DifferenceClass.SKIPPED, 0)
    differing = verdict.differing_partitions
    judged = max(verdict.partitions - skipped - differing, 0)
    pictures = [
        shares(
            "Partitions",
            (
                Share("compared", judged, "agree"),
                Share("with differing counters", differing, "differ"),
                Share("not judged", skipped, "unknown"),
            ),
        )
    ]
    if verdict.level is not Level.COUNTERS:
        pictures.append(
            shares(
                "Keys",
                (
                    Share("equal", verdict.settled_keys, "agree"),
                    Share("differing", verdict.differing_keys, "differ"),
                    Share("unsettled", verdict.unsettled_keys, "unknown"),
                ),
            )
        )
    seconds = verdict.duration_ms / 1000
    figures = [
        ("partitions", f"{verdict.partitions:,}"),
        ("copies", f"{verdict.copies:,}"),
        ("nodes", ", ".join(verdict.nodes) or "none was read"),
        ("seconds", f"{seconds:,.1f}"),
    ]
    if verdict.answered is not None:
        figures.append(("answered by the agents", rate_text(verdict.answered, verdict.level)))
    if (limit := verdict.max_mib_per_second_per_agent) is not None:
        figures.append(("limit for each agent", f"{limit:,} MiB/s"))
    if verdict.rows_compared:
        figures.append(("rows compared", f"{verdict.rows_compared:,}"))
        if seconds:
            figures.append(("rows per second", f"{verdict.rows_compared / seconds:,.0f}"))
    if verdict.digests is not None:
        figures.append(("keys equal by digest, rows unread", f"{verdict.digests.rows_unread:,}"))
        figures.append(("rows read where digests differ", f"{verdict.digests.rows_read:,}"))
    figures += [
        (f"added p99 of {what}", _added(times))
        for what, times in (("reads", verdict.client_reads), ("writes", verdict.client_writes))
    ]
    return section(
        "Coverage and cost",
        tag("div", *pictures, class_="plots"),
        table(("", ""), figures),
    )


def _added(times: ClientTimes | None) -> str:
    """Return what the run has added to the time of the clients' commands."""
    if times is None:
        return "unknown: too few commands of clients while it ran or before, or agents do not tell"
    return (
        f"{times.added_p99_ms:+,.2f} ms: {times.p99_ms:,.2f} ms of"
        f" {many(times.commands, 'command')} while it ran,"
        f" {times.p99_before_ms:,.2f} ms before, since the agents began"
    )


def _since(verdict: Verdict, earlier: Sequence[Verdict]) -> Markup:
    last = last_of_zone(earlier, verdict)
    if last is None:
        return section("Since the last run", tag("p", _no_last(earlier, verdict)))
    changed = change_since(last, verdict)
    before = tag(
        "p",
        f"The last run, {time_text(last.started_ms)}, level {last.level}: ",
        tag("b", last.outcome),
        ". This one: ",
        tag("b", verdict.outcome),
        ".",
    )
    figures = [
        (name, f"{was:,}", f"{now:,}", f"{now - was:+,}" if now != was else "-")
        for name, was, now in (
            ("confirmed keys", last.confirmed_keys, verdict.confirmed_keys),
            (
                "partitions with differing counters",
                last.differing_partitions,
                verdict.differing_partitions,
            ),
            (
                "partitions not judged",
                last.classes.get(DifferenceClass.SKIPPED, 0),
                verdict.classes.get(DifferenceClass.SKIPPED, 0),
            ),
            ("keys unsettled", last.unsettled_keys, verdict.unsettled_keys),
            ("keys found equal", last.settled_keys, verdict.settled_keys),
            ("copies", last.copies, verdict.copies),
        )
    ]
    parts: list[Markup] = [before, table(("", "last", "now", "change"), figures)]
    for title, keys in (
        ("Newly confirmed keys", changed.new),
        ("Keys that were confirmed, and are not now", changed.gone),
    ):
        if keys:
            parts.append(tag("h3", f"{title}: {len(keys):,}"))
            parts.append(_keys(keys))
    if changed.same:
        parts.append(tag("p", f"Confirmed in both runs: {many(len(changed.same), 'key')}."))
    if changed.limits and (changed.new or changed.gone or changed.same):
        parts.append(tag("p", f"Compare with care: {'; '.join(changed.limits)}.", class_="quiet"))
    return section("Since the last run", *parts)


def _no_last(earlier: Sequence[Verdict], verdict: Verdict) -> str:
    """Return why this run is compared with no earlier one."""
    if not earlier:
        return "No earlier report of this zone is in the same folder."
    before = next((run for run in reversed(earlier) if run.zone_uid), None)
    if not verdict.zone_uid:
        return (
            "Not compared: this run does not know the zone's uid (its agents did not tell it, or"
            " told of two zones), so that the earlier reports may be of another zone of this name."
        )
    if before is None:
        return (
            "Not compared: the earlier reports do not tell the zone's uid, so that they may be of"
            " another zone of this name."
        )
    return (
        f"No earlier report of this zone is in the same folder. That of"
        f" {time_text(before.started_ms)} is of another zone of this name, with uid"
        f" {before.zone_uid}: the zone was deleted and created again."
    )


def _keys(keys: Sequence[tuple[int, str]]) -> Markup:
    listed = [
        tag("li", tag("code", key), f" in partition {partition}")
        for partition, key in keys[:CHANGED_MAX]
    ]
    if len(keys) > CHANGED_MAX:
        listed.append(tag("li", f"and {len(keys) - CHANGED_MAX:,} more"))
    return tag("ul", *listed)


def _trends(runs: Sequence[Verdict]) -> Markup:
    if len(runs) < 2:
        return joined(())
    begins = new_zones(runs)
    marks = []
    for index, run in enumerate(runs):
        told = f"{time_text(run.started_ms)}, level {run.level}: {run.outcome}"
        if index in begins:
            marks.append(("|", "begin", f"a new zone, with uid {run.zone_uid}"))
        marks.append((SIGNS[run.outcome], KINDS[run.outcome], told))
    notes = [
        f"| From {time_text(runs[index].started_ms)} on the runs are of a new zone of this name,"
        f" with uid {runs[index].zone_uid}."
        for index in begins
    ]

    def plot(title: str, values: Sequence[float], unit: str = "", kind: str = "") -> Markup:
        made = [
            Bar(day_text(run.started_ms), value, kind, index in begins)
            for index, (run, value) in enumerate(zip(runs, values, strict=True))
        ]
        return bars(title, made, unit)

    return section(
        f"The last {many(len(runs), 'run')}",
        strip(marks),
        tag("p", "✓ agree, ✗ differ, ? could not tell; the latest to the right.", class_="quiet"),
        *(tag("p", note, class_="quiet") for note in notes),
        tag(
            "div",
            plot("Confirmed keys", [run.confirmed_keys for run in runs], kind="differ"),
            plot("Keys unsettled", [run.unsettled_keys for run in runs], kind="unknown"),
            plot("Keys found equal", [run.settled_keys for run in runs]),
            plot("Seconds", [run.duration_ms / 1000 for run in runs], " s"),
            class_="plots",
        ),
    )
