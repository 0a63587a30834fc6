"""`quorate`: what a person types."""

import os
import sys
from pathlib import Path

if not __debug__:  # before anything else is imported: a check that is gone protects nobody
    sys.exit("quorate: started with -O, which removes checks that protect data: start without it")

import typer

from quorate_cli import dev_commands, object_commands
from quorate_cli.cluster_folder import DEFAULT_FOLDER
from quorate_cli.guard import run_guarded

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
    folder = Path(os.environ.get("QUORATE_FOLDER", DEFAULT_FOLDER))
    run_guarded(lambda: app(prog_name="quorate"), folder)


if __name__ == "__main__":
    main()
