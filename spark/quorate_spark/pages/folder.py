"""The folder of a zone's reports: two files for each run, and those of earlier runs."""

import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from quorate_spark.verdict import Verdict

RUNS_MAX = 30
"""Runs in the trends, this one included."""
_DECODER = msgspec.json.Decoder(Verdict)


class Report(NamedTuple):
    """Where a report is written.  `page`: only in a folder; a file alone is the JSON."""

    json: Path
    page: Path | None = None


def report_of(option: str, zone: str, started_ms: int) -> Report:
    """Return where `--report` wants the report: a file, or a folder (which ends in "/" or is)."""
    if not option.endswith(os.sep) and not Path(option).is_dir():
        return Report(Path(option))
    time = datetime.fromtimestamp(started_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    name = f"{_stem(zone)}-{time}"
    return Report(Path(option, f"{name}.json"), Path(option, f"{name}.html"))


def earlier_runs(report: Report, verdict: Verdict) -> list[Verdict]:
    """Return the runs before this one of the zone whose JSON is in the folder, the oldest first.

    A file that cannot be read as a report is left out.
    """
    # Of one zone the names have the order of the runs.
    pattern = re.compile(re.escape(_stem(verdict.zone)) + r"-\d{8}T\d{6}Z\.json")
    paths = sorted(path for path in report.json.parent.iterdir() if pattern.fullmatch(path.name))
    found: list[Verdict] = []
    for path in reversed(paths):
        if len(found) == RUNS_MAX - 1:
            break
        try:
            run = _DECODER.decode(path.read_bytes())
        except (OSError, msgspec.DecodeError):
            continue
        if run.zone == verdict.zone and run.started_ms < verdict.started_ms:
            found.append(run)
    return found[::-1]


def _stem(zone: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "_", zone)
