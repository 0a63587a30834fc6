"""The folder of a zone's reports: two files for each run, and those of earlier runs."""

import errno
import os
import re
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from quorate_spark.verdict import Verdict

RUNS_MAX = 30
"""Runs in the trends, this one included."""
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)
"""Errors of a file system without hard links."""
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


def store(report: Report, json: bytes, page: bytes) -> Report:
    """Write the files of a report in a folder; return where they are.  Raises OSError.

    Others see each file whole or not at all.  The one who makes the JSON has its name: a run that
    began in the same second gets another one, so that JSON and page are of one run.
    """
    number, path = 1, report.json
    while not _store_new(path, json):
        if path.read_bytes() == json:
            break  # the same run, which is kept again
        number += 1
        path = report.json.with_stem(f"{report.json.stem}-{number}")
    written = _temporary(path.with_suffix(".html"), page)
    try:
        written.replace(path.with_suffix(".html"))
    except OSError:
        written.unlink()
        raise
    return Report(path, path.with_suffix(".html"))


def _store_new(path: Path, content: bytes) -> bool:
    """Write a file, if there is none of this name; return whether that is so."""
    written = _temporary(path, content)
    try:
        try:
            os.link(written, path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            os.replace(written, path)
    except FileExistsError:
        return False
    finally:
        written.unlink(missing_ok=True)
    return True


def _temporary(path: Path, content: bytes) -> Path:
    """Write a file beside `path` for its owner alone; return where it is."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        Path(name).unlink()
        raise
    return Path(name)


def earlier_runs(report: Report, verdict: Verdict) -> list[Verdict]:
    """Return the runs before this one of the zone whose JSON is in the folder, the oldest first.

    A file that cannot be read as a report is left out.
    """
    # Of one zone the names have the order of the runs, but for those of one second.
    pattern = re.compile(re.escape(_stem(verdict.zone)) + r"-\d{8}T\d{6}Z(-\d+)?\.json")
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
    return sorted(found, key=lambda run: run.started_ms)


def _stem(zone: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "_", zone)
