"""CLIENT TRACKING, CACHING, TRACKINGINFO and GETREDIR, with the errors of Redis 7."""

from quorate_agent.resp.reading.integers import parse_integer
from quorate_agent.resp.replies import (
    NOT_AN_INTEGER,
    OK,
    SYNTAX_ERROR,
    bulk,
    bulks,
    error,
    integer,
    map_,
    set_,
    until_nul,
)
from quorate_agent.resp.session import Session
from quorate_agent.resp.tracking_mode import TrackingMode

_ONE_REDIRECTION = error(b"ERR A client can only redirect to a single other client")
_NO_SUCH_CLIENT = error(b"ERR The client ID you want redirect to does not exist")
PREFIXES_MAX = 256
"""Per connection: each is compared with each other, and with every key that it reads."""

PREFIXES_BYTES_MAX = 64 * 1024
"""Of all prefixes of a connection together: they are kept while it lasts."""

ZONE_PREFIXES_MAX = 10_000
"""Different prefixes of all connections to one zone here."""

ZONE_PREFIXES_BYTES_MAX = 1024 * 1024
"""Of these together.  So they have few lengths, and a written key is looked up for each length."""

_TOO_MANY_PREFIXES = error(b"ERR more than %d prefixes in one connection" % PREFIXES_MAX)
_TOO_LONG_PREFIXES = error(
    b"ERR prefixes of more than %d bytes in one connection" % PREFIXES_BYTES_MAX
)
_TOO_MANY_IN_ZONE = error(
    b"ERR more than %d different prefixes, or %d bytes of them, in all connections to this agent"
    % (ZONE_PREFIXES_MAX, ZONE_PREFIXES_BYTES_MAX)
)
_PREFIX_ALONE = error(b"ERR PREFIX option requires BCAST mode to be enabled")
_BROADCAST_SWITCHED = error(
    b"ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then"
    b" re-enabling it with a different mode."
)
_BROADCAST_CHOOSES = error(b"ERR OPTIN and OPTOUT are not compatible with BCAST")
_BOTH_CHOICES = error(b"ERR You can't specify both OPTIN mode and OPTOUT mode")
_CHOICE_SWITCHED = error(
    b"ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then"
    b" re-enabling it with a different mode."
)
_NOT_FORWARDED = error(
    b"ERR another agent executes this transaction: send CLIENT TRACKING outside of it"
)
_NOT_TRACKING = error(
    b"ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or"
    b" OPTOUT mode enabled"
)
_YES_WITHOUT_OPTIN = error(
    b"ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."
)
_NO_WITHOUT_OPTOUT = error(
    b"ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."
)


def client_tracking(session: Session, args: list[bytes]) -> bytes:
    """CLIENT TRACKING ON | OFF [REDIRECT id] [PREFIX prefix …] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]"""
    connection = session.connection
    if connection.is_agents:
        return _NOT_FORWARDED
    asked = _options(session, args[3:])
    if isinstance(asked, bytes):
        return asked
    word = args[2].upper()
    if word == b"OFF":
        connection.tracking = None
        return OK
    if word != b"ON":
        return SYNTAX_ERROR
    refused = _refused(asked, connection.tracking)
    if refused:
        return refused
    if asked.broadcast:
        before = connection.tracking.prefixes if connection.tracking is not None else []
        asked.prefixes = [*before, *(asked.prefixes or [b""][: b"" not in before])]
        if not session.agent.may_broadcast(asked.prefixes):
            return _TOO_MANY_IN_ZONE
    connection.tracking = asked
    session.agent.tracks(connection)
    return OK


def _options(session: Session, words: list[bytes]) -> TrackingMode | bytes:
    """Return the options, or the error reply."""
    asked = TrackingMode()
    at = 0
    while at < len(words):
        option, has_value = words[at].upper(), at + 1 < len(words)
        if option == b"REDIRECT" and has_value:
            at += 1
            if asked.redirect:
                return _ONE_REDIRECTION
            number = parse_integer(words[at])
            if number is None:
                return NOT_AN_INTEGER
            if all(other.id != number for other in session.agent.connections()):
                return _NO_SUCH_CLIENT
            asked.redirect = number
        elif option == b"PREFIX" and has_value:
            at += 1
            asked.prefixes.append(words[at])
        elif option == b"BCAST":
            asked.broadcast = True
        elif option == b"OPTIN":
            asked.optin = True
        elif option == b"OPTOUT":
            asked.optout = True
        elif option == b"NOLOOP":
            asked.noloop = True
        else:
            return SYNTAX_ERROR
        at += 1
    return asked


def _refused(asked: TrackingMode, before: TrackingMode | None) -> bytes:
    """Return why these options conflict, with each other or with those `before`; empty if they do
    not."""
    if asked.prefixes and not asked.broadcast:
        return _PREFIX_ALONE
    if before is not None and before.broadcast is not asked.broadcast:
        return _BROADCAST_SWITCHED
    if asked.broadcast and (asked.optin or asked.optout):
        return _BROADCAST_CHOOSES
    if asked.optin and asked.optout:
        return _BOTH_CHOICES
    if before is not None and ((asked.optin and before.optout) or (asked.optout and before.optin)):
        return _CHOICE_SWITCHED
    known = before.prefixes if before is not None else []
    if len(asked.prefixes) + len(known) > PREFIXES_MAX:
        return _TOO_MANY_PREFIXES
    if sum(map(len, asked.prefixes + known)) > PREFIXES_BYTES_MAX:
        return _TOO_LONG_PREFIXES
    return _overlap(asked.prefixes, known)


def _overlap(prefixes: list[bytes], known: list[bytes]) -> bytes:
    """Return why these prefixes overlap with each other or with the `known` ones; empty if they do
    not.

    Redis 7.0 finds the same overlaps, but for all but the first prefix it goes on and answers
    twice."""
    for at, prefix in enumerate(prefixes):
        others = [(b"an existing", other) for other in known]
        others += [(b"another provided", other) for other in prefixes[at + 1 :]]
        for kind, other in others:
            if prefix.startswith(other) or other.startswith(prefix):
                return error(
                    b"ERR Prefix '%b' overlaps with %b prefix '%b'. Prefixes for a single client"
                    b" must not overlap." % (until_nul(prefix), kind, until_nul(other))
                )
    return b""


def client_caching(session: Session, args: list[bytes]) -> bytes:
    """CLIENT CACHING YES | NO: applies to the next command"""
    mode, word = session.connection.tracking, args[2].upper()
    if mode is None:
        return _NOT_TRACKING
    if word not in (b"YES", b"NO"):
        return SYNTAX_ERROR
    if word == b"YES" and not mode.optin:
        return _YES_WITHOUT_OPTIN
    if word == b"NO" and not mode.optout:
        return _NO_WITHOUT_OPTOUT
    mode.caching = True
    return OK


def client_get_redirection(session: Session, args: list[bytes]) -> bytes:
    """CLIENT GETREDIR: the client that gets the invalidations; 0: itself, -1: it does not track"""
    mode = session.connection.tracking
    return integer(-1 if mode is None else mode.redirect)


def client_tracking_info(session: Session, args: list[bytes]) -> bytes:
    """CLIENT TRACKINGINFO"""
    mode, resp3 = session.connection.tracking, session.connection.resp3
    redirect = -1 if mode is None else mode.redirect
    prefixes = [] if mode is None else sorted(mode.prefixes)
    return map_(
        (
            (bulk(b"flags"), set_([bulk(flag) for flag in _flags(mode)], resp3)),
            (bulk(b"redirect"), integer(redirect)),
            (bulk(b"prefixes"), bulks(prefixes)),
        ),
        resp3,
    )


def _flags(mode: TrackingMode | None) -> list[bytes]:
    if mode is None:
        return [b"off"]
    shown = (
        (True, b"on"),
        (mode.broadcast, b"bcast"),
        (mode.optin, b"optin"),
        (mode.optin and mode.caching, b"caching-yes"),
        (mode.optout, b"optout"),
        (mode.optout and mode.caching, b"caching-no"),
        (mode.noloop, b"noloop"),
        (mode.is_broken, b"broken_redirect"),
    )
    return [name for is_set, name in shown if is_set]
