"""The copies that kept mode idle from being told, on the page and in the output."""

import msgspec
import pytest
from rich.console import Console

from quorate_spark.pages.page import page_of
from quorate_spark.report import print_report
from quorate_spark.verdict import CopyChange, CopyCounters, Level, Mode, Outcome, Verdict
from quorate_spark_fixtures.read_page import read_page

NASTY = "<script>alert('x')</script>&amp;\"\u202etxt[red]"
BEFORE = CopyCounters("agent-2", 1, 9, 3, 77_001, 77_001, (), (0, 0), ())
AFTER = msgspec.structs.replace(BEFORE, lwm=77_005, hwm=77_006)
CHANGES = (CopyChange(5, "agent-2", BEFORE, AFTER), CopyChange(6, NASTY, BEFORE, None))


def told(changed: int, *changes: CopyChange) -> tuple[str, str]:
    """The text of the page, and what is printed."""
    made = Verdict(
        "library",
        Level.ROWS,
        Outcome.UNKNOWN,
        mode=Mode.IDLE,
        changes=changes,
        changed_partitions=changed,
    )
    console = Console(record=True, width=200)
    print_report(made, console)
    return read_page(page_of(made)).text, console.export_text()


def test_copies_that_changed_are_shown_before_and_after() -> None:
    page, printed = told(8, *CHANGES)

    for text in (page, printed):
        for said in ("before", "77001", "after", "77005", "77006", "no copy", NASTY[:20], "[red]"):
            assert said in text
    assert "nothing may be written meanwhile" in page
    assert "idle" in printed


@pytest.mark.parametrize(
    ("changed", "changes", "said"),
    [
        (8, CHANGES, "8 partitions changed meanwhile, 2 listed"),
        (2, CHANGES, "2 partitions changed meanwhile"),
        (1, CHANGES[:1], "1 partition changed meanwhile"),
    ],
)
def test_partitions_that_changed_are_counted(
    changed: int, changes: tuple[CopyChange, ...], said: str
) -> None:
    for text in told(changed, *changes):
        assert said in text
        assert ("listed" in text) == ("listed" in said)
