"""Which commands with keys there are, and what clients are told of them: facts of Redis 7.0."""

from collections.abc import Callable
from typing import NamedTuple

from quorate_agent.resp import key_commands as key
from quorate_agent.resp import string_commands as string
from quorate_agent.resp.command import Command, Scope
from quorate_agent.resp.view import KeyView


class _Row(NamedTuple):
    name: str
    handler: Callable[[KeyView, list[bytes]], bytes]
    arity: int
    flags: str
    key_flags: str
    since: str
    summary: str
    last_key_and_step: tuple[int, int] = (1, 1)
    tips: tuple[str, ...] = ()


_READ = "readonly fast"
_WRITE = "write fast"
_GROW = "write denyoom"
_GROW_FAST = "write denyoom fast"
_CHANGE = "RW access update"
_ALL, _PAIRS = (-1, 1), (-1, 2)
_VARYING = ("nondeterministic_output",)
_MANY = "request_policy:multi_shard"
_SUM = (_MANY, "response_policy:agg_sum")

# fmt: off
_STRING_ROWS = (
    _Row("get", string.get, 2, _READ, "RO access", "1.0.0", "The value of a key"),
    _Row("set", string.set_value, -3, _GROW, "RW access update variable_flags", "1.0.0",
         "Give a key a value"),
    _Row("setnx", string.set_if_absent, 3, _GROW_FAST, "OW insert", "1.0.0",
         "Give a key a value unless it has one"),
    _Row("setex", string.set_expiring, 4, _GROW, "OW update", "2.0.0",
         "Give a key a value for some seconds"),
    _Row("psetex", string.set_expiring_ms, 4, _GROW, "OW update", "2.6.0",
         "Give a key a value for some milliseconds"),
    _Row("getdel", string.get_and_delete, 2, _WRITE, "RW access delete", "6.2.0",
         "The value of a key, which is deleted"),
    _Row("getex", string.get_and_expire, -2, _WRITE, _CHANGE, "6.2.0",
         "The value of a key, whose time to live is changed"),
    _Row("mget", string.get_many, -2, _READ, "RO access", "1.0.0",
         "The values of keys of one slot", _ALL, (_MANY,)),
    _Row("mset", string.set_many, -3, _GROW, "OW update", "1.0.1",
         "Give keys of one slot their values", _PAIRS, (_MANY, "response_policy:all_succeeded")),
    _Row("incr", string.increment, 2, _GROW_FAST, _CHANGE, "1.0.0", "Add 1 to a number"),
    _Row("incrby", string.increment_by, 3, _GROW_FAST, _CHANGE, "1.0.0", "Add to a number"),
    _Row("decr", string.decrement, 2, _GROW_FAST, _CHANGE, "1.0.0", "Subtract 1 from a number"),
    _Row("decrby", string.decrement_by, 3, _GROW_FAST, _CHANGE, "1.0.0",
         "Subtract from a number"),
    _Row("append", string.append, 3, _GROW_FAST, "RW insert", "2.0.0", "Lengthen a value"),
    _Row("strlen", string.length, 2, _READ, "RO", "2.2.0", "The length of a value"),
)
_GENERIC_ROWS = (
    _Row("del", key.delete, -2, "write", "RM delete", "1.0.0", "Delete keys", _ALL, _SUM),
    _Row("unlink", key.delete, -2, _WRITE, "RM delete", "4.0.0", "Delete keys", _ALL, _SUM),
    _Row("exists", key.exists, -2, _READ, "RO", "1.0.0", "How many of the keys exist", _ALL, _SUM),
    _Row("type", key.type_of, 2, _READ, "RO", "1.0.0", "What a key holds"),
    _Row("expire", key.expire, -3, _WRITE, "RW update", "1.0.0",
         "Give a key a time to live in seconds"),
    _Row("pexpire", key.expire_ms, -3, _WRITE, "RW update", "2.6.0",
         "Give a key a time to live in milliseconds"),
    _Row("ttl", key.time_to_live, 2, _READ, "RO access", "1.0.0",
         "The time to live of a key in seconds", tips=_VARYING),
    _Row("pttl", key.time_to_live_ms, 2, _READ, "RO access", "2.6.0",
         "The time to live of a key in milliseconds", tips=_VARYING),
    _Row("persist", key.persist, 2, _WRITE, "RW update", "2.2.0",
         "Take the time to live from a key"),
)
# fmt: on


def keyed_commands() -> dict[bytes, Command]:
    """Lower-case name -> command."""
    rows = [(row, "string", "@string") for row in _STRING_ROWS]
    rows += [(row, "generic", "@keyspace") for row in _GENERIC_ROWS]
    return {
        row.name.encode(): Command(
            name=row.name.encode(),
            scope=Scope.KEYED,
            handler=row.handler,
            arity=row.arity,
            summary=row.summary,
            since=row.since,
            group=group,
            flags=tuple(row.flags.split()),
            first_key=1,
            last_key=row.last_key_and_step[0],
            step=row.last_key_and_step[1],
            key_flags=tuple(row.key_flags.split()),
            categories=(category,),
            tips=row.tips,
        )
        for row, group, category in rows
    }
