"""The commands with keys, and how COMMAND describes them: facts of Redis 7.0."""

from collections.abc import Sequence

from quorate_agent.resp.command import Command, Scope
from quorate_agent.resp.commands.keyspace import expiry, keys, objects
from quorate_agent.resp.commands.types import numbers, strings
from quorate_agent.resp.tables.collections import HASH_ROWS, LIST_ROWS, SET_ROWS
from quorate_agent.resp.tables.keyed_row import (
    ALL,
    BOTH,
    CHANGE,
    GROW,
    GROW_FAST,
    PAIRS,
    READ,
    SECOND,
    VARYING,
    WRITE,
    KeyedRow,
    keyed_command,
)
from quorate_agent.resp.tables.plain import called_alone

_MANY = "request_policy:multi_shard"
_SUM = (_MANY, "response_policy:agg_sum")
_DATED = "RW update"

# fmt: off
_STRING_ROWS = (
    KeyedRow("get", strings.get, 2, READ, "RO access", "1.0.0", "Returns the string value of a key",
             each=strings.get_each),
    KeyedRow("set", strings.set_value, -3, GROW, "RW access update variable_flags", "1.0.0",
             "Sets the string value of a key", puts_each=strings.set_each),
    KeyedRow("setnx", strings.set_if_absent, 3, GROW_FAST, "OW insert", "1.0.0",
             "Sets the value of a key only if the key does not exist"),
    KeyedRow("setex", strings.set_expiring, 4, GROW, "OW update", "2.0.0",
             "Sets the value of a key and its expiry in seconds"),
    KeyedRow("psetex", strings.set_expiring_ms, 4, GROW, "OW update", "2.6.0",
             "Sets the value of a key and its expiry in milliseconds"),
    KeyedRow("getdel", strings.get_and_delete, 2, WRITE, "RW access delete", "6.2.0",
             "Returns the value of a key and deletes the key"),
    KeyedRow("getex", strings.get_and_expire, -2, WRITE, CHANGE, "6.2.0",
             "Returns the value of a key and changes its expiry"),
    KeyedRow("mget", strings.get_many, -2, READ, "RO access", "1.0.0",
             "Returns the values of several keys of one slot", ALL, (_MANY,)),
    KeyedRow("mset", strings.set_many, -3, GROW, "OW update", "1.0.1",
             "Sets several keys of one slot", PAIRS,
             (_MANY, "response_policy:all_succeeded")),
    KeyedRow("incr", numbers.increment, 2, GROW_FAST, CHANGE, "1.0.0",
             "Increments an integer by one"),
    KeyedRow("incrby", numbers.increment_by, 3, GROW_FAST, CHANGE, "1.0.0",
             "Increments an integer"),
    KeyedRow("incrbyfloat", numbers.increment_by_float, 3, GROW_FAST, CHANGE, "2.6.0",
             "Increments a floating-point number"),
    KeyedRow("decr", numbers.decrement, 2, GROW_FAST, CHANGE, "1.0.0",
             "Decrements an integer by one"),
    KeyedRow("decrby", numbers.decrement_by, 3, GROW_FAST, CHANGE, "1.0.0",
             "Decrements an integer"),
    KeyedRow("append", strings.append, 3, GROW_FAST, "RW insert", "2.0.0",
             "Appends to a string value"),
    KeyedRow("strlen", strings.length, 2, READ, "RO", "2.2.0",
             "Returns the length of a string value"),
    KeyedRow("getrange", strings.get_range, 4, "readonly", "RO access", "2.4.0",
             "Returns a substring of a value"),
    KeyedRow("substr", strings.get_range, 4, "readonly", "RO access", "1.0.0",
             "Returns a substring of a value"),
    KeyedRow("setrange", strings.set_range, 4, GROW, "RW update", "2.2.0",
             "Overwrites part of a string value from an offset on"),
)
_GENERIC_ROWS = (
    KeyedRow("del", keys.delete, -2, "write", "RM delete", "1.0.0", "Deletes keys", ALL, _SUM),
    KeyedRow("unlink", keys.delete, -2, WRITE, "RM delete", "4.0.0", "Deletes keys", ALL, _SUM),
    KeyedRow("exists", keys.exists, -2, READ, "RO", "1.0.0", "Counts how many of the keys exist",
             ALL, _SUM),
    KeyedRow("touch", keys.exists, -2, READ, "RO", "3.2.1", "Counts how many of the keys exist",
             ALL, _SUM),
    KeyedRow("type", keys.type_of, 2, READ, "RO", "1.0.0", "Returns the type of a key's value"),
    KeyedRow("copy", keys.copy, -3, GROW, "RO access;OW update", "6.2.0",
             "Copies the value of a key to another key", BOTH),
    KeyedRow("rename", keys.rename, 3, "write", "RW access delete;OW update", "1.0.0",
             "Renames a key, overwriting the other one", BOTH),
    KeyedRow("renamenx", keys.rename_if_absent, 3, WRITE, "RW access delete;OW insert", "1.0.0",
             "Renames a key only if the new name is free", BOTH),
    KeyedRow("expire", expiry.expire, -3, WRITE, _DATED, "1.0.0",
             "Sets the time to live of a key in seconds"),
    KeyedRow("pexpire", expiry.expire_ms, -3, WRITE, _DATED, "2.6.0",
             "Sets the time to live of a key in milliseconds"),
    KeyedRow("expireat", expiry.expire_at, -3, WRITE, _DATED, "1.2.0",
             "Sets the expiry of a key as Unix time in seconds"),
    KeyedRow("pexpireat", expiry.expire_at_ms, -3, WRITE, _DATED, "2.6.0",
             "Sets the expiry of a key as Unix time in milliseconds"),
    KeyedRow("ttl", expiry.time_to_live, 2, READ, "RO access", "1.0.0",
             "Returns the time to live of a key in seconds", tips=VARYING),
    KeyedRow("pttl", expiry.time_to_live_ms, 2, READ, "RO access", "2.6.0",
             "Returns the time to live of a key in milliseconds", tips=VARYING),
    KeyedRow("expiretime", expiry.expiry_time, 2, READ, "RO access", "7.0.0",
             "Returns the expiry of a key as Unix time in seconds"),
    KeyedRow("pexpiretime", expiry.expiry_time_ms, 2, READ, "RO access", "7.0.0",
             "Returns the expiry of a key as Unix time in milliseconds"),
    KeyedRow("persist", expiry.persist, 2, WRITE, _DATED, "2.2.0",
             "Removes the expiry of a key"),
)
_OBJECT_ROWS = (
    KeyedRow("object|encoding", objects.encoding, 3, "readonly", "RO", "2.2.3",
             "Returns the encoding that Redis would use for the value", SECOND, VARYING),
    KeyedRow("object|freq", objects.frequency, 3, "readonly", "RO", "4.0.0",
             "Returns an error: access frequency is not recorded", SECOND, VARYING),
    KeyedRow("object|idletime", objects.idle_time, 3, "readonly", "RO", "2.2.3",
             "Returns the idle time of a key: not recorded", SECOND, VARYING),
    KeyedRow("object|refcount", objects.reference_count, 3, "readonly", "RO", "2.2.3",
             "Returns the reference count of a value: always 1", SECOND, VARYING),
)
_MEMORY_ROWS = (
    KeyedRow("memory|usage", objects.memory_usage, -3, "readonly", "RO", "4.0.0",
             "Estimates the bytes that one copy of the key takes", SECOND),
)
# fmt: on


def keyed_commands() -> dict[bytes, Command]:
    """Return the commands by lower-case name; subcommands are in their parents."""
    tables: tuple[tuple[Sequence[KeyedRow], str, str], ...] = (
        (_STRING_ROWS, "string", "@string"),
        (_GENERIC_ROWS, "generic", "@keyspace"),
        (HASH_ROWS, "hash", "@hash"),
        (SET_ROWS, "set", "@set"),
        (LIST_ROWS, "list", "@list"),
    )
    commands = [
        keyed_command(row, group, category) for rows, group, category in tables for row in rows
    ]
    commands.append(_container("object", "values", "generic", "2.2.3", "@keyspace", _OBJECT_ROWS))
    commands.append(_container("memory", "memory", "server", "4.0.0", "", _MEMORY_ROWS))
    return {command.name: command for command in commands}


def _container(
    name: str, about: str, group: str, since: str, category: str, rows: Sequence[KeyedRow]
) -> Command:
    children = [keyed_command(row, group, category) for row in rows]
    return Command(
        name=name.encode(),
        scope=Scope.CONNECTION,
        handler=called_alone,
        arity=-2,
        summary=f"Container of commands about {about}",
        since=since,
        group=group,
        subcommands={child.name.partition(b"|")[2]: child for child in children},
    )
