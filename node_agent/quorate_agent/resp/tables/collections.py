"""The commands for hashes, sets and lists: facts of Redis 7.0, as in keyed.py."""

from quorate_agent.resp.commands import hashes, lists, sets
from quorate_agent.resp.tables.keyed_row import (
    CHANGE,
    GROW,
    GROW_FAST,
    NO_ORDER,
    READ,
    VARYING,
    WRITE,
    KeyedRow,
)

_SLOW_READ = "readonly"
_TAKE = "RW access delete"

# fmt: off
HASH_ROWS = (
    KeyedRow("hset", hashes.set_fields, -4, GROW_FAST, "RW update", "2.0.0",
             "Give fields their values"),
    KeyedRow("hmset", hashes.set_many, -4, GROW_FAST, "RW update", "2.0.0",
             "Give fields their values"),
    KeyedRow("hsetnx", hashes.set_if_absent, 4, GROW_FAST, "RW insert", "2.0.0",
             "Give a field a value unless it has one"),
    KeyedRow("hget", hashes.get, 3, READ, "RO access", "2.0.0", "The value of a field"),
    KeyedRow("hmget", hashes.get_many, -3, READ, "RO access", "2.0.0", "The values of fields"),
    KeyedRow("hgetall", hashes.get_all, 2, _SLOW_READ, "RO access", "2.0.0",
             "All fields and their values", tips=NO_ORDER),
    KeyedRow("hkeys", hashes.names, 2, _SLOW_READ, "RO access", "2.0.0", "All fields",
             tips=NO_ORDER),
    KeyedRow("hvals", hashes.values, 2, _SLOW_READ, "RO access", "2.0.0",
             "The values of all fields", tips=NO_ORDER),
    KeyedRow("hlen", hashes.count, 2, READ, "RO", "2.0.0", "How many fields there are"),
    KeyedRow("hexists", hashes.exists, 3, READ, "RO", "2.0.0", "Whether there is such a field"),
    KeyedRow("hstrlen", hashes.length, 3, READ, "RO", "3.2.0", "The length of a field's value"),
    KeyedRow("hdel", hashes.delete, -3, WRITE, "RW delete", "2.0.0", "Delete fields"),
    KeyedRow("hincrby", hashes.increment_by, 4, GROW_FAST, CHANGE, "2.0.0",
             "Add to the number in a field"),
    KeyedRow("hincrbyfloat", hashes.increment_by_float, 4, GROW_FAST, CHANGE, "2.6.0",
             "Add to the number with a fraction in a field"),
    KeyedRow("hscan", hashes.scan, -3, _SLOW_READ, "RO access", "2.8.0",
             "Fields and their values, page by page", tips=VARYING),
)
SET_ROWS = (
    KeyedRow("sadd", sets.add, -3, GROW_FAST, "RW insert", "1.0.0", "Add members"),
    KeyedRow("srem", sets.remove, -3, WRITE, "RW delete", "1.0.0", "Remove members"),
    KeyedRow("sismember", sets.is_member, 3, READ, "RO", "1.0.0",
             "Whether there is such a member"),
    KeyedRow("smismember", sets.are_members, -3, READ, "RO access", "6.2.0",
             "Whether there are such members"),
    KeyedRow("smembers", sets.members, 2, _SLOW_READ, "RO access", "1.0.0", "All members",
             tips=NO_ORDER),
    KeyedRow("scard", sets.count, 2, READ, "RO", "1.0.0", "How many members there are"),
    KeyedRow("spop", sets.pop, -2, WRITE, _TAKE, "1.0.0",
             "Random members, which are removed", tips=VARYING),
    KeyedRow("srandmember", sets.random_members, -2, _SLOW_READ, "RO access", "1.0.0",
             "Random members", tips=VARYING),
    KeyedRow("sscan", sets.scan, -3, _SLOW_READ, "RO access", "2.8.0",
             "Members, page by page", tips=VARYING),
)
LIST_ROWS = (
    KeyedRow("lpush", lists.push_first, -3, GROW_FAST, "RW insert", "1.0.0",
             "Put elements in front"),
    KeyedRow("rpush", lists.push_last, -3, GROW_FAST, "RW insert", "1.0.0",
             "Put elements at the end"),
    KeyedRow("lpushx", lists.push_first_if_there, -3, GROW_FAST, "RW insert", "2.2.0",
             "Put elements in front of a list that is there"),
    KeyedRow("rpushx", lists.push_last_if_there, -3, GROW_FAST, "RW insert", "2.2.0",
             "Put elements at the end of a list that is there"),
    KeyedRow("lpop", lists.pop_first, -2, WRITE, _TAKE, "1.0.0",
             "The first elements, which are removed"),
    KeyedRow("rpop", lists.pop_last, -2, WRITE, _TAKE, "1.0.0",
             "The last elements, which are removed"),
    KeyedRow("llen", lists.count, 2, READ, "RO", "1.0.0", "How many elements there are"),
    KeyedRow("lrange", lists.get_range, 4, _SLOW_READ, "RO access", "1.0.0",
             "Elements from one index to another"),
    KeyedRow("lindex", lists.get_at, 3, _SLOW_READ, "RO access", "1.0.0",
             "The element at an index"),
    KeyedRow("lset", lists.set_at, 4, GROW, "RW update", "1.0.0",
             "Replace the element at an index"),
    KeyedRow("lrem", lists.remove, 4, "write", "RW delete", "1.0.0", "Remove equal elements"),
    KeyedRow("ltrim", lists.trim, 4, "write", "RW delete", "1.0.0",
             "Remove all but some neighbouring elements"),
)
# fmt: on
