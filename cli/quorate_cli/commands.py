"""All commands of `quorate`, put together."""

import typer

from quorate_cli import cli_command, dev_commands, object_commands
from quorate_cli.events_command import events
from quorate_cli.plan_command import plan

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
app.command(context_settings=cli_command.SETTINGS)(cli_command.cli)
app.command()(plan)
app.command()(events)
