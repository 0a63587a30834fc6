"""Which commands there are, and which one a client called.

Names, arities, flags, key positions, categories and tips are Redis 7.0's: clients read them to
route commands.  Anything that is not here is an unknown command.
"""

from collections.abc import Callable
from typing import Any

from quorate_agent.resp import (
    cluster_commands,
    connection_commands,
    key_commands,
    server_commands,
    string_commands,
)
from quorate_agent.resp.command import Command, Scope
from quorate_agent.resp.introspection import Introspection
from quorate_agent.resp.replies import unknown_command, unknown_subcommand, wrong_arity

COMMANDS: dict[bytes, Command] = {}
"""Lower-case name -> command; subcommands are in their parents."""

_NONDETERMINISTIC = ("nondeterministic_output",)
_NO_ORDER = ("nondeterministic_output_order",)
_ALL_SHARDS = "request_policy:all_shards"
_MULTI_SHARD = "request_policy:multi_shard"
_AGG_SUM = "response_policy:agg_sum"
_ALL_SUCCEEDED = "response_policy:all_succeeded"
_CONNECTION_FLAGS = "loading stale fast"
_ALWAYS_FLAGS = "noscript loading stale fast no_auth allow_busy"

_Handler = Callable[[Any, list[bytes]], Any]


def resolve(args: list[bytes]) -> Command | bytes:
    """The command or subcommand that `args` calls, with a right number of words, or the error."""
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


def _add(command: Command) -> None:
    COMMANDS[command.name] = command


def _keyed(
    name: str,
    handler: _Handler,
    arity: int,
    flags: str,
    keys: str,
    since: str,
    summary: str,
    *,
    group: str = "string",
    span: tuple[int, int] = (1, 1),
    tips: tuple[str, ...] = (),
) -> None:
    _add(
        Command(
            name=name.encode(),
            scope=Scope.KEYED,
            handler=handler,
            arity=arity,
            summary=summary,
            since=since,
            group=group,
            flags=tuple(flags.split()),
            first_key=1,
            last_key=span[0],
            step=span[1],
            key_flags=tuple(keys.split()),
            categories=("@string" if group == "string" else "@keyspace",),
            tips=tips,
        )
    )


def _plain(
    name: str,
    handler: _Handler,
    arity: int,
    flags: str,
    since: str,
    summary: str,
    *,
    group: str = "connection",
    categories: str = "@connection",
    tips: tuple[str, ...] = (),
    scope: Scope = Scope.CONNECTION,
    subcommands: tuple[Command, ...] = (),
) -> Command:
    return Command(
        name=name.encode(),
        scope=scope,
        handler=handler,
        arity=arity,
        summary=summary,
        since=since,
        group=group,
        flags=tuple(flags.split()),
        categories=tuple(categories.split()),
        tips=tips,
        subcommands={child.name.partition(b"|")[2]: child for child in subcommands},
    )


def _without_subcommand(_: object, args: list[bytes]) -> bytes:
    """A container command called by itself; `resolve` has refused it already."""
    return wrong_arity(args[0].lower())


def _add_string_commands() -> None:
    on = string_commands
    read, write, fast_write = "readonly fast", "write denyoom", "write denyoom fast"
    _keyed("get", on.get, 2, read, "RO access", "1.0.0", "The value of a key")
    _keyed(
        "set",
        on.set_value,
        -3,
        write,
        "RW access update variable_flags",
        "1.0.0",
        "Give a key a value",
    )
    _keyed(
        "setnx",
        on.set_if_absent,
        3,
        fast_write,
        "OW insert",
        "1.0.0",
        "Give a key a value unless it has one",
    )
    _keyed(
        "setex",
        on.set_expiring,
        4,
        write,
        "OW update",
        "2.0.0",
        "Give a key a value for some seconds",
    )
    _keyed(
        "psetex",
        on.set_expiring_ms,
        4,
        write,
        "OW update",
        "2.6.0",
        "Give a key a value for some milliseconds",
    )
    _keyed(
        "getdel",
        on.get_and_delete,
        2,
        "write fast",
        "RW access delete",
        "6.2.0",
        "The value of a key, which is deleted",
    )
    _keyed(
        "getex",
        on.get_and_expire,
        -2,
        "write fast",
        "RW access update",
        "6.2.0",
        "The value of a key, whose time to live is changed",
    )
    _keyed(
        "mget",
        on.get_many,
        -2,
        read,
        "RO access",
        "1.0.0",
        "The values of keys of one slot",
        span=(-1, 1),
        tips=(_MULTI_SHARD,),
    )
    _keyed(
        "mset",
        on.set_many,
        -3,
        write,
        "OW update",
        "1.0.1",
        "Give keys of one slot their values",
        span=(-1, 2),
        tips=(_MULTI_SHARD, _ALL_SUCCEEDED),
    )
    changes = "RW access update"
    _keyed("incr", on.increment, 2, fast_write, changes, "1.0.0", "Add 1 to a number")
    _keyed("incrby", on.increment_by, 3, fast_write, changes, "1.0.0", "Add to a number")
    _keyed("decr", on.decrement, 2, fast_write, changes, "1.0.0", "Subtract 1 from a number")
    _keyed("decrby", on.decrement_by, 3, fast_write, changes, "1.0.0", "Subtract from a number")
    _keyed("append", on.append, 3, fast_write, "RW insert", "2.0.0", "Lengthen a value")
    _keyed("strlen", on.length, 2, read, "RO", "2.2.0", "The length of a value")


def _add_key_commands() -> None:
    on = key_commands
    many: Any = {"group": "generic", "span": (-1, 1), "tips": (_MULTI_SHARD, _AGG_SUM)}
    _keyed("del", on.delete, -2, "write", "RM delete", "1.0.0", "Delete keys", **many)
    _keyed("unlink", on.delete, -2, "write fast", "RM delete", "4.0.0", "Delete keys", **many)
    _keyed(
        "exists",
        on.exists,
        -2,
        "readonly fast",
        "RO",
        "1.0.0",
        "How many of the keys exist",
        **many,
    )
    one: Any = {"group": "generic"}
    _keyed("type", on.type_of, 2, "readonly fast", "RO", "1.0.0", "What a key holds", **one)
    for name, handler, since, unit in (
        ("expire", on.expire, "1.0.0", "seconds"),
        ("pexpire", on.expire_ms, "2.6.0", "milliseconds"),
    ):
        summary = f"Give a key a time to live in {unit}"
        _keyed(name, handler, -3, "write fast", "RW update", since, summary, **one)
    for name, handler, since, unit in (
        ("ttl", on.time_to_live, "1.0.0", "seconds"),
        ("pttl", on.time_to_live_ms, "2.6.0", "milliseconds"),
    ):
        _keyed(
            name,
            handler,
            2,
            "readonly fast",
            "RO access",
            since,
            f"The time to live of a key in {unit}",
            tips=_NONDETERMINISTIC,
            **one,
        )
    _keyed(
        "persist",
        on.persist,
        2,
        "write fast",
        "RW update",
        "2.2.0",
        "Take the time to live from a key",
        **one,
    )


def _add_connection_commands() -> None:
    on = connection_commands
    _add(
        _plain(
            "ping",
            on.ping,
            -1,
            "fast",
            "1.0.0",
            "Whether the server answers",
            tips=(_ALL_SHARDS, _ALL_SUCCEEDED),
        )
    )
    _add(_plain("echo", on.echo, 2, _CONNECTION_FLAGS, "1.0.0", "The message itself"))
    _add(_plain("quit", on.quit_, -1, _ALWAYS_FLAGS, "1.0.0", "Close the connection"))
    _add(_plain("hello", on.hello, -1, _ALWAYS_FLAGS, "6.0.0", "Choose the protocol version"))
    _add(_plain("reset", on.reset, 1, _ALWAYS_FLAGS, "6.2.0", "Begin the connection anew"))
    _add(_plain("select", on.select, 2, _CONNECTION_FLAGS, "1.0.0", "Choose database 0"))
    for name, handler, summary in (
        ("readonly", on.readonly, "Allow reads from copies"),
        ("readwrite", on.readwrite, "Ask for reads from primaries"),
    ):
        _add(_plain(name, handler, 1, _CONNECTION_FLAGS, "3.0.0", summary, group="cluster"))
    quiet = "noscript loading stale"
    _add(
        _plain(
            "client",
            _without_subcommand,
            -2,
            "",
            "2.4.0",
            "About client connections",
            categories="",
            subcommands=(
                _plain("client|id", on.client_id, 2, quiet, "5.0.0", "Its number"),
                _plain("client|setname", on.client_set_name, 3, quiet, "2.6.9", "Name it"),
                _plain("client|getname", on.client_get_name, 2, quiet, "2.6.9", "Its name"),
                _plain("client|setinfo", on.client_set_info, 4, quiet, "7.2.0", "Its library"),
                _plain(
                    "client|info",
                    on.client_info,
                    2,
                    quiet,
                    "6.2.0",
                    "What is known of it",
                    tips=_NONDETERMINISTIC,
                ),
                _plain(
                    "client|list",
                    on.client_list,
                    -2,
                    f"admin {quiet}",
                    "2.4.0",
                    "All of them",
                    tips=_NONDETERMINISTIC,
                ),
            ),
        )
    )


def _add_server_commands() -> None:
    about = Introspection(COMMANDS)
    calm = "loading stale"
    server: Any = {"group": "server"}
    _add(
        _plain(
            "command",
            about.all,
            -1,
            calm,
            "2.8.13",
            "About the commands",
            tips=_NO_ORDER,
            subcommands=(
                _plain("command|count", about.count, 2, calm, "2.8.13", "How many", **server),
                _plain(
                    "command|list",
                    about.names,
                    -2,
                    calm,
                    "7.0.0",
                    "Their names",
                    tips=_NO_ORDER,
                    **server,
                ),
                _plain(
                    "command|info",
                    about.info,
                    -2,
                    calm,
                    "2.8.13",
                    "Arities, flags and keys",
                    tips=_NO_ORDER,
                    **server,
                ),
                _plain(
                    "command|docs",
                    about.docs,
                    -2,
                    calm,
                    "7.0.0",
                    "Summaries",
                    tips=_NO_ORDER,
                    **server,
                ),
                _plain(
                    "command|getkeys",
                    about.keys,
                    -4,
                    calm,
                    "2.8.13",
                    "The keys of a call",
                    **server,
                ),
            ),
            **server,
        )
    )
    on = server_commands
    _add(
        _plain(
            "info",
            on.info,
            -1,
            calm,
            "1.0.0",
            "Facts about this agent",
            categories="@dangerous",
            tips=(*_NONDETERMINISTIC, _ALL_SHARDS, "response_policy:special"),
            **server,
        )
    )
    _add(
        _plain(
            "config",
            _without_subcommand,
            -2,
            "",
            "2.0.0",
            "About settings",
            categories="",
            subcommands=(
                _plain(
                    "config|get",
                    on.config_get,
                    -3,
                    "admin noscript loading stale",
                    "2.0.0",
                    "Settings by name",
                    categories="",
                    **server,
                ),
            ),
            **server,
        )
    )
    _add(
        _plain(
            "time",
            on.time,
            1,
            _CONNECTION_FLAGS,
            "2.6.0",
            "The wall clock",
            categories="",
            tips=_NONDETERMINISTIC,
            **server,
        )
    )
    _add(
        _plain(
            "dbsize",
            on.key_count,
            1,
            "readonly fast",
            "1.0.0",
            "How many keys this agent is primary of",
            categories="@keyspace",
            tips=(_ALL_SHARDS, _AGG_SUM),
            **server,
        )
    )
    _add(
        _plain(
            "flushall",
            on.flush,
            -1,
            "write",
            "1.0.0",
            "Delete the keys this agent is primary of",
            categories="@keyspace @dangerous",
            tips=(_ALL_SHARDS, _ALL_SUCCEEDED),
            scope=Scope.FLUSH,
            **server,
        )
    )
    _add(
        _plain(
            "wait",
            on.wait,
            3,
            "noscript",
            "3.0.0",
            "How many copies hold the last write",
            group="generic",
            tips=(_ALL_SHARDS, "response_policy:agg_min"),
            scope=Scope.WAIT,
        )
    )
    _add(
        _plain(
            "scan",
            on.scan,
            -2,
            "readonly",
            "2.8.0",
            "The keys this agent is primary of",
            group="generic",
            categories="@keyspace",
            tips=(*_NONDETERMINISTIC, "request_policy:special"),
            scope=Scope.SCAN,
        )
    )


def _add_cluster_commands() -> None:
    on = cluster_commands
    varying: Any = {"tips": _NONDETERMINISTIC, "group": "cluster", "categories": ""}
    steady: Any = {"group": "cluster", "categories": ""}
    _add(
        _plain(
            "cluster", _without_subcommand, -2, "", "3.0.0", "About the zone",
            subcommands=(
                _plain("cluster|slots", on.slots, 2, "stale", "3.0.0", "Who serves", **varying),
                _plain("cluster|shards", on.shards, 2, "stale", "7.0.0", "Who serves", **varying),
                _plain("cluster|nodes", on.nodes, 2, "stale", "3.0.0", "Its nodes", **varying),
                _plain("cluster|info", on.info, 2, "stale", "3.0.0", "Its state", **varying),
                _plain("cluster|myid", on.my_id, 2, "stale", "3.0.0", "This node", **steady),
                _plain(
                    "cluster|keyslot", on.slot_of_key, 3, "stale", "3.0.0", "The slot of a key",
                    **steady,
                ),
                _plain(
                    "cluster|countkeysinslot", on.slot_key_count, 3, "stale", "3.0.0",
                    "How many keys a slot has", **steady,
                ),
            ),
            **steady,
        )
    )  # fmt: skip


_add_string_commands()
_add_key_commands()
_add_connection_commands()
_add_server_commands()
_add_cluster_commands()

DISPATCH: dict[bytes, Command] = {
    spelling: command for name, command in COMMANDS.items() for spelling in (name, name.upper())
}
"""The same by lower-case and upper-case name: what nearly every client sends, found in one step."""
