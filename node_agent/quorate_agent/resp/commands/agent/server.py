"""The commands that ask about or act on the whole agent: INFO, DBSIZE, WAIT …"""

from quorate_agent.resp.commands.session.connection import SERVED_VERSION
from quorate_agent.resp.reading.glob import TOO_LONG, are_too_long, glob_matcher, glob_weight
from quorate_agent.resp.reading.integers import parse_integer
from quorate_agent.resp.replies import (
    NOT_AN_INTEGER,
    SYNTAX_ERROR,
    bulks,
    error,
    integer,
    null,
    verbatim,
)
from quorate_agent.resp.session import KeysRequest, Session, WaitRequest
from quorate_agent.resp.stepped import RandomKey, Stepped, begin

_NEGATIVE_TIMEOUT = error(b"ERR timeout is negative")
_TIMEOUT_NOT_AN_INTEGER = error(b"ERR timeout is not an integer or out of range")

# Sections that INFO shows by default, in this order; the agent may add others.
_SECTIONS = ("Server", "Clients", "Memory", "Persistence", "Stats", "Replication", "CPU", "Cluster")
_ALL_SECTIONS = (b"all", b"default", b"everything")


def info(session: Session, args: list[bytes]) -> bytes:
    """INFO [section …]"""
    agent = session.agent
    sections: dict[str, dict[str, str | int]] = {title: {} for title in _SECTIONS}
    sections["Server"] |= {
        "redis_version": SERVED_VERSION.decode(),
        "redis_mode": "cluster",
        "tcp_port": agent.cluster(session.connection.external).me.port,
        "server_time_usec": agent.now_us(),
    }
    connections = list(agent.connections())
    names = {name for each in connections for name in each.subscribed}  # (is a pattern, name)
    sections["Clients"]["connected_clients"] = len(connections)
    sections["Persistence"] |= {"loading": 0, "async_loading": 0}
    sections["Stats"] |= {
        "rejected_connections": 0,
        "evicted_keys": 0,
        "evicted_clients": 0,
        "pubsub_channels": sum(not is_pattern for is_pattern, _ in names),
        "pubsub_patterns": sum(is_pattern for is_pattern, _ in names),
        "pubsubshard_channels": 0,
        "latest_fork_usec": 0,
        "total_forks": 0,
    }
    sections["Replication"] |= {"role": "master", "connected_slaves": 0}
    sections["Cluster"]["cluster_enabled"] = 1
    for title, lines in agent.info().items():
        sections[title] = sections.get(title, {}) | dict(lines)
    keys, (expires, left_ms) = agent.key_count(), agent.expiring()
    shown_keys = f"keys={keys},expires={expires},avg_ttl={left_ms}"
    sections["Keyspace"] = {"db0": shown_keys} if keys else {}
    wanted = {argument.lower() for argument in args[1:]}
    shown = [
        f"# {title}\r\n" + "".join(f"{name}:{value}\r\n" for name, value in lines.items())
        for title, lines in sections.items()
        if not wanted or wanted.intersection((title.lower().encode(), *_ALL_SECTIONS))
    ]
    return verbatim("\r\n".join(shown).encode(), session.connection.resp3)


def time(session: Session, args: list[bytes]) -> bytes:
    """TIME: seconds and microseconds"""
    seconds, micros = divmod(session.agent.now_us(), 1_000_000)
    return bulks((b"%d" % seconds, b"%d" % micros))


def key_count(session: Session, args: list[bytes]) -> bytes:
    """DBSIZE"""
    return integer(session.agent.key_count())


def wait(session: Session, args: list[bytes]) -> WaitRequest | bytes:
    """WAIT copies milliseconds"""
    copies = parse_integer(args[1])
    if copies is None:
        return NOT_AN_INTEGER
    timeout_ms = parse_integer(args[2])
    if timeout_ms is None:
        return _TIMEOUT_NOT_AN_INTEGER
    if timeout_ms < 0:
        return _NEGATIVE_TIMEOUT
    return WaitRequest(copies, timeout_ms)


def flush(session: Session, args: list[bytes]) -> bytes | None:
    """FLUSHALL, FLUSHDB [SYNC | ASYNC]: None if the agent is to do it, else an error"""
    if len(args) > 2 or (len(args) == 2 and args[1].upper() not in (b"SYNC", b"ASYNC")):
        return SYNTAX_ERROR
    return None


def list_keys(session: Session, args: list[bytes]) -> KeysRequest | bytes:
    """KEYS pattern"""
    pattern = args[1]
    if are_too_long([pattern]):
        return TOO_LONG
    matches = None if pattern == b"*" else glob_matcher(pattern)
    return KeysRequest(matches, glob_weight(pattern))


def random_key(session: Session, args: list[bytes]) -> bytes | Stepped:
    """RANDOMKEY: one of the first keys of a random partition, not drawn evenly"""
    if not session.agent.key_count():
        return null(session.connection.resp3)
    return begin(RandomKey(session))
