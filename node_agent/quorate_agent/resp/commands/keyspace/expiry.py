"""The commands that change or show when a key expires: EXPIRE, TTL and similar ones."""

from quorate_agent.resp.reading.integers import expiry_ms, parse_integer
from quorate_agent.resp.replies import (
    NOT_AN_INTEGER,
    ONE,
    ZERO,
    error,
    integer,
    invalid_expire,
    until_nul,
)
from quorate_agent.resp.view import KeyView

_NO_KEY = b":-2\r\n"
_NO_EXPIRY = b":-1\r\n"
_NX_EXCLUDES = error(
    b"ERR NX and XX, GT or LT options at the same time are not compatible",
)
_GT_EXCLUDES_LT = error(b"ERR GT and LT options at the same time are not compatible")


def expire(view: KeyView, args: list[bytes]) -> bytes:
    """EXPIRE key seconds [NX | XX | GT | LT]"""
    return _expire(view, args, 1000, view.now_ms, b"expire")


def expire_ms(view: KeyView, args: list[bytes]) -> bytes:
    """PEXPIRE key milliseconds [NX | XX | GT | LT]"""
    return _expire(view, args, 1, view.now_ms, b"pexpire")


def expire_at(view: KeyView, args: list[bytes]) -> bytes:
    """EXPIREAT key seconds-since-1970 [NX | XX | GT | LT]"""
    return _expire(view, args, 1000, 0, b"expireat")


def expire_at_ms(view: KeyView, args: list[bytes]) -> bytes:
    """PEXPIREAT key milliseconds-since-1970 [NX | XX | GT | LT]"""
    return _expire(view, args, 1, 0, b"pexpireat")


def time_to_live(view: KeyView, args: list[bytes]) -> bytes:
    """TTL key: seconds, rounded"""
    left_ms = _expiry(view, args[1], view.now_ms)
    return left_ms if isinstance(left_ms, bytes) else _rounded_to_seconds(left_ms)


def time_to_live_ms(view: KeyView, args: list[bytes]) -> bytes:
    """PTTL key"""
    left_ms = _expiry(view, args[1], view.now_ms)
    return left_ms if isinstance(left_ms, bytes) else integer(left_ms)


def expiry_time(view: KeyView, args: list[bytes]) -> bytes:
    """EXPIRETIME key: seconds since 1970, rounded"""
    at_ms = _expiry(view, args[1], 0)
    return at_ms if isinstance(at_ms, bytes) else _rounded_to_seconds(at_ms)


def expiry_time_ms(view: KeyView, args: list[bytes]) -> bytes:
    """PEXPIRETIME key"""
    at_ms = _expiry(view, args[1], 0)
    return at_ms if isinstance(at_ms, bytes) else integer(at_ms)


def persist(view: KeyView, args: list[bytes]) -> bytes:
    """PERSIST key: replies 1 if there was a time to live"""
    row = view.get(args[1])
    if row is None or row.value is None or not row.expires_at:
        return ZERO
    view.put(args[1], row.value, 0)
    return ONE


def _expiry(view: KeyView, key: bytes, since_ms: int) -> int | bytes:
    """Return milliseconds from `since_ms` to the expiry of `key`, or the reply if it has none."""
    row = view.get(key)
    if row is None:
        return _NO_KEY
    if not row.expires_at:
        return _NO_EXPIRY
    return max(row.expires_at - since_ms, 0)


def _rounded_to_seconds(ms: int) -> bytes:
    return integer((ms + 500) // 1000)


def _expire(view: KeyView, args: list[bytes], unit_ms: int, base_ms: int, name: bytes) -> bytes:
    # The order of the checks is Redis'; it decides which of several errors a client sees.
    options = []
    for argument in args[3:]:
        option = argument.upper()
        if option not in (b"NX", b"XX", b"GT", b"LT"):
            return error(b"ERR Unsupported option %b" % until_nul(argument))
        options.append(option)
    if b"NX" in options and options.count(b"NX") < len(options):
        return _NX_EXCLUDES
    if b"GT" in options and b"LT" in options:
        return _GT_EXCLUDES_LT
    amount = parse_integer(args[2])
    if amount is None:
        return NOT_AN_INTEGER
    at_ms = expiry_ms(amount, unit_ms, base_ms)
    if at_ms is None:
        return invalid_expire(name)
    key = args[1]
    row = view.get(key)
    if row is None or row.value is None:
        return ZERO
    if not all(_allows(option, row.expires_at, at_ms) for option in options):
        return ZERO
    if at_ms <= view.now_ms:
        view.delete(key)
    elif at_ms != row.expires_at:
        view.put(key, row.value, at_ms)
    return ONE


def _allows(option: bytes, present_ms: int, wanted_ms: int) -> bool:
    """Return whether `option` lets the expiry change.  No expiry (0) counts as infinitely late."""
    match option:
        case b"NX":
            return present_ms == 0
        case b"XX":
            return present_ms != 0
        case b"GT":
            return present_ms != 0 and wanted_ms > present_ms
        case _:
            return present_ms == 0 or wanted_ms < present_ms
