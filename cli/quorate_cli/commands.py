"""All commands of `quorate`, put together."""

import typer

from quorate_cli import cli_command, dev_commands, object_commands
from quorate_cli.events_command import events
from quorate_cli.plan_command import plan
from quorate_cli.refill import refill
from quorate_cli.version_option import VersionOption

HELP = "A partitioned, replicated store: declare zones, watch them, check every copy."

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


@app.callback(help=HELP)
def quorate(_: VersionOption = False) -> None:
    """Options of `quorate` itself."""


app.add_typer(dev_commands.app, name="dev")
object_commands.debug.command()(refill)
app.add_typer(object_commands.debug, name="debug")
for command in object_commands.COMMANDS:
    app.command()(command)
app.command(context_settings=cli_command.SETTINGS)(cli_command.cli)
app.command()(plan)
app.command()(events)
