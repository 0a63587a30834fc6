"""The page of a report: what it says, that nothing in it is markup of a key, that it is whole."""

import errno
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quorate.facts.time import duration_text
from quorate.wire.jobs.zone_history import DayTold, ExportTold, HourTold, ZoneHistory
from quorate_spark.pages.change import change_since, last_of_zone
from quorate_spark.pages.folder import earlier_runs, report_of, store
from quorate_spark.pages.markup import Markup, escaped, tag
from quorate_spark.pages.page import page_of, sentence
from quorate_spark.pages.parts import day_text, time_text
from quorate_spark.pages.plots import Bar, Share, bars, shares
from quorate_spark.report import report_json
from quorate_spark.verdict import (
    ClientTimes,
    CopyCounters,
    CopyRow,
    CounterDifference,
    KeyDifference,
    Level,
    Mode,
    Outcome,
    OutvotedCopy,
    Verdict,
    answer_rate,
    could_not_tell,
    with_hashed_keys,
)
from quorate_spark_fixtures.read_page import PageRead, read_page

START = 1_795_000_000_000
HOUR = 3_600_000
NASTY = "<script>alert('x')</script>&amp;\"\u202etxt"


def row(node: str, index: int, sha: str = "aa" * 32, **more: Any) -> CopyRow:
    return CopyRow(node, index, True, 7, 3, value_bytes=5, value_sha256=sha, **more)


def differing(key: str = "cart:1", partition: int = 5, bad: str = "agent-3") -> KeyDifference:
    nodes = ("agent-1", "agent-2", "agent-3")
    copies = tuple(
        row(node, index, ("bb" if node == bad else "aa") * 32) for index, node in enumerate(nodes)
    )
    return KeyDifference(partition, key, key.encode().hex(), ("value",), copies, 40)


def verdict(*keys: KeyDifference, **more: object) -> Verdict:
    """64 partitions of three copies; these keys are confirmed to differ."""
    made = Verdict(
        "library",
        Level.ROWS,
        Outcome.DIFFER if keys else Outcome.AGREE,
        nodes=("agent-1", "agent-2", "agent-3"),
        partitions=64,
        copies=192,
        settled_keys=1_100_000,
        differing_keys=len(keys),
        confirmed_keys=len(keys),
        classes={"value": len(keys)} if keys else {},
        key_differences=keys,
        outvoted=tuple(
            OutvotedCopy(each.partition, "agent-3", ("agent-1", "agent-2")) for each in keys
        ),
        duration_ms=20_000,
        started_ms=START,
        rows_compared=3_300_000,
    )
    return msgspec.structs.replace(made, **more)


def page(made: Verdict, *earlier: Verdict) -> PageRead:
    return read_page(page_of(made, earlier))


def test_the_verdict_is_first_in_one_sentence() -> None:
    read = page(verdict())

    assert read.headings[0] == ("All 192 copies of 64 partitions agree: 1,100,000 keys compared.")
    assert read.text.index("agree") < read.text.index("Not proven") < read.text.index("Differences")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            verdict(differing()),
            "Copies differ: 1 key confirmed to differ, among 192 copies of 64 partitions.",
        ),
        (
            verdict(outcome=Outcome.DIFFER, differing_partitions=2, copies=1, partitions=1),
            "Copies differ: 2 partitions with differing counters, among 1 copy of 1 partition.",
        ),
        (
            verdict(level=Level.COUNTERS),
            "All 192 copies of 64 partitions agree in their counters.",
        ),
        (
            verdict(mode=Mode.IDLE, settled_keys=1, copies=2, partitions=1),
            "All 2 copies of 1 partition agree, and nothing was written meanwhile: 1 key compared.",
        ),
        (
            verdict(level=Level.COUNTERS, mode=Mode.IDLE, copies=3, partitions=2),
            (
                "All 3 copies of 2 partitions agree in their counters, and nothing was written"
                " meanwhile."
            ),
        ),
        (
            could_not_tell("library", Level.ROWS, "agent-2 is silent"),
            "Could not tell whether all copies agree: agent-2 is silent.",
        ),
    ],
)
def test_the_sentence(made: Verdict, said: str) -> None:
    assert sentence(made) == said


def test_a_page_loads_nothing_and_runs_nothing() -> None:
    read = page(verdict(differing(NASTY)), verdict(started_ms=START - HOUR))

    assert read.tags.isdisjoint({"script", "link", "img", "iframe", "object", "a", "form", "base"})
    assert read.attributes.isdisjoint({"src", "href", "style", "onclick", "onload"})
    assert "default-src 'none'" in read.policy
    assert "url(" not in read.style
    assert "@import" not in read.style


def test_every_text_of_a_zone_is_escaped() -> None:
    key = msgspec.structs.replace(
        differing(NASTY), copies=tuple(row(f"{NASTY}{i}", i) for i in range(3)), what=(NASTY,)
    )
    counters = CopyCounters(NASTY, 0, 1, 1, 1, 1, (), (0, 0), ())
    made = verdict(
        key,
        zone=NASTY,
        nodes=(NASTY,),
        reasons=(NASTY,),
        notes=(NASTY,),
        outvoted=(OutvotedCopy(1, NASTY, (NASTY,)),),
        counter_differences=(CounterDifference(1, NASTY, NASTY, (counters,)),),
        differing_partitions=1,
    )
    whole = page_of(made, [verdict(started_ms=START - HOUR)])
    read = read_page(whole)

    assert b"<script" not in whole
    assert "\u202e" not in whole.decode()
    seen = NASTY.replace("\u202e", "\\u202e")
    assert read.codes[0] == seen
    assert read.text.count(seen) >= 12


def test_what_was_not_proven_is_told_with_its_reasons() -> None:
    read = page(
        verdict(
            outcome=Outcome.UNKNOWN,
            unsettled_keys=1234,
            differing_keys=3,
            classes={"skipped": 2},
            reasons=("partition 7: agent-2 cannot be reached",),
        )
    )

    part = read.section("Not proven")
    assert "Keys unsettled 1,234" in part
    assert "Keys not confirmed 3" in part
    assert "Partitions not judged 2" in part
    assert "partition 7: agent-2 cannot be reached" in part


def test_each_level_says_what_it_cannot_see() -> None:
    seen = [page(verdict(level=level)).section("Not proven") for level in Level]

    assert "No row was compared" in seen[0]
    assert "changed on disk behind their agent" in seen[1]
    assert all("damaged in the same way in every copy" in each for each in seen)
    assert "Every partition was judged" in seen[2]


def test_a_confirmed_key_is_shown_copy_by_copy() -> None:
    part = page(verdict(differing("cart:1"))).section("Differences")

    assert "cart:1 partition 5, differs in value" in part
    assert "agent-1 primary 7 3 never 5 B, aaaaaaaa agent-2" in part
    assert "agent-3 backup 2 7 3 never 5 B, bbbbbbbb contradicted" in part
    assert "1 keys with different values of one length" in part


def test_no_copy_is_contradicted_without_a_majority() -> None:
    copies = tuple(row(f"agent-{i}", i, f"{i}{i}" * 32) for i in range(3))
    made = msgspec.structs.replace(differing(), copies=copies)

    part = page(verdict(made, outvoted=(), undecided=(5,))).section("Differences")

    assert "contradicted" not in part
    assert "no majority of its copies agrees" in part


def test_the_commands_to_look_and_to_repair() -> None:
    lines = page(verdict(differing(), differing("other", 7))).commands

    assert "quorate debug refill library 5 --agent agent-3 --from agent-1 --from agent-2" in lines
    assert "quorate repair library --strategy RELATIVE_MAJORITY" in lines
    assert "quorate repair library --execute repair-library.parquet" in lines
    restart = "kubectl quorate recover restart library --partitions 5,7 --node agent-3 --erase"
    assert restart in lines
    assert f"{restart} --versions VERSIONS --yes" in lines
    assert "kubectl quorate describe zone library" in lines
    dry = "kubectl quorate repair library --strategy RELATIVE_MAJORITY --destination CLAIM:FOLDER"
    assert dry in lines
    assert "kubectl quorate repair library --execute NAME" in lines


def test_without_a_difference_nothing_is_to_be_repaired() -> None:
    assert not [line for line in page(verdict()).commands if "repair" in line or "refill" in line]


def test_coverage_and_cost() -> None:
    part = page(verdict(unsettled_keys=5)).section("Coverage and cost")

    assert "seconds 20.0" in part
    assert "rows per second 165,000" in part
    assert "equal: 1,100,000" in part
    assert "unsettled: 5" in part


def test_what_it_has_added_to_the_times_of_clients() -> None:
    reads = ClientTimes(12_345, 3.456, 2.9, 0.556)
    part = page(verdict(client_reads=reads)).section("Coverage and cost")

    assert (
        "added p99 of reads +0.56 ms: 3.46 ms of 12,345 commands while it ran, 2.90 ms before"
    ) in part
    assert "added p99 of writes unknown: too few commands" in part


def test_the_limit_is_a_part_of_the_cost() -> None:
    limited = page(verdict(max_mib_per_second_per_agent=8)).section("Coverage and cost")

    assert "limit for each agent 8 MiB/s" in " ".join(limited.split())
    assert "limit" not in page(verdict()).section("Coverage and cost")


def test_the_rate_of_the_agent_that_answered_the_most_is_beside_the_limit() -> None:
    rate = answer_rate({"agent-1": 30 << 20, "agent-2": 75 << 20, "agent-3": 0}, 10.0)
    limited = verdict(max_mib_per_second_per_agent=8, answered=rate)
    part = " ".join(page(limited).section("Coverage and cost").split())

    told = "answered by the agents 105.0 MiB in 10.0 s; most by agent-2: 7.50 MiB/s"
    assert f"{told} limit for each agent 8 MiB/s" in part
    assert "answered by the agents" not in page(verdict(answered=answer_rate({}, 10.0))).section(
        "Coverage and cost"
    )


def test_what_changed_since_the_last_run() -> None:
    before = verdict(differing("old"), differing("same"), started_ms=START - HOUR)
    part = page(verdict(differing("same"), differing("new")), before).section("Since the last run")

    assert "Newly confirmed keys: 1 new in partition 5" in part
    assert "are not now: 1 old in partition 5" in part
    assert "Confirmed in both runs: 1 key." in part
    assert "Compare with care" not in part


def test_a_list_that_was_cut_proves_no_change() -> None:
    before = verdict(differing(), confirmed_keys=500, level=Level.DIGEST)

    limits = change_since(before, verdict()).limits

    assert limits == (
        "the last run was at level digest, this one at level rows",
        "the last run lists 1 of 500 keys",
    )


def test_trends_have_a_bar_for_each_run() -> None:
    runs = [verdict(started_ms=START - n * HOUR, unsettled_keys=n) for n in range(5, 0, -1)]
    read = page(verdict(differing()), *runs)

    assert "The last 6 runs" in read.headings
    assert "✓✓✓✓✓✗" in read.section("The last 6 runs").replace(" ", "")
    assert read.labels["Keys unsettled"] == "Keys unsettled: 5, 4, 3, 2, 1, 0"


def test_a_zone_that_was_created_again_is_another_one() -> None:
    """The agents' uid tells it apart; a run that could not ask them is of neither."""
    of_old = [
        verdict(differing("old"), started_ms=START - n * HOUR, zone_uid="u-1") for n in (5, 4)
    ]
    unknown = verdict(started_ms=START - 3 * HOUR)
    of_new = verdict(differing("kept"), started_ms=START - 2 * HOUR, zone_uid="u-2")

    first = page(of_new, *of_old, unknown)
    since = first.section("Since the last run")
    assert "Not" not in since
    assert "No earlier report of this zone" in since
    assert f"That of {time_text(START - 4 * HOUR)} is of another zone" in since
    assert "with uid u-1" in since
    assert "kept" not in since

    second = page(verdict(differing("kept"), zone_uid="u-2"), *of_old, unknown, of_new)
    assert "Confirmed in both runs: 1 key." in second.section("Since the last run")
    trends = second.section("The last 5 runs")
    assert "✗✗✓|✗✗" in trends.replace(" ", "")
    begins = f"From {time_text(START - 2 * HOUR)} on the runs are of a new zone of this name"
    assert begins in trends
    assert second.labels["Confirmed keys"] == "Confirmed keys: 1, 1, 0, new: 1, 1"
    assert '<line class="begin"' in page_of(of_new, of_old).decode()
    assert '<line class="begin"' not in page_of(of_old[1], of_old[:1]).decode()


def test_runs_without_a_uid_are_compared_with_each_other_only() -> None:
    """Those of earlier versions; and a run to which no agent told it."""
    old = [verdict(differing("a"), started_ms=START - n * HOUR) for n in (3, 2)]
    now = verdict(differing("a"), zone_uid="u-1")

    assert last_of_zone(old[:1], old[1]) is old[0]
    assert last_of_zone(old, now) is None
    assert "Not compared: the earlier reports do not tell" in page(now, *old).section(
        "Since the last run"
    )
    assert "|" not in page(now, *old).section("The last 3 runs")
    last = verdict(started_ms=START + HOUR)
    assert last_of_zone([*old, now], last) is None
    assert "its agents did not tell it, or told of two zones" in page(last, *old, now).section(
        "Since the last run"
    )


def test_a_record_without_uid_and_rate_is_read(tmp_path: Path) -> None:
    report = report_of(str(tmp_path), "library", START - HOUR)
    record = msgspec.json.decode(report_json(verdict(started_ms=START - HOUR)))
    del record["zone_uid"], record["answered"]
    report.json.write_bytes(msgspec.json.encode(record))

    [found] = earlier_runs(report_of(str(tmp_path), "library", START), verdict(zone_uid="u-1"))

    assert (found.zone_uid, found.answered) == ("", None)


def test_hashed_keys_name_no_data() -> None:
    made = with_hashed_keys(verdict(differing("secret:1")))
    whole = page_of(made) + report_json(made)

    assert b"secret:1" not in whole
    assert b"secret:1".hex().encode() not in whole
    # coreutils: printf secret:1 | sha256sum
    assert made.key_differences[0].key == "sha256:808d0577d711dd91"
    limits = change_since(verdict(differing("secret:1")), made).limits
    assert limits == ("one of the two runs has hashes in place of keys",)


def test_a_folder_is_one_that_is_there_or_ends_in_a_slash(tmp_path: Path) -> None:
    assert report_of(f"{tmp_path}/new/", "a/b", START).page is not None
    report = report_of(str(tmp_path), "a/b", START)

    assert report.json.name == "a_b-20261118T110640Z.json"
    assert report.page == report.json.with_suffix(".html")
    assert report_of(f"{tmp_path}/verdict.json", "z", START) == (tmp_path / "verdict.json", None)


def test_earlier_runs_are_those_of_the_zone_before_this_one(tmp_path: Path) -> None:
    def put(made: Verdict) -> None:
        report_of(str(tmp_path), made.zone, made.started_ms).json.write_bytes(report_json(made))

    for hours in (1, 3, 2, 40, -1):
        put(verdict(differing(), started_ms=START - hours * HOUR))
    put(verdict(zone="other", started_ms=START - HOUR))
    put(verdict(zone="library-20261118T110640Z", started_ms=START - HOUR))
    report = report_of(str(tmp_path), "library", START)
    report.json.with_name("library-20200101T000000Z.json").write_bytes(b"{")

    found = earlier_runs(report, verdict())

    assert [(START - run.started_ms) // HOUR for run in found] == [40, 3, 2, 1]
    assert found[0] == verdict(differing(), started_ms=START - 40 * HOUR)
    put(verdict(zone="a/b", started_ms=START - HOUR))
    alike = verdict(zone="a_b")
    assert earlier_runs(report_of(str(tmp_path), "a_b", START), alike) == []


@pytest.mark.parametrize("has_links", [True, False])
def test_runs_of_one_second_keep_both_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    def refuse(*arguments: object) -> None:
        raise PermissionError(errno.EPERM, "no links")

    if not has_links:
        monkeypatch.setattr(os, "link", refuse)
    first, second = verdict(started_ms=START - 2), verdict(differing(), started_ms=START - 1)
    of_second = report_of(str(tmp_path), "library", START)
    texts = [report_json(each) for each in (first, second)]

    made = [store(of_second, text, b"page %d" % n) for n, text in enumerate(texts)]
    again = store(of_second, texts[1], b"page 1")

    assert [each.json.stem for each in made] == [f"library-20261118T110640Z{n}" for n in ("", "-2")]
    assert again == made[1]
    for n, each in enumerate(made):
        assert each.page is not None
        assert (each.json.read_bytes(), each.page.read_bytes()) == (texts[n], b"page %d" % n)
    assert len(list(tmp_path.iterdir())) == 4, "no temporary file is left"
    assert earlier_runs(of_second, verdict()) == [first, second]


def test_a_report_is_seen_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="full"):
        store(report_of(str(tmp_path), "library", START), report_json(verdict()), b"page")

    assert list(tmp_path.iterdir()) == []


def test_no_more_than_thirty_runs_are_read(tmp_path: Path) -> None:
    for hours in range(1, 40):
        made = verdict(started_ms=START - hours * HOUR)
        report_of(str(tmp_path), "library", made.started_ms).json.write_bytes(report_json(made))

    found = earlier_runs(report_of(str(tmp_path), "library", START), verdict())

    assert [(START - run.started_ms) // HOUR for run in found] == list(range(29, 0, -1))


def test_markup_escapes_all_that_it_has_not_made() -> None:
    made = tag("p", "<b>", tag("b", "&"), Markup("<i>"), title='"')

    assert made == '<p title="&quot;">&lt;b&gt;<b>&amp;</b><i></p>'
    assert escaped("a\x00\u200b") == "a\\x00\\u200b"


def test_what_is_above_0_is_seen_in_a_plot() -> None:
    drawn = shares("Keys", (Share("equal", 10_000_000, "agree"), Share("differing", 1, "differ")))
    flat = bars("Keys", [Bar("now", 0.0), Bar("then", 1e9), Bar("last", 1.0)])

    assert 'class="differ" width="2.' in drawn
    assert [part.split('"')[0] for part in flat.split('height="')[1:]] == ["0.0", "76.0", "3.0"]


def text_of(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat()


def history(since: int = 100, watched: int = 100, **more: Any) -> ZoneHistory:
    """As of the run; `since`, `watched`: hours before it."""
    start = START // HOUR * HOUR
    hours = (
        HourTold(text_of(start - 3 * HOUR), 21, 40, 14),
        HourTold(text_of(start), 1, 7),
    )
    day = DayTold(text_of(START - since * HOUR), text_of(START - watched * HOUR), hours)
    return ZoneHistory(text_of(START), **{"day": day, **more})


def test_failovers_and_missing_copies_of_the_day() -> None:
    read = page(verdict(history=history()))

    part = read.section("The last 24 hours")
    assert "Failovers 22 " in part
    assert "Partitions with missing copies 40 " in part
    assert "Outage 14 s " in part
    assert "Nothing is known" not in part
    assert "The present operator" not in part
    zeros = ", ".join(["0"] * 20)
    assert read.labels["Failovers by the hour"] == f"Failovers by the hour: {zeros}, 21, 0, 0, 1"


def test_what_is_not_known_of_the_day_is_said_to_be_unknown() -> None:
    read = page(verdict(history=history(since=5, watched=2)))

    part = read.section("The last 24 hours")
    assert "Nothing is known of the time before 2026-11-18 06:06:40 UTC." in part
    assert "The present operator began at 2026-11-18 09:06:40 UTC" in part
    assert read.labels["Outage"] == "Outage: 0 s, 0 s, 14 s, 0 s, 0 s, 0 s"

    for unknown in (verdict(), verdict(history=ZoneHistory(text_of(START)))):
        assert page(unknown).section("The last 24 hours").startswith("Unknown:")
    assert page(verdict()).section("Backups").startswith("Unknown:")


def test_a_quiet_day_has_no_plots() -> None:
    quiet = DayTold(text_of(START - 40 * HOUR), text_of(START - 40 * HOUR))
    read = page(verdict(history=history(day=quiet)))

    part = read.section("The last 24 hours")
    assert "Failovers 0 " in part
    assert "Outage 0 s " in part
    assert "Failovers by the hour" not in read.labels


def test_the_ages_of_the_last_backup_and_restore() -> None:
    told = history(
        last_backup=ExportTold(text_of(START - 27 * HOUR - 1), "nightly-1", "backups:books/1"),
        last_restore=ExportTold(text_of(START - 12 * 60_000), "drill", "s3://b/books"),
        backups_scheduled=True,
    )

    part = page(verdict(history=told)).section("Backups")

    assert "Last backup 1 d 3 h 2026-11-17 08:06:39 UTC, nightly-1, at backups:books/1" in part
    assert (
        "Last verified restore 12 min 0 s 2026-11-18 10:54:40 UTC, drill, at s3://b/books" in part
    )


@pytest.mark.parametrize(
    ("scheduled", "said"),
    [
        (True, "none yet, though a schedule is to make them"),
        (False, "none is known, and no schedule makes any"),
        (None, "none is known: the operator is not told of what quorate export makes"),
    ],
)
def test_no_backup_is_said_to_be_none(scheduled: bool | None, said: str) -> None:
    part = page(verdict(history=history(backups_scheduled=scheduled))).section("Backups")

    assert f"Last backup {said}" in part
    assert "Last verified restore none is known" in part


def test_times_that_cannot_be_read_are_unknown() -> None:
    told = history(last_backup=ExportTold("soon", "run", "p"), day=DayTold("soon", "", ()))
    read = page(verdict(history=told))

    assert "Last backup unknown run, at p" in read.section("Backups")
    assert "From when on this is known was not told." in read.section("The last 24 hours")
    known = history(last_backup=ExportTold(text_of(START), "run", "p"))
    part = page(verdict(history=known, started_ms=0)).section("Backups")
    assert "Last backup unknown 2026-11-18 11:06:40 UTC, run, at p" in part


def test_a_time_that_no_calendar_has_is_a_number() -> None:
    late = 10**18

    assert (time_text(late), day_text(late)) == (f"{late} ms", f"{late} ms")


def test_the_json_has_it_as_it_was_told() -> None:
    told = history(backups_scheduled=False)

    made = msgspec.json.decode(report_json(verdict(history=told)))["history"]

    assert made["day"]["hours"][0]["failovers"] == 21
    assert (made["last_backup"], made["backups_scheduled"]) == (None, False)
    assert msgspec.json.decode(report_json(verdict()))["history"] is None


def test_copies_that_were_not_reached_are_counted() -> None:
    silent = could_not_tell("library", Level.ROWS, "agent-2 is silent")
    part = page(msgspec.structs.replace(silent, copies_expected=192)).section("Not proven")

    assert "Copies missing or not reached 192 of 192 " in part
    assert "agent-2 is silent" in part
    assert "not reached" not in page(verdict(copies_expected=192)).section("Not proven")


@pytest.mark.parametrize(
    ("ms", "said"), [(-5, "0 s"), (999, "0 s"), (61_000, "1 min 1 s"), (90 * HOUR, "3 d 18 h")]
)
def test_a_length_has_its_two_largest_units(ms: int, said: str) -> None:
    assert duration_text(ms) == said
