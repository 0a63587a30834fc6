"""Runs of the commands export, verify and import on zones of scripted agents."""

from pathlib import Path

from quorate.wire.exports.export_result import ExportResult, decode_export_result
from quorate_spark import __main__ as command
from quorate_spark_fixtures.logged_zone import LoggedZone


def run(what: str, zone: LoggedZone, target: Path, *options: str) -> int:
    """Run a command on a zone and an export; return its exit code."""
    agents = ",".join(agent.address for agent in zone.agents)
    words = [what, "z", "--target", str(target), "--agents", agents, "--settle-seconds", "0.3"]
    words += ["--cluster", "c", "--secret-file", zone.secret_file, "--replicas", "3"]
    words += ["--partitions", str(zone.partitions), "--work-dir", str(target.parent / "work")]
    return command.main([*words, *options])


def told_by(message: Path) -> ExportResult:
    """Return the result in a file of a termination message."""
    return decode_export_result(message.read_text())
