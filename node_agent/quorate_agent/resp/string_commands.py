"""What the string commands do to the row of a key: GET, SET and their kin.

Each is `handler(view, args) -> reply`, `args` checked for arity only.  GET and the plain SET come
first and do nothing that they need not: they are what most clients send most of the time.
"""

from quorate_agent.resp.integers import INTEGER_MAX, INTEGER_MIN, expiry_ms, parse_integer
from quorate_agent.resp.replies import (
    DECREMENT_OVERFLOW,
    INCREMENT_OVERFLOW,
    NOT_AN_INTEGER,
    NULL2,
    NULL3,
    OK,
    ONE,
    SYNTAX_ERROR,
    VALUE_BYTES_MAX,
    VALUE_TOO_LONG,
    ZERO,
    array,
    bulk,
    integer,
    invalid_expire,
    null,
    wrong_arity,
)
from quorate_agent.resp.view import KeyView

_EXPIRY_UNIT_MS = {b"EX": 1000, b"PX": 1, b"EXAT": 1000, b"PXAT": 1}
_ABSOLUTE = (b"EXAT", b"PXAT")


def get(view: KeyView, args: list[bytes]) -> bytes:
    """GET key"""
    row = view.get(args[1])
    value = None if row is None else row.value
    if value is None:
        return NULL3 if view.resp3 else NULL2
    return b"$%d\r\n%b\r\n" % (len(value), value)


def set_value(view: KeyView, args: list[bytes]) -> bytes:
    """SET key value [NX | XX] [GET] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]"""
    if len(args) == 3:
        view.put(args[1], args[2], 0)
        return OK
    return _set_with_options(view, args)


def set_if_absent(view: KeyView, args: list[bytes]) -> bytes:
    """SETNX key value"""
    if view.get(args[1]) is not None:
        return ZERO
    view.put(args[1], args[2], 0)
    return ONE


def set_expiring(view: KeyView, args: list[bytes]) -> bytes:
    """SETEX key seconds value"""
    return _set_for(view, args, b"EX", b"setex")


def set_expiring_ms(view: KeyView, args: list[bytes]) -> bytes:
    """PSETEX key milliseconds value"""
    return _set_for(view, args, b"PX", b"psetex")


def get_and_delete(view: KeyView, args: list[bytes]) -> bytes:
    """GETDEL key"""
    row = view.get(args[1])
    if row is None or row.value is None:
        return null(view.resp3)
    view.delete(args[1])
    return bulk(row.value)


def get_and_expire(view: KeyView, args: list[bytes]) -> bytes:
    """GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]"""
    option: bytes | None = None
    amount: bytes | None = None
    last = len(args) - 1
    at = 2
    while at <= last:
        word = args[at].upper()
        if option is not None and option != word:
            return SYNTAX_ERROR
        if word == b"PERSIST":
            option = word
        elif word in _EXPIRY_UNIT_MS and at < last:
            option = word
            at += 1
            amount = args[at]
        else:
            return SYNTAX_ERROR
        at += 1
    key = args[1]
    row = view.get(key)
    # As Redis: whether the time is one at all is looked at only when the key exists.
    if row is None or row.value is None:
        return null(view.resp3)
    if amount is not None and option is not None:
        expires_at = _expires_at(view, option, amount, b"getex")
        if isinstance(expires_at, bytes):
            return expires_at
        if expires_at <= view.now_ms:
            view.delete(key)
        elif expires_at != row.expires_at:
            view.put(key, row.value, expires_at)
    elif option is not None and row.expires_at:
        view.put(key, row.value, 0)
    return bulk(row.value)


def get_many(view: KeyView, args: list[bytes]) -> bytes:
    """MGET key [key …]"""
    get_row = view.get
    absent = null(view.resp3)
    replies = []
    for key in args[1:]:
        row = get_row(key)
        value = None if row is None else row.value
        replies.append(absent if value is None else bulk(value))
    return array(replies)


def set_many(view: KeyView, args: list[bytes]) -> bytes:
    """MSET key value [key value …]: a key named twice gets the later value"""
    if len(args) % 2 == 0:
        return wrong_arity(b"mset")
    for key, value in dict(zip(args[1::2], args[2::2], strict=True)).items():
        view.put(key, value, 0)
    return OK


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


def append(view: KeyView, args: list[bytes]) -> bytes:
    """APPEND key value: keeps the time to live"""
    key, tail = args[1], args[2]
    row = view.get(key)
    if row is None or row.value is None:
        view.put(key, tail, 0)
        return integer(len(tail))
    length = len(row.value) + len(tail)
    if length > VALUE_BYTES_MAX:
        return VALUE_TOO_LONG
    if tail:
        view.put(key, row.value + tail, row.expires_at)
    return integer(length)


def length(view: KeyView, args: list[bytes]) -> bytes:
    """STRLEN key"""
    row = view.get(args[1])
    return ZERO if row is None or row.value is None else integer(len(row.value))


def _set_with_options(view: KeyView, args: list[bytes]) -> bytes:
    condition = expiry = amount = b""
    wants_old = keeps_expiry = False
    last = len(args) - 1
    at = 3
    while at <= last:
        word = args[at].upper()
        if word in (b"NX", b"XX") and condition in (b"", word):
            condition = word
        elif word == b"GET":
            wants_old = True
        elif word == b"KEEPTTL" and not expiry:
            keeps_expiry = True
        elif word in _EXPIRY_UNIT_MS and not keeps_expiry and expiry in (b"", word) and at < last:
            expiry = word
            at += 1
            amount = args[at]
        else:
            return SYNTAX_ERROR
        at += 1
    expires_at = 0
    if expiry:
        parsed = _expires_at(view, expiry, amount, b"set")
        if isinstance(parsed, bytes):
            return parsed
        expires_at = parsed
        if expires_at >= view.now_ms and not condition and not wants_old:
            view.put(args[1], args[2], expires_at)  # nothing depends on what was there
            return OK
    key = args[1]
    row = view.get(key)
    reply = OK
    if wants_old:
        reply = null(view.resp3) if row is None or row.value is None else bulk(row.value)
    if (condition == b"NX") if row is not None else (condition == b"XX"):
        return reply if wants_old else null(view.resp3)
    if expires_at and expires_at < view.now_ms:
        # A moment that has passed: what stays is the same as after a deletion.
        if row is not None:
            view.delete(key)
        return reply
    if keeps_expiry and row is not None:
        expires_at = row.expires_at
    view.put(key, args[2], expires_at)
    return reply


def _set_for(view: KeyView, args: list[bytes], option: bytes, name: bytes) -> bytes:
    expires_at = _expires_at(view, option, args[2], name)
    if isinstance(expires_at, bytes):
        return expires_at
    view.put(args[1], args[3], expires_at)
    return OK


def _expires_at(view: KeyView, option: bytes, amount: bytes, name: bytes) -> int | bytes:
    """Absolute wall milliseconds (> 0), or the error reply."""
    number = parse_integer(amount)
    if number is None:
        return NOT_AN_INTEGER
    base_ms = 0 if option in _ABSOLUTE else view.now_ms
    at_ms = expiry_ms(number, _EXPIRY_UNIT_MS[option], base_ms)
    if number <= 0 or at_ms is None:
        return invalid_expire(name)
    return at_ms


def _add(view: KeyView, key: bytes, amount: int) -> bytes:
    row = view.get(key)
    if row is None or row.value is None:
        present, expires_at = 0, 0
    else:
        number = parse_integer(row.value)
        if number is None:
            return NOT_AN_INTEGER
        present, expires_at = number, row.expires_at
    total = present + amount
    if not INTEGER_MIN <= total <= INTEGER_MAX:
        return INCREMENT_OVERFLOW
    # INCRBY 0 on a key that is there changes nothing.
    if amount or row is None:
        view.put(key, b"%d" % total, expires_at)
    return integer(total)
