"""The commands that concern sets: SADD, SMEMBERS and similar ones.

SPOP draws at the primary only; the other copies get the row that is left.
"""

import random

from quorate_agent.resp.commands.types.member_scan import scan_members
from quorate_agent.resp.reading.integers import INTEGER_MAX, parse_count, parse_integer
from quorate_agent.resp.replies import (
    NOT_AN_INTEGER,
    NOT_POSITIVE,
    ONE,
    REPLY_BYTES_MAX,
    REPLY_TOO_LONG,
    SYNTAX_ERROR,
    ZERO,
    array,
    bulk,
    bulk_set,
    bulks,
    error,
    integer,
    null,
    out_of_range,
)
from quorate_agent.resp.values.collection import put_set, set_at
from quorate_agent.resp.view import KeyView

DRAWN_MAX = 1_000_000
"""Members that one SRANDMEMBER may repeat; Redis has no bound."""

_TOO_MANY_DRAWN = error(b"ERR value is out of range: at least -%d" % DRAWN_MAX)


def add(view: KeyView, args: list[bytes]) -> bytes:
    """SADD key member [member …]: replies how many are new"""
    key = args[1]
    found = set_at(view, key)
    if isinstance(found, bytes):
        return found
    new = dict.fromkeys([member for member in args[2:] if member not in found.items])
    if not new:
        return ZERO
    return put_set(view, key, found, {**found.items, **new}, integer(len(new)))


def remove(view: KeyView, args: list[bytes]) -> bytes:
    """SREM key member [member …]: replies how many existed"""
    key = args[1]
    found = set_at(view, key)
    if isinstance(found, bytes):
        return found
    left = dict(found.items)
    for member in args[2:]:
        left.pop(member, None)
    count = len(found.items) - len(left)
    return put_set(view, key, found, left, integer(count)) if count else ZERO


def is_member(view: KeyView, args: list[bytes]) -> bytes:
    """SISMEMBER key member"""
    found = set_at(view, args[1])
    return found if isinstance(found, bytes) else integer(args[2] in found.items)


def are_members(view: KeyView, args: list[bytes]) -> bytes:
    """SMISMEMBER key member [member …]"""
    found = set_at(view, args[1])
    if isinstance(found, bytes):
        return found
    return array([ONE if member in found.items else ZERO for member in args[2:]])


def members(view: KeyView, args: list[bytes]) -> bytes:
    """SMEMBERS key"""
    found = set_at(view, args[1])
    if isinstance(found, bytes):
        return found
    return bulk_set(found.items, view.resp3)


def count(view: KeyView, args: list[bytes]) -> bytes:
    """SCARD key"""
    found = set_at(view, args[1])
    return found if isinstance(found, bytes) else integer(len(found.items))


def scan(view: KeyView, args: list[bytes]) -> bytes:
    """SSCAN key cursor [MATCH pattern] [COUNT members]"""
    return scan_members(view, args, set_at, lambda member, _: (member,))


def pop(view: KeyView, args: list[bytes]) -> bytes:
    """SPOP key [count]: removes random members"""
    if len(args) > 3:
        return SYNTAX_ERROR
    wanted = parse_count(args[2:])
    if wanted is None:
        return NOT_POSITIVE
    key = args[1]
    found = set_at(view, key)
    if isinstance(found, bytes):
        return found
    drawn = random.sample(list(found.items), min(wanted, len(found.items)))
    if len(args) == 3:
        reply = bulk_set(drawn, view.resp3)
    else:
        reply = bulk(drawn[0]) if drawn else null(view.resp3)
    if not drawn:
        return reply
    left = dict(found.items)
    for member in drawn:
        del left[member]
    return put_set(view, key, found, left, reply)


def random_members(view: KeyView, args: list[bytes]) -> bytes:
    """SRANDMEMBER key [count]: a negative count may repeat members"""
    if len(args) > 3:
        return SYNTAX_ERROR
    wanted = 1
    if len(args) == 3:
        number = parse_integer(args[2])
        if number is None:
            return NOT_AN_INTEGER
        if number < -INTEGER_MAX:
            return out_of_range(-INTEGER_MAX, INTEGER_MAX)
        wanted = number
    found = set_at(view, args[1])
    if isinstance(found, bytes):
        return found
    population = list(found.items)
    if len(args) == 2:
        return bulk(random.choice(population)) if population else null(view.resp3)
    if not population:
        return array(())
    if wanted < -DRAWN_MAX:
        return _TOO_MANY_DRAWN
    if wanted < 0:
        repeated = random.choices(population, k=-wanted)
        if sum(map(len, repeated)) > REPLY_BYTES_MAX:
            return REPLY_TOO_LONG
        return bulks(repeated)
    return bulks(random.sample(population, min(wanted, len(population))))
