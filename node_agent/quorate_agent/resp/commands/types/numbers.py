"""The commands that add to a number stored as a string: INCR and similar ones."""

from quorate_agent.resp.reading.floats import add_floats, float_text, parse_float
from quorate_agent.resp.reading.integers import INTEGER_MAX, INTEGER_MIN, parse_integer
from quorate_agent.resp.replies import (
    DECREMENT_OVERFLOW,
    FLOAT_OVERFLOW,
    INCREMENT_OVERFLOW,
    NOT_A_FLOAT,
    NOT_AN_INTEGER,
    WRONGTYPE,
    bulk,
    integer,
)
from quorate_agent.resp.values.value import string_of
from quorate_agent.resp.view import KeyView


def increment(view: KeyView, args: list[bytes]) -> bytes:
    """INCR key"""
    return _add(view, args[1], 1)


def decrement(view: KeyView, args: list[bytes]) -> bytes:
    """DECR key"""
    return _add(view, args[1], -1)


def increment_by(view: KeyView, args: list[bytes]) -> bytes:
    """INCRBY key integer"""
    amount = parse_integer(args[2])
    return NOT_AN_INTEGER if amount is None else _add(view, args[1], amount)


def decrement_by(view: KeyView, args: list[bytes]) -> bytes:
    """DECRBY key integer"""
    amount = parse_integer(args[2])
    if amount is None:
        return NOT_AN_INTEGER
    if amount == INTEGER_MIN:
        return DECREMENT_OVERFLOW
    return _add(view, args[1], -amount)


def increment_by_float(view: KeyView, args: list[bytes]) -> bytes:
    """INCRBYFLOAT key number"""
    key = args[1]
    row = view.get(key)
    text = b"0" if row is None or row.value is None else string_of(row.value)
    if text is None:
        return WRONGTYPE
    present, amount = parse_float(text), parse_float(args[2])
    if present is None or amount is None:
        return NOT_A_FLOAT
    total = add_floats(present, amount)
    if total is None:
        return FLOAT_OVERFLOW
    changed = float_text(total)
    if row is None or changed != text:
        view.put(key, changed, 0 if row is None else row.expires_at)
    return bulk(changed)


def _add(view: KeyView, key: bytes, amount: int) -> bytes:
    row = view.get(key)
    if row is None or row.value is None:
        present, expires_at = 0, 0
    else:
        number = parse_integer(row.value)
        if number is None:
            return WRONGTYPE if string_of(row.value) is None else NOT_AN_INTEGER
        present, expires_at = number, row.expires_at
    total = present + amount
    if not INTEGER_MIN <= total <= INTEGER_MAX:
        return INCREMENT_OVERFLOW
    # INCRBY 0 on an existing key changes nothing.
    if amount or row is None:
        view.put(key, b"%d" % total, expires_at)
    return integer(total)
