"""The table row of a command with keys, and the command made of it."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from quorate_agent.resp.command import Command, Scope
from quorate_agent.resp.view import KeyView

READ = "readonly fast"
WRITE = "write fast"
GROW = "write denyoom"
GROW_FAST = "write denyoom fast"
CHANGE = "RW access update"
VARYING = ("nondeterministic_output",)
NO_ORDER = ("nondeterministic_output_order",)
# (first, last, step) of the words that are keys.
FIRST, ALL, PAIRS, BOTH, SECOND = (1, 1, 1), (1, -1, 1), (1, -1, 2), (1, 2, 1), (2, 2, 1)


class KeyedRow(NamedTuple):
    """Facts of one command; `name` is parent|child for a subcommand."""

    name: str
    handler: Callable[[KeyView, list[bytes]], bytes]
    arity: int
    flags: str
    key_flags: str  # for all keys, or for each one, separated by semicolons
    since: str
    summary: str
    keys: tuple[int, int, int] = FIRST
    tips: tuple[str, ...] = ()
    each: Callable[[list[bytes | None], bool], bytes] | None = None
    puts_each: Callable[[Sequence[bytes]], Iterable[bytes]] | None = None


def keyed_command(row: KeyedRow, group: str, category: str) -> Command:
    """Return the command that `row` describes."""
    first_key, last_key, step = row.keys
    return Command(
        name=row.name.encode(),
        scope=Scope.KEYED,
        handler=row.handler,
        arity=row.arity,
        summary=row.summary,
        since=row.since,
        group=group,
        flags=tuple(row.flags.split()),
        first_key=first_key,
        last_key=last_key,
        step=step,
        key_flags=tuple(tuple(flags.split()) for flags in row.key_flags.split(";")),
        categories=(category,) if category else (),
        tips=row.tips,
        each=row.each,
        puts_each=row.puts_each,
    )
