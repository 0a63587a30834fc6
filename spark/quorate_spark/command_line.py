"""Common parts of all commands: settings from options, and a result as JSON."""

import argparse

import msgspec

from quorate_spark.settings import Settings


def settings_of(options: argparse.Namespace) -> Settings:
    """Return the settings that the options ask for.  Raises SettingError."""
    return Settings(
        answer_timeout_s=options.answer_seconds, settle_timeout_s=options.settle_seconds
    )


def print_json(result: object) -> None:
    """Print a result for programs."""
    print(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())
