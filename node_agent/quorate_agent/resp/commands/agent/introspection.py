"""The COMMAND commands: describe the command table, which clients read to route keys."""

from collections.abc import Iterator, Mapping, Sequence

from quorate_agent.resp.command import Command
from quorate_agent.resp.reading.glob import TOO_LONG, are_too_long, glob_matcher
from quorate_agent.resp.replies import (
    SYNTAX_ERROR,
    array,
    bulk,
    bulks,
    error,
    integer,
    map_,
    null,
    set_,
    simple,
)
from quorate_agent.resp.session import Session

NAMES_MAX = 10_000
"""Words of a COMMAND INFO or DOCS: each name is described with some 1.5 kB, as often as it is
named."""

_TOO_MANY_NAMES = error(b"ERR more than %d words: ask for fewer names at a time" % NAMES_MAX)
_INVALID_COMMAND = error(b"ERR Invalid command specified")
_NO_KEYS = error(b"ERR The command has no key arguments")
_INVALID_COUNT = error(b"ERR Invalid number of arguments specified for command")


class Introspection:
    """COMMAND and its subcommands over `table`: lower-case name -> command."""

    def __init__(self, table: Mapping[bytes, Command]) -> None:
        self._table = table
        self._all_encoded: dict[bool, bytes] = {}

    def all(self, session: Session, args: list[bytes]) -> bytes:
        """COMMAND"""
        resp3 = session.connection.resp3
        if resp3 not in self._all_encoded:
            described = [_description(command, resp3) for command in self._table.values()]
            self._all_encoded[resp3] = array(described)
        return self._all_encoded[resp3]

    def count(self, session: Session, args: list[bytes]) -> bytes:
        """COMMAND COUNT"""
        return integer(len(self._table))

    def names(self, session: Session, args: list[bytes]) -> bytes:
        """COMMAND LIST [FILTERBY MODULE name | ACLCAT category | PATTERN pattern]"""
        commands = list(self._commands())
        if len(args) > 2:
            if len(args) != 5 or args[2].upper() != b"FILTERBY":
                return SYNTAX_ERROR
            kind, wanted = args[3].upper(), args[4]
            if kind == b"MODULE":
                commands = []
            elif kind == b"ACLCAT":
                category = "@" + wanted.lower().decode("latin-1")
                commands = [command for command in commands if category in command.all_categories]
            elif kind == b"PATTERN":
                if are_too_long([wanted]):
                    return TOO_LONG
                matches = glob_matcher(wanted, ignore_case=True)
                commands = [command for command in commands if matches(command.name)]
            else:
                return SYNTAX_ERROR
        return bulks([command.name for command in commands])

    def info(self, session: Session, args: list[bytes]) -> bytes:
        """COMMAND INFO [name …]"""
        if len(args) == 2:
            return self.all(session, args)
        resp3 = session.connection.resp3
        if len(args) > NAMES_MAX:
            return _TOO_MANY_NAMES
        described = []
        for name in args[2:]:
            command = self._find(name)
            described.append(null(resp3) if command is None else _description(command, resp3))
        return array(described)

    def docs(self, session: Session, args: list[bytes]) -> bytes:
        """COMMAND DOCS [name …]"""
        resp3 = session.connection.resp3
        if len(args) > NAMES_MAX:
            return _TOO_MANY_NAMES
        wanted = (
            list(self._table.values())
            if len(args) == 2
            else [command for name in args[2:] if (command := self._find(name)) is not None]
        )
        return map_([(bulk(command.name), _docs(command, resp3)) for command in wanted], resp3)

    def keys(self, session: Session, args: list[bytes]) -> bytes:
        """COMMAND GETKEYS command [word …]"""
        call = args[2:]
        command = self._table.get(call[0].lower())
        if command is not None and command.subcommands and len(call) > 1:
            command = command.subcommands.get(call[1].lower())
        if command is None:
            return _INVALID_COMMAND
        if not command.first_key:
            return _NO_KEYS
        if not command.takes(len(call)):
            return _INVALID_COUNT
        return bulks(command.keys(call))

    def _commands(self) -> Iterator[Command]:
        for command in self._table.values():
            yield command
            yield from command.subcommands.values()

    def _find(self, name: bytes) -> Command | None:
        parent, _, child = name.lower().partition(b"|")
        command = self._table.get(parent)
        if command is not None and child:
            return command.subcommands.get(child)
        return command


def _names(names: Sequence[str], resp3: bool) -> bytes:
    return set_([simple(name.encode()) for name in names], resp3)


def _description(command: Command, resp3: bool) -> bytes:
    children = [_description(child, resp3) for child in command.subcommands.values()]
    return array(
        (
            bulk(command.name),
            integer(command.arity),
            _names(command.flags, resp3),
            integer(command.first_key),
            integer(command.last_key),
            integer(command.step),
            _names(command.all_categories, resp3),
            set_([bulk(tip.encode()) for tip in command.tips], resp3),
            set_(_key_specifications(command, resp3), resp3),
            array(children) if children else set_((), resp3),
        )
    )


def _key_specifications(command: Command, resp3: bool) -> list[bytes]:
    if len(command.key_flags) == 1:
        last = 0 if command.last_key == command.first_key else command.last_key
        return [_key_specification(command, command.first_key, last, command.key_flags[0], resp3)]
    return [
        _key_specification(command, command.first_key + at, 0, flags, resp3)
        for at, flags in enumerate(command.key_flags)
    ]


def _key_specification(
    command: Command, first: int, last: int, flags: Sequence[str], resp3: bool
) -> bytes:
    """Describe keys from word `first` on; `last` is relative to `first`, as COMMAND shows it."""
    index = _typed(b"index", [(bulk(b"index"), integer(first))], resp3)
    range_ = [
        (bulk(b"lastkey"), integer(last)),
        (bulk(b"keystep"), integer(command.step)),
        (bulk(b"limit"), integer(0)),
    ]
    return map_(
        (
            (bulk(b"flags"), _names(flags, resp3)),
            (bulk(b"begin_search"), index),
            (bulk(b"find_keys"), _typed(b"range", range_, resp3)),
        ),
        resp3,
    )


def _typed(kind: bytes, spec: Sequence[tuple[bytes, bytes]], resp3: bool) -> bytes:
    return map_(((bulk(b"type"), bulk(kind)), (bulk(b"spec"), map_(spec, resp3))), resp3)


def _docs(command: Command, resp3: bool) -> bytes:
    facts = [
        (bulk(b"summary"), bulk(command.summary.encode())),
        (bulk(b"since"), bulk(command.since.encode())),
        (bulk(b"group"), bulk(command.group.encode())),
    ]
    if command.subcommands:
        children = [
            (bulk(child.name), _docs(child, resp3)) for child in command.subcommands.values()
        ]
        facts.append((bulk(b"subcommands"), map_(children, resp3)))
    return map_(facts, resp3)
