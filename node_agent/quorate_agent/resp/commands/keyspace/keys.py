"""The commands that concern a key of any type: DEL, EXISTS, TYPE, COPY, RENAME."""

from quorate_agent.resp.reading.integers import parse_integer
from quorate_agent.resp.replies import (
    DAMAGED,
    NO_SUCH_KEY,
    NOT_AN_INTEGER,
    OK,
    ONE,
    SYNTAX_ERROR,
    ZERO,
    error,
    integer,
    out_of_range,
    simple,
)
from quorate_agent.resp.values.value import Damaged, kind_of
from quorate_agent.resp.view import KeyView

DATABASE_COUNT = 16
"""The number of databases that Redis accepts in COPY in a cluster, although only 0 exists."""

_NONE = b"+none\r\n"
_SAME_KEY = error(b"ERR source and destination objects are the same")
_NO_SUCH_DATABASE = error(b"ERR DB index is out of range")
_OTHER_DATABASE = error(b"ERR Copying to another database is not allowed in cluster mode")
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1


def delete(view: KeyView, args: list[bytes]) -> bytes:
    """DEL key [key …], UNLINK key [key …]: replies how many existed"""
    if len(args) == 2:
        if view.get(args[1]) is None:
            return ZERO
        view.delete(args[1])
        return ONE
    count = 0
    for key in dict.fromkeys(args[1:]):
        if view.get(key) is not None:
            view.delete(key)
            count += 1
    return integer(count)


def exists(view: KeyView, args: list[bytes]) -> bytes:
    """EXISTS key [key …], TOUCH key [key …]: a key named twice counts twice"""
    return integer(sum([view.get(key) is not None for key in args[1:]]))


def type_of(view: KeyView, args: list[bytes]) -> bytes:
    """TYPE key"""
    row = view.get(args[1])
    if row is None or row.value is None:
        return _NONE
    try:
        return simple(kind_of(row.value).value)
    except Damaged:
        return DAMAGED


def copy(view: KeyView, args: list[bytes]) -> bytes:
    """COPY source destination [DB 0] [REPLACE]: with its time to live"""
    replaces, database = False, 0
    last = len(args) - 1
    at = 3
    while at <= last:
        word = args[at].upper()
        if word == b"REPLACE":
            replaces = True
        elif word == b"DB" and at < last:
            at += 1
            number = parse_integer(args[at])
            if number is None:
                return NOT_AN_INTEGER
            if not _INT_MIN <= number <= _INT_MAX:
                return out_of_range(_INT_MIN, _INT_MAX)
            if not 0 <= number < DATABASE_COUNT:
                return _NO_SUCH_DATABASE
            database = number
        else:
            return SYNTAX_ERROR
        at += 1
    if database:
        return _OTHER_DATABASE
    source, destination = args[1], args[2]
    if source == destination:
        return _SAME_KEY
    row = view.get(source)
    if row is None or row.value is None or (view.get(destination) is not None and not replaces):
        return ZERO
    view.put(destination, row.value, row.expires_at)
    return ONE


def rename(view: KeyView, args: list[bytes]) -> bytes:
    """RENAME source destination: replaces what was there"""
    return _rename(view, args[1], args[2], True, OK, OK)


def rename_if_absent(view: KeyView, args: list[bytes]) -> bytes:
    """RENAMENX source destination"""
    return _rename(view, args[1], args[2], False, ONE, ZERO)


def _rename(
    view: KeyView, source: bytes, destination: bytes, replaces: bool, done: bytes, nothing: bytes
) -> bytes:
    row = view.get(source)
    if row is None or row.value is None:
        return NO_SUCH_KEY
    if source == destination or (not replaces and view.get(destination) is not None):
        return nothing
    view.delete(source)
    view.put(destination, row.value, row.expires_at)
    return done
