"""SLOWLOG: shows and clears the slow log of the agent that is asked, of the connection's zone."""

from itertools import islice

from quorate_agent.resp.reading.integers import parse_integer
from quorate_agent.resp.replies import OK, array, error, integer, simple
from quorate_agent.resp.session import Session

SHOWN = 10
"""Entries that SLOWLOG GET shows unless told otherwise."""

_BAD_COUNT = error(b"ERR count should be greater than or equal to -1")
_HELP = (
    b"SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    b"GET [<count>]",
    b"    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
    b"    Entries are made of:",
    b"    id, timestamp, time in microseconds, arguments array, client IP and port,",
    b"    client name",
    b"LEN",
    b"    Return the length of the slowlog.",
    b"RESET",
    b"    Reset the slowlog.",
    b"HELP",
    b"    Prints this help.",
)


def get(session: Session, args: list[bytes]) -> bytes:
    """SLOWLOG GET [count]: the newest entries; -1: all"""
    if len(args) > 3:
        return error(
            b"ERR unknown subcommand or wrong number of arguments for '%b'. Try SLOWLOG HELP."
            % args[1][:128]
        )
    count = SHOWN if len(args) == 2 else parse_integer(args[2])
    if count is None or count < -1:
        return _BAD_COUNT
    entries = session.agent.slow_log.entries
    shown = islice(entries, len(entries) if count < 0 else count)
    return array([entry.reply() for entry in shown])


def length(session: Session, args: list[bytes]) -> bytes:
    """SLOWLOG LEN"""
    return integer(len(session.agent.slow_log.entries))


def reset(session: Session, args: list[bytes]) -> bytes:
    """SLOWLOG RESET"""
    session.agent.slow_log.entries.clear()
    return OK


def help_(session: Session, args: list[bytes]) -> bytes:
    """SLOWLOG HELP"""
    return array(list(map(simple, _HELP)))
