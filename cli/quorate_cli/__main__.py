"""`quorate`: one handler stands between whatever goes wrong and the person at the keyboard."""

import os
import signal
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import NoReturn

if not __debug__:  # before anything else is imported: a check that is gone protects nobody
    sys.exit("quorate: started with -O, which removes checks that protect data: start without it")

import typer
from rich.console import Console

from quorate.facts.errors import QuorateError
from quorate_cli import dev_commands, object_commands
from quorate_cli.cluster_folder import DEFAULT_FOLDER, ERROR_LOG
from quorate_cli.problem import Problem, words

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A partitioned, replicated store: declare zones, watch them, check every copy.",
)
app.add_typer(dev_commands.app, name="dev")
app.add_typer(object_commands.debug, name="debug")
for command in object_commands.COMMANDS:
    app.command()(command)


def main() -> None:
    """Run one command; the process ends here."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        app(prog_name="quorate")
    except Problem as problem:
        _say(str(problem))
        sys.exit(problem.exit_code)
    except QuorateError as error:
        _say(str(error))
        sys.exit(1)
    except Exception as error:  # nothing may reach a user as a traceback
        _say(_keep(error))
        sys.exit(70)


def _say(sentence: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(
        "quorate:", sentence, style="red", markup=False
    )


def _keep(error: Exception) -> str:
    """Write the traceback where it can be found; the sentence that says so."""
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, OSError):
        what = f"{error.filename}: {words(error)}" if error.filename else words(error)
    folder = Path(os.environ.get("QUORATE_FOLDER", DEFAULT_FOLDER)).absolute()
    log = folder / ERROR_LOG
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with log.open("a") as file:
            file.write(f"{datetime.now(UTC).isoformat()} quorate {' '.join(sys.argv[1:])}\n")
            file.write("".join(traceback.format_exception(error)))
    except OSError as second:
        return f"this should not have happened ({what}); {log} cannot be written: {words(second)}"
    return f"this should not have happened ({what}); {log} has the details: please report it"


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)  # so that `finally` runs on the way out


if __name__ == "__main__":
    main()
