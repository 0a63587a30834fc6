"""Finds the command that a client called; what is not in the table is an unknown command."""

from collections.abc import Iterable

from quorate_agent.resp.command import Command
from quorate_agent.resp.replies import unknown_command, unknown_subcommand, wrong_arity
from quorate_agent.resp.tables.keyed import keyed_commands
from quorate_agent.resp.tables.plain import plain_commands

COMMANDS: dict[bytes, Command] = keyed_commands()
"""Lower-case name -> command; subcommands are in their parents."""
COMMANDS |= plain_commands(COMMANDS)

DISPATCH: dict[bytes, Command] = {
    spelling: command for name, command in COMMANDS.items() for spelling in (name, name.upper())
}
"""The same by lower-case and upper-case name: one lookup for nearly every client."""


def resolve(args: list[bytes]) -> Command | bytes:
    """Return the command or subcommand that `args` calls with a valid number of words, or the
    error."""
    command = DISPATCH.get(args[0]) or COMMANDS.get(args[0].lower())
    if command is None:
        return unknown_command(args)
    if command.has_subcommands and len(args) > 1:
        child = command.subcommands.get(args[1].lower())
        if child is None:
            return unknown_subcommand(command.name, args[1])
        command = child
    if not command.takes(len(args)):
        return wrong_arity(command.name)
    return command


def resolve_all(commands: Iterable[Iterable[bytes]]) -> list[tuple[Command, list[bytes]]] | bytes:
    """Return each command with its words, or the error of the first that is invalid."""
    found: list[tuple[Command, list[bytes]]] = []
    for words in commands:
        args = list(words)
        command = resolve(args)
        if isinstance(command, bytes):
            return command
        found.append((command, args))
    return found
