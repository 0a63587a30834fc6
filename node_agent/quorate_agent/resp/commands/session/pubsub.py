"""Publish/subscribe, limited: only agents publish, and only to channels with known names.

An unknown channel would be silent for ever, so subscribing to it is refused; clients have no
PUBLISH.  A subscriber to events gets the present state right behind the confirmation.
"""

from collections import Counter
from collections.abc import Iterator

from quorate_agent.resp.command import Command
from quorate_agent.resp.reading.glob import TOO_LONG, are_too_long, glob_matcher
from quorate_agent.resp.replies import (
    QUOTED_BYTES_MAX,
    array,
    bulk,
    bulks,
    error,
    integer,
    null,
    until_nul,
)
from quorate_agent.resp.session import Connection, Session

NAMESPACE = b"__quorate__:"
EVENTS = NAMESPACE + b"events"
INVALIDATIONS = b"__redis__:invalidate"  # for RESP2 clients to which other clients redirect
CHANNELS = (EVENTS, INVALIDATIONS)

SUBSCRIPTIONS_MAX = 256
"""Per connection: every message is sent once for each that matches."""

_TOO_MANY = error(b"ERR more than %d subscriptions in one connection" % SUBSCRIPTIONS_MAX)
_THERE = b", ".join(CHANNELS)
_ALLOWED = frozenset(
    (b"subscribe", b"unsubscribe", b"psubscribe", b"punsubscribe", b"ping", b"quit", b"reset")
)


def subscribe(session: Session, args: list[bytes]) -> bytes:
    """SUBSCRIBE channel …: all of them, or an error and none"""
    for name in args[1:]:
        if name not in CHANNELS:
            return error(b"ERR there is no channel '%b', there is: %b" % (_quoted(name), _THERE))
    return _subscribe(session, args, is_pattern=False)


def psubscribe(session: Session, args: list[bytes]) -> bytes:
    """PSUBSCRIBE pattern …: all of them, or an error and none"""
    known = {name for is_pattern, name in session.connection.subscribed if is_pattern}
    if len(known.union(args[1:])) > SUBSCRIPTIONS_MAX:
        return _TOO_MANY
    if are_too_long(known.union(args[1:])):
        return TOO_LONG
    for pattern in args[1:]:
        if not any(map(glob_matcher(pattern), CHANNELS)):
            return error(b"ERR no channel matches '%b', there is: %b" % (_quoted(pattern), _THERE))
    return _subscribe(session, args, is_pattern=True)


def unsubscribe(session: Session, args: list[bytes]) -> bytes:
    """UNSUBSCRIBE [channel …]"""
    return _unsubscribe(session.connection, args, is_pattern=False)


def punsubscribe(session: Session, args: list[bytes]) -> bytes:
    """PUNSUBSCRIBE [pattern …]"""
    return _unsubscribe(session.connection, args, is_pattern=True)


def channels(session: Session, args: list[bytes]) -> bytes:
    """PUBSUB CHANNELS [pattern]: the channels with subscribers by name on this agent"""
    if len(args) > 3:
        return _wrong_words(args)
    if are_too_long(args[2:]):
        return TOO_LONG
    matches = glob_matcher(args[2]) if len(args) == 3 else None
    found = dict.fromkeys(name for is_pattern, name in _subscriptions(session) if not is_pattern)
    return bulks([name for name in found if matches is None or matches(name)])


def subscriber_counts(session: Session, args: list[bytes]) -> bytes:
    """PUBSUB NUMSUB [channel …]"""
    counts = Counter(_subscriptions(session))
    return _counted(args[2:], [counts[False, name] for name in args[2:]])


def pattern_count(session: Session, args: list[bytes]) -> bytes:
    """PUBSUB NUMPAT: how many different patterns are subscribed to"""
    return integer(len({name for is_pattern, name in _subscriptions(session) if is_pattern}))


def shard_channels(session: Session, args: list[bytes]) -> bytes:
    """PUBSUB SHARDCHANNELS [pattern]: there are none"""
    return _wrong_words(args) if len(args) > 3 else array(())


def shard_subscriber_counts(session: Session, args: list[bytes]) -> bytes:
    """PUBSUB SHARDNUMSUB [channel …]: always 0"""
    return _counted(args[2:], [0] * len(args[2:]))


def _subscriptions(session: Session) -> Iterator[tuple[bool, bytes]]:
    for connection in session.agent.connections():
        yield from connection.subscribed


def _counted(names: list[bytes], counts: list[int]) -> bytes:
    pairs = zip(map(bulk, names), map(integer, counts), strict=True)
    return array([part for pair in pairs for part in pair])


def _wrong_words(args: list[bytes]) -> bytes:
    return error(
        b"ERR unknown subcommand or wrong number of arguments for '%b'. Try PUBSUB HELP."
        % _quoted(args[1])
    )


def messages(connection: Connection, channel: bytes, payload: bytes) -> bytes:
    """Return what the client is sent for a message to `channel`.

    As in Redis that is one frame for each of its subscriptions that match."""
    return b"".join(
        _message(connection, is_pattern, name, channel, payload)
        for is_pattern, name in connection.subscribed
        if _is_about(is_pattern, name, channel)
    )


def refused_while_subscribed(connection: Connection, command: Command) -> bytes:
    """Return why a subscribed client must not call this command; empty if it may.

    In RESP2 it could not tell replies from messages."""
    if connection.resp3 or command.name in _ALLOWED:
        return b""
    return error(
        b"ERR Can't execute '%b': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are"
        b" allowed in this context" % command.name
    )


def _subscribe(session: Session, args: list[bytes], is_pattern: bool) -> bytes:
    connection = session.connection
    frames: list[bytes] = []
    for name in args[1:]:
        connection.subscribed[is_pattern, name] = None
        frames.append(_confirmed(connection, args[0], bulk(name)))
    names = dict.fromkeys(args[1:])
    about = [name for name in names if _is_about(is_pattern, name, EVENTS)]
    state = session.agent.event_state() if about else b""
    told = [_message(connection, is_pattern, name, EVENTS, state) for name in about]
    return b"".join([*frames, *told])


def _unsubscribe(connection: Connection, args: list[bytes], is_pattern: bool) -> bytes:
    names = args[1:] or [name for kind, name in connection.subscribed if kind is is_pattern]
    if not names:
        return _confirmed(connection, args[0], null(connection.resp3))
    frames: list[bytes] = []
    for name in names:
        connection.subscribed.pop((is_pattern, name), None)
        frames.append(_confirmed(connection, args[0], bulk(name)))
    return b"".join(frames)


def _is_about(is_pattern: bool, name: bytes, channel: bytes) -> bool:
    """Return whether a subscription to `name` covers `channel`."""
    return bool(glob_matcher(name)(channel)) if is_pattern else name == channel


def _confirmed(connection: Connection, command: bytes, name: bytes) -> bytes:
    count = integer(len(connection.subscribed))
    return _frame(connection, bulk(command.lower()), name, count)


def _message(
    connection: Connection, is_pattern: bool, name: bytes, channel: bytes, payload: bytes
) -> bytes:
    if is_pattern:
        return _frame(connection, bulk(b"pmessage"), bulk(name), bulk(channel), bulk(payload))
    return _frame(connection, bulk(b"message"), bulk(channel), bulk(payload))


def _frame(connection: Connection, *parts: bytes) -> bytes:
    kind = b">" if connection.resp3 else b"*"
    return b"%b%d\r\n%b" % (kind, len(parts), b"".join(parts))


def _quoted(name: bytes) -> bytes:
    return until_nul(name)[:QUOTED_BYTES_MAX]
