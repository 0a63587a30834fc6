"""Common parts of all commands: settings from options, and how a result is printed."""

import argparse
import contextlib
import errno
import os
import sys
from collections.abc import Callable
from typing import NoReturn

import msgspec
from rich.console import Console

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


def is_printed(tell: Callable[[Console], None]) -> bool:
    """Run `tell`, which prints a result; return whether standard output took all of it.

    If it did not, why is told on standard error.
    """
    try:
        tell(_Console())
        print(end="", flush=True)
    except OSError as error:
        print(f"standard output cannot be written: {error.strerror}", file=sys.stderr)
        # Python writes what is left when it ends, and has an exit code of its own if it cannot.
        with contextlib.suppress(OSError), open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        return False
    return True


class _Console(Console):
    """A console that raises BrokenPipeError where rich ends the process with exit code 1."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
