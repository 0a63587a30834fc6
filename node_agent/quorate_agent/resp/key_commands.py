"""What the commands do that concern a key whatever it holds: DEL, EXISTS, TYPE and expiry."""

from quorate_agent.resp.integers import expiry_ms, parse_integer
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
_STRING = b"+string\r\n"
_NONE = b"+none\r\n"
_NX_EXCLUDES = error(
    b"ERR NX and XX, GT or LT options at the same time are not compatible",
)
_GT_EXCLUDES_LT = error(b"ERR GT and LT options at the same time are not compatible")


def delete(view: KeyView, args: list[bytes]) -> bytes:
    """DEL key [key …], UNLINK key [key …]: how many there were"""
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
    """EXISTS key [key …]: a key named twice counts twice"""
    return integer(sum([view.get(key) is not None for key in args[1:]]))


def type_of(view: KeyView, args: list[bytes]) -> bytes:
    """TYPE key"""
    return _NONE if view.get(args[1]) is None else _STRING


def expire(view: KeyView, args: list[bytes]) -> bytes:
    """EXPIRE key seconds [NX | XX | GT | LT]"""
    return _expire(view, args, 1000, b"expire")


def expire_ms(view: KeyView, args: list[bytes]) -> bytes:
    """PEXPIRE key milliseconds [NX | XX | GT | LT]"""
    return _expire(view, args, 1, b"pexpire")


def time_to_live(view: KeyView, args: list[bytes]) -> bytes:
    """TTL key: seconds, rounded"""
    row = view.get(args[1])
    if row is None:
        return _NO_KEY
    if not row.expires_at:
        return _NO_EXPIRY
    return integer((max(row.expires_at - view.now_ms, 0) + 500) // 1000)


def time_to_live_ms(view: KeyView, args: list[bytes]) -> bytes:
    """PTTL key"""
    row = view.get(args[1])
    if row is None:
        return _NO_KEY
    if not row.expires_at:
        return _NO_EXPIRY
    return integer(max(row.expires_at - view.now_ms, 0))


def persist(view: KeyView, args: list[bytes]) -> bytes:
    """PERSIST key: 1 when there was a time to live"""
    row = view.get(args[1])
    if row is None or row.value is None or not row.expires_at:
        return ZERO
    view.put(args[1], row.value, 0)
    return ONE


def _expire(view: KeyView, args: list[bytes], unit_ms: int, name: bytes) -> bytes:
    # The order of the checks is Redis': it decides which of several errors a client sees.
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
    at_ms = expiry_ms(amount, unit_ms, view.now_ms)
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
    """Whether `option` lets the expiry change.  No expiry (0) counts as infinitely late."""
    match option:
        case b"NX":
            return present_ms == 0
        case b"XX":
            return present_ms != 0
        case b"GT":
            return present_ms != 0 and wanted_ms > present_ms
        case _:
            return present_ms == 0 or wanted_ms < present_ms
