"""Log lines are JSON, and say which zone, partition and term they are about."""

import json
import logging
from typing import Any

import pytest

from quorate_link.log_lines import JsonLines


def _line(text: str, *args: object, **extra: object) -> dict[str, Any]:
    record = logging.LogRecord("quorate.x", logging.WARNING, "file", 1, text, args, None)
    record.__dict__ |= extra
    return dict(json.loads(JsonLines({"agent": "agent-1"}).format(record)))


@pytest.mark.parametrize(
    ("text", "args", "about"),
    [
        ("zone %s: clients on %s", ("books", "h:7000"), {"zone": "books"}),
        ("agent %s, zone %s: no room", ("agent-2", "books"), {"agent": "agent-2", "zone": "books"}),
        ("100 %% of zone %s: %.1f s", ("books", 0.5), {"zone": "books"}),
        ("%s: zone %s in term %d", ("x", "books", 7), {"zone": "books", "term": 7}),
        ("partition %d is lost", (5,), {"partition": 5}),
        ("term %d is refused: term %d leads", (3, 4), {"term": 3}),
        ("cluster %s: %r", ("ns/main", "x"), {"namespace": "ns", "cluster": "main"}),
        ("zone of %s", ("books",), {}),
        ("the zone %s", ("books",), {"zone": "books"}),
        ("subzone %s", ("books",), {}),
        ("zone %s: gone", ("",), {}),
    ],
)
def test_what_a_line_is_about_is_taken_from_its_text(
    text: str, args: tuple[object, ...], about: dict[str, object]
) -> None:
    line = _line(text, *args)

    assert line.pop("message") == text % args
    for name in ("time", "level", "logger"):
        del line[name]
    assert line == {"agent": "agent-1", **about}


def test_what_the_caller_says_goes_first() -> None:
    line = _line("%s: lost in zone %s", "Lost", "by-text", zone="books", partition=0, term=None)

    assert (line["zone"], line["partition"]) == ("books", 0)
    assert "term" not in line


def test_an_error_has_its_traceback() -> None:
    error = ValueError("bad")
    record = logging.LogRecord("x", logging.ERROR, "file", 1, "no", (), (type(error), error, None))

    line = json.loads(JsonLines({}).format(record))

    assert line["traceback"].endswith("ValueError: bad")
    assert line["level"] == "ERROR"
