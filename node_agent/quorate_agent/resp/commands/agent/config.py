"""CONFIG: the settings that clients and benchmark tools ask for, in the terms of Redis.

Those of the slow log can be set, for the connection's zone on this agent, until its process ends.
"""

from collections.abc import Callable, Mapping

from quorate_agent.resp.reading.glob import TOO_LONG, are_too_long, glob_matcher
from quorate_agent.resp.reading.integers import INTEGER_MAX, parse_integer
from quorate_agent.resp.replies import OK, SYNTAX_ERROR, VALUE_BYTES_MAX, bulk, error, map_
from quorate_agent.resp.session import AgentServices, Session
from quorate_agent.resp.slow_log import ENTRIES_MAX, SlowLog

APPEND_ONLY = b"appendonly"
SLOWER_THAN = b"slowlog-log-slower-than"
LOG_LENGTH = b"slowlog-max-len"

_FIXED: Mapping[bytes, bytes] = {
    b"cluster-enabled": b"yes",
    b"databases": b"1",
    b"maxmemory-policy": b"noeviction",
    b"proto-max-bulk-len": b"%d" % VALUE_BYTES_MAX,
    b"save": b"",
}
_RANGES = {SLOWER_THAN: (-1, INTEGER_MAX), LOG_LENGTH: (0, ENTRIES_MAX)}


def get(session: Session, args: list[bytes]) -> bytes:
    """CONFIG GET pattern [pattern …]: a plain name is returned in its spelling"""
    if are_too_long(args[2:]):
        return TOO_LONG
    values = _values(session.agent)
    found: dict[bytes, bytes] = {}  # setting -> the name to show
    for pattern in args[2:]:
        if any(char in b"*?[" for char in pattern):
            matches = glob_matcher(pattern, ignore_case=True)
            for name in values:
                if matches(name):
                    found.setdefault(name, name)
        elif pattern.lower() in values:
            found.setdefault(pattern.lower(), pattern)
    shown = [(bulk(name), bulk(values[setting])) for setting, name in found.items()]
    return map_(shown, session.connection.resp3)


def set_(session: Session, args: list[bytes]) -> bytes:
    """CONFIG SET setting value [setting value …]: all of them or none"""
    if len(args) % 2:
        return SYNTAX_ERROR
    known = _values(session.agent)
    wanted: dict[bytes, int] = {}
    for name in args[2::2]:
        setting = name.lower()
        if setting not in known:
            return error(b"ERR Unknown option or number of arguments for CONFIG SET - '%b'" % name)
        if setting not in _RANGES:
            return _failed(name, b"can't set immutable config")
        if setting in wanted:
            return _failed(name, b"duplicate parameter")
        wanted[setting] = 0
    for name, text in zip(args[2::2], args[3::2], strict=True):
        lowest, highest = _RANGES[name.lower()]
        number = parse_integer(text)
        if number is None:
            return _failed(name, b"argument couldn't be parsed into an integer")
        if not lowest <= number <= highest:
            bounds = (lowest, highest)
            return _failed(name, b"argument must be between %d and %d inclusive" % bounds)
        wanted[name.lower()] = number
    for setting, number in wanted.items():
        _SETTERS[setting](session.agent.slow_log, number)
    return OK


def _values(agent: AgentServices) -> dict[bytes, bytes]:
    log = agent.slow_log
    return {
        APPEND_ONLY: b"yes" if agent.is_persistent() else b"no",
        **_FIXED,
        SLOWER_THAN: b"%d" % log.slower_than_us,
        LOG_LENGTH: b"%d" % log.entries_max,
    }


def _failed(name: bytes, why: bytes) -> bytes:
    about = b"ERR CONFIG SET failed (possibly related to argument '%b') - %b"
    return error(about % (name, why))


def _set_length(log: SlowLog, number: int) -> None:
    log.entries_max = number


_SETTERS: Mapping[bytes, Callable[[SlowLog, int], None]] = {
    SLOWER_THAN: SlowLog.log_slower_than,
    LOG_LENGTH: _set_length,
}
