"""Common parts of all commands: settings from options, and a result as JSON."""

import argparse

import msgspec

from quorate.facts.read_limit import MAX_MIB_PER_SECOND_PER_AGENT
from quorate_spark.settings import Settings


def settings_of(options: argparse.Namespace) -> Settings:
    """Return the settings that the options ask for.  Raises SettingError."""
    return Settings(
        answer_timeout_s=options.answer_seconds,
        settle_timeout_s=options.settle_seconds,
        max_mib_per_second_per_agent=getattr(options, "max_mib_per_second_per_agent", None),
    )


def add_limit(parser: argparse.ArgumentParser) -> None:
    """Add the option that limits how much is read of an agent."""
    parser.add_argument(
        MAX_MIB_PER_SECOND_PER_AGENT,
        type=int,
        help="read so much of each agent at most (default: no limit)",
    )


def print_json(result: object) -> None:
    """Print a result for programs."""
    print(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())
