"""The commands that set, read, cut and lengthen strings: GET, SET and similar ones.

Each is `handler(view, args) -> reply`; only the arity of `args` was checked.  GET and the plain SET
come first and do nothing unnecessary: most clients send them most of the time.
"""

from collections.abc import Iterable, Sequence
from typing import cast

from quorate_agent.resp.reading.integers import expiry_ms, parse_integer
from quorate_agent.resp.replies import (
    EMPTY_BULK,
    NOT_AN_INTEGER,
    NULL2,
    NULL3,
    OK,
    ONE,
    REPLY_BYTES_MAX,
    REPLY_TOO_LONG,
    SYNTAX_ERROR,
    VALUE_BYTES_MAX,
    VALUE_TOO_LONG,
    WRONGTYPE,
    ZERO,
    NotTogether,
    array,
    bulk,
    bulk_each,
    check_length,
    error,
    integer,
    invalid_expire,
    null,
    wrong_arity,
)
from quorate_agent.resp.values.value import MARKER, pack_string, string_of
from quorate_agent.resp.view import KeyView

_EXPIRY_UNIT_MS = {b"EX": 1000, b"PX": 1, b"EXAT": 1000, b"PXAT": 1}
_ABSOLUTE = (b"EXAT", b"PXAT")
_OFFSET_NEGATIVE = error(b"ERR offset is out of range")


def get(view: KeyView, args: list[bytes]) -> bytes:
    """GET key"""
    row = view.get(args[1])
    if row is None or (value := row.value) is None:
        return NULL3 if view.resp3 else NULL2
    if value >= MARKER:
        return _bulk_of(value)
    return bulk(value)


def get_each(values: list[bytes | None], resp3: bool) -> bytes:
    """Return GET's replies to several values, at least one; None is no value.  NotTogether."""
    strings = cast(list[bytes], values)
    try:
        if max(strings) < MARKER:
            return bulk_each(strings)
    except TypeError:
        pass  # None is among them
    check_length(filter(None, values))
    absent = null(resp3)
    each = [absent if value is None else _bulk_of(value) for value in values]
    if WRONGTYPE in each:
        raise NotTogether  # so that errors are counted
    return b"".join(each)


def set_value(view: KeyView, args: list[bytes]) -> bytes:
    """SET key value [NX | XX] [GET] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]"""
    if len(args) == 3:
        value = args[2]
        view.put(args[1], value if value < MARKER else pack_string(value), 0)
        return OK
    return _set_with_options(view, args)


def set_each(values: Sequence[bytes]) -> Iterable[bytes]:
    """Return what the plain SET stores for several values, at least one."""
    return values if max(values) < MARKER else map(pack_string, values)


def set_if_absent(view: KeyView, args: list[bytes]) -> bytes:
    """SETNX key value"""
    if view.get(args[1]) is not None:
        return ZERO
    view.put(args[1], pack_string(args[2]), 0)
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
    text = string_of(row.value)
    if text is None:
        return WRONGTYPE
    view.delete(args[1])
    return bulk(text)


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
    # As in Redis, the time is checked only if the key exists.
    if row is None or row.value is None:
        return null(view.resp3)
    text = string_of(row.value)
    if text is None:
        return WRONGTYPE
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
    return bulk(text)


def get_many(view: KeyView, args: list[bytes]) -> bytes:
    """MGET key [key …]: null for what is not a string"""
    get_row = view.get
    absent = null(view.resp3)
    replies = []
    room = REPLY_BYTES_MAX
    for key in args[1:]:
        row = get_row(key)
        value = None if row is None else row.value
        text = None if value is None else string_of(value)
        reply = absent if text is None else bulk(text)
        room -= len(reply)
        if room < 0:
            return REPLY_TOO_LONG
        replies.append(reply)
    return array(replies)


def set_many(view: KeyView, args: list[bytes]) -> bytes:
    """MSET key value [key value …]: a key named twice gets the later value"""
    if len(args) % 2 == 0:
        return wrong_arity(b"mset")
    for key, value in dict(zip(args[1::2], args[2::2], strict=True)).items():
        view.put(key, pack_string(value), 0)
    return OK


def append(view: KeyView, args: list[bytes]) -> bytes:
    """APPEND key value: keeps the time to live"""
    key, tail = args[1], args[2]
    row = view.get(key)
    if row is None or row.value is None:
        view.put(key, pack_string(tail), 0)
        return integer(len(tail))
    text = string_of(row.value)
    if text is None:
        return WRONGTYPE
    length = len(text) + len(tail)
    if length > VALUE_BYTES_MAX:
        return VALUE_TOO_LONG
    if tail:
        view.put(key, pack_string(text + tail), row.expires_at)
    return integer(length)


def length(view: KeyView, args: list[bytes]) -> bytes:
    """STRLEN key"""
    row = view.get(args[1])
    if row is None or row.value is None:
        return ZERO
    text = string_of(row.value)
    return WRONGTYPE if text is None else integer(len(text))


def get_range(view: KeyView, args: list[bytes]) -> bytes:
    """GETRANGE key first last, SUBSTR key first last: negative indices count from the end"""
    first, last = parse_integer(args[2]), parse_integer(args[3])
    if first is None or last is None:
        return NOT_AN_INTEGER
    row = view.get(args[1])
    if row is None or row.value is None:
        return EMPTY_BULK
    text = string_of(row.value)
    if text is None:
        return WRONGTYPE
    if first < 0 and last < 0 and first > last:
        return EMPTY_BULK
    if first < 0:
        first = max(first + len(text), 0)
    if last < 0:
        last = max(last + len(text), 0)  # as Redis: an end before the beginning is the first byte
    return bulk(text[first : last + 1])


def set_range(view: KeyView, args: list[bytes]) -> bytes:
    """SETRANGE key offset value: keeps the time to live, pads with zero bytes"""
    offset = parse_integer(args[2])
    if offset is None:
        return NOT_AN_INTEGER
    if offset < 0:
        return _OFFSET_NEGATIVE
    key, part = args[1], args[3]
    row = view.get(key)
    text = b"" if row is None or row.value is None else string_of(row.value)
    if text is None:
        return WRONGTYPE
    if not part:
        return integer(len(text))
    end = offset + len(part)
    if end > VALUE_BYTES_MAX:
        return VALUE_TOO_LONG
    changed = text[:offset].ljust(offset, b"\0") + part + text[end:]
    if changed != text:
        view.put(key, pack_string(changed), 0 if row is None else row.expires_at)
    return integer(len(changed))


def _bulk_of(value: bytes) -> bytes:
    text = string_of(value)
    return WRONGTYPE if text is None else bulk(text)


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
            view.put(args[1], pack_string(args[2]), expires_at)  # the old row does not matter
            return OK
    key = args[1]
    row = view.get(key)
    reply = OK
    if wants_old:
        reply = null(view.resp3) if row is None or row.value is None else _bulk_of(row.value)
        if reply is WRONGTYPE:
            return reply
    if (condition == b"NX") if row is not None else (condition == b"XX"):
        return reply if wants_old else null(view.resp3)
    if expires_at and expires_at < view.now_ms:
        # The time has passed: the same as a deletion.
        if row is not None:
            view.delete(key)
        return reply
    if keeps_expiry and row is not None:
        expires_at = row.expires_at
    view.put(key, pack_string(args[2]), expires_at)
    return reply


def _set_for(view: KeyView, args: list[bytes], option: bytes, name: bytes) -> bytes:
    expires_at = _expires_at(view, option, args[2], name)
    if isinstance(expires_at, bytes):
        return expires_at
    view.put(args[1], pack_string(args[3]), expires_at)
    return OK


def _expires_at(view: KeyView, option: bytes, amount: bytes, name: bytes) -> int | bytes:
    """Return absolute wall milliseconds (> 0), or the error reply."""
    number = parse_integer(amount)
    if number is None:
        return NOT_AN_INTEGER
    base_ms = 0 if option in _ABSOLUTE else view.now_ms
    at_ms = expiry_ms(number, _EXPIRY_UNIT_MS[option], base_ms)
    if number <= 0 or at_ms is None:
        return invalid_expire(name)
    return at_ms
