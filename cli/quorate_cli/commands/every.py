"""Assembles all commands of `quorate`."""

import typer

from quorate_cli.commands import cli, objects
from quorate_cli.commands.aside import aside
from quorate_cli.commands.events import events
from quorate_cli.commands.export import export_zone, import_zone, verify_export
from quorate_cli.commands.plan import plan
from quorate_cli.commands.recover import recover
from quorate_cli.commands.refill import refill
from quorate_cli.commands.repair import repair
from quorate_cli.commands.top import top
from quorate_cli.dev import commands
from quorate_cli.terminal.version_option import VersionOption

HELP = "Manage Quorate, a partitioned, replicated key-value store."

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


@app.callback(help=HELP)
def quorate(_: VersionOption = False) -> None:
    """Options of `quorate` itself."""


app.add_typer(commands.app, name="dev")
objects.debug.command()(refill)
app.add_typer(objects.debug, name="debug")
app.add_typer(recover, name="recover")
app.add_typer(aside, name="aside")
for command in objects.COMMANDS:
    app.command()(command)
app.command(context_settings=cli.SETTINGS)(cli.cli)
app.command()(plan)
app.command()(repair)
app.command("export")(export_zone)
app.command("verify")(verify_export)
app.command("import")(import_zone)
app.command()(events)
app.command()(top)
