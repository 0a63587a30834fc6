"""Which commands there are for hashes, sets and lists: facts of Redis 7.0, as in `keyed_table`."""

from quorate_agent.resp import hash_commands as hash_
from quorate_agent.resp import list_commands as list_
from quorate_agent.resp import set_commands as set_
from quorate_agent.resp.keyed_row import (
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
    KeyedRow("hset", hash_.set_fields, -4, GROW_FAST, "RW update", "2.0.0",
             "Give fields their values"),
    KeyedRow("hmset", hash_.set_many, -4, GROW_FAST, "RW update", "2.0.0",
             "Give fields their values"),
    KeyedRow("hsetnx", hash_.set_if_absent, 4, GROW_FAST, "RW insert", "2.0.0",
             "Give a field a value unless it has one"),
    KeyedRow("hget", hash_.get, 3, READ, "RO access", "2.0.0", "The value of a field"),
    KeyedRow("hmget", hash_.get_many, -3, READ, "RO access", "2.0.0", "The values of fields"),
    KeyedRow("hgetall", hash_.get_all, 2, _SLOW_READ, "RO access", "2.0.0",
             "All fields and their values", tips=NO_ORDER),
    KeyedRow("hkeys", hash_.names, 2, _SLOW_READ, "RO access", "2.0.0", "All fields",
             tips=NO_ORDER),
    KeyedRow("hvals", hash_.values, 2, _SLOW_READ, "RO access", "2.0.0",
             "The values of all fields", tips=NO_ORDER),
    KeyedRow("hlen", hash_.count, 2, READ, "RO", "2.0.0", "How many fields there are"),
    KeyedRow("hexists", hash_.exists, 3, READ, "RO", "2.0.0", "Whether there is such a field"),
    KeyedRow("hstrlen", hash_.length, 3, READ, "RO", "3.2.0", "The length of a field's value"),
    KeyedRow("hdel", hash_.delete, -3, WRITE, "RW delete", "2.0.0", "Delete fields"),
    KeyedRow("hincrby", hash_.increment_by, 4, GROW_FAST, CHANGE, "2.0.0",
             "Add to the number in a field"),
    KeyedRow("hincrbyfloat", hash_.increment_by_float, 4, GROW_FAST, CHANGE, "2.6.0",
             "Add to the number with a fraction in a field"),
    KeyedRow("hscan", hash_.scan, -3, _SLOW_READ, "RO access", "2.8.0",
             "Fields and their values, page by page", tips=VARYING),
)
SET_ROWS = (
    KeyedRow("sadd", set_.add, -3, GROW_FAST, "RW insert", "1.0.0", "Add members"),
    KeyedRow("srem", set_.remove, -3, WRITE, "RW delete", "1.0.0", "Remove members"),
    KeyedRow("sismember", set_.is_member, 3, READ, "RO", "1.0.0",
             "Whether there is such a member"),
    KeyedRow("smismember", set_.are_members, -3, READ, "RO access", "6.2.0",
             "Whether there are such members"),
    KeyedRow("smembers", set_.members, 2, _SLOW_READ, "RO access", "1.0.0", "All members",
             tips=NO_ORDER),
    KeyedRow("scard", set_.count, 2, READ, "RO", "1.0.0", "How many members there are"),
    KeyedRow("spop", set_.pop, -2, WRITE, _TAKE, "1.0.0",
             "Random members, which are removed", tips=VARYING),
    KeyedRow("srandmember", set_.random_members, -2, _SLOW_READ, "RO access", "1.0.0",
             "Random members", tips=VARYING),
    KeyedRow("sscan", set_.scan, -3, _SLOW_READ, "RO access", "2.8.0",
             "Members, page by page", tips=VARYING),
)
LIST_ROWS = (
    KeyedRow("lpush", list_.push_first, -3, GROW_FAST, "RW insert", "1.0.0",
             "Put elements in front"),
    KeyedRow("rpush", list_.push_last, -3, GROW_FAST, "RW insert", "1.0.0",
             "Put elements at the end"),
    KeyedRow("lpushx", list_.push_first_if_there, -3, GROW_FAST, "RW insert", "2.2.0",
             "Put elements in front of a list that is there"),
    KeyedRow("rpushx", list_.push_last_if_there, -3, GROW_FAST, "RW insert", "2.2.0",
             "Put elements at the end of a list that is there"),
    KeyedRow("lpop", list_.pop_first, -2, WRITE, _TAKE, "1.0.0",
             "The first elements, which are removed"),
    KeyedRow("rpop", list_.pop_last, -2, WRITE, _TAKE, "1.0.0",
             "The last elements, which are removed"),
    KeyedRow("llen", list_.count, 2, READ, "RO", "1.0.0", "How many elements there are"),
    KeyedRow("lrange", list_.get_range, 4, _SLOW_READ, "RO access", "1.0.0",
             "Elements from one index to another"),
    KeyedRow("lindex", list_.get_at, 3, _SLOW_READ, "RO access", "1.0.0",
             "The element at an index"),
    KeyedRow("lset", list_.set_at, 4, GROW, "RW update", "1.0.0",
             "Replace the element at an index"),
    KeyedRow("lrem", list_.remove, 4, "write", "RW delete", "1.0.0", "Remove equal elements"),
    KeyedRow("ltrim", list_.trim, 4, "write", "RW delete", "1.0.0",
             "Remove all but some neighbouring elements"),
)
# fmt: on
