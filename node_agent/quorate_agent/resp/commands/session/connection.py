"""The commands that concern the connection itself: PING, HELLO, CLIENT and similar ones."""

from quorate_agent.resp.reading.integers import parse_integer
from quorate_agent.resp.replies import (
    NOT_AN_INTEGER,
    OK,
    PONG,
    SYNTAX_ERROR,
    array,
    bulk,
    error,
    integer,
    map_,
    null,
    simple,
    until_nul,
    verbatim,
    wrong_arity,
)
from quorate_agent.resp.session import Connection, Session

# Clients decide by the version what they may send.  We speak Redis 7.0, but redis-py and Jedis
# cache only replies of servers from 7.4 on.
SERVED_VERSION = b"7.4.0"
NAME_BYTES_MAX = 1024

_BAD_NAME = error(b"ERR Client names cannot contain spaces, newlines or special characters.")
_BAD_VERSION = error(b"ERR Protocol version is not an integer or out of range")
_NO_PROTOCOL = error(b"NOPROTO unsupported protocol version")
_ONE_DATABASE = error(b"ERR SELECT is not allowed in cluster mode")
_DATABASE_MIN, _DATABASE_MAX = -(2**31), 2**31 - 1
_DATABASE_OUT_OF_RANGE = error(
    b"ERR value is out of range, value must between %d and %d" % (_DATABASE_MIN, _DATABASE_MAX)
)
_BAD_CLIENT_ID = error(b"ERR Invalid client ID")
_WRONG_PASSWORD = error(b"WRONGPASS invalid username-password pair or user is disabled.")
_MAINTENANCE_IN_RESP2 = error(b"ERR MAINT_NOTIFICATIONS are pushes: send HELLO 3 first")
_ENDPOINT_TYPES = (b"internal-ip", b"internal-fqdn", b"external-ip", b"external-fqdn", b"none")
_CLIENT_TYPES = (b"normal", b"master", b"replica", b"slave", b"pubsub")


def ping(session: Session, args: list[bytes]) -> bytes:
    """PING [message]"""
    if len(args) > 2:
        return wrong_arity(b"ping")
    if session.connection.subscribed and not session.connection.resp3:
        return array((bulk(b"pong"), bulk(b"".join(args[1:]))))
    return PONG if len(args) == 1 else bulk(args[1])


def echo(session: Session, args: list[bytes]) -> bytes:
    """ECHO message"""
    return bulk(args[1])


def quit_(session: Session, args: list[bytes]) -> bytes:
    """QUIT"""
    session.connection.closing = True
    return OK


def hello(session: Session, args: list[bytes]) -> bytes:
    """HELLO [2 | 3 [AUTH user password] [SETNAME name]]

    As in Redis, an error in a later option undoes the version but not the name.
    """
    connection = session.connection
    resp3 = connection.resp3
    if len(args) > 1:
        version = parse_integer(args[1])
        if version is None:
            return _BAD_VERSION
        if version not in (2, 3):
            return _NO_PROTOCOL
        resp3 = version == 3
        at = 2
        while at < len(args):
            option = args[at].upper()
            more = len(args) - at - 1
            if option == b"AUTH" and more >= 2:
                # There is one user, without a password; any password is accepted, as in Redis.
                if args[at + 1] != b"default":
                    return _WRONG_PASSWORD
                at += 3
            elif option == b"SETNAME" and more >= 1:
                if not _is_name(args[at + 1]):
                    return _BAD_NAME
                connection.name = args[at + 1]
                at += 2
            else:
                option = until_nul(args[at])
                return error(b"ERR Syntax error in HELLO option '%b'" % option)
    connection.resp3 = resp3
    return map_(
        (
            (bulk(b"server"), bulk(b"redis")),
            (bulk(b"version"), bulk(SERVED_VERSION)),
            (bulk(b"proto"), integer(3 if resp3 else 2)),
            (bulk(b"id"), integer(connection.id)),
            (bulk(b"mode"), bulk(b"cluster")),
            (bulk(b"role"), bulk(b"master")),
            (bulk(b"modules"), array(())),
        ),
        resp3,
    )


def reset(session: Session, args: list[bytes]) -> bytes:
    """RESET: the connection is as it was when it was opened"""
    connection = session.connection
    connection.resp3 = False
    connection.readonly = False
    connection.maintenance = False
    connection.tracking = None
    connection.name = b""
    connection.subscribed.clear()
    connection.end_transaction()
    return simple(b"RESET")


def select(session: Session, args: list[bytes]) -> bytes:
    """SELECT 0"""
    database = parse_integer(args[1])
    if database is None:
        return NOT_AN_INTEGER
    if not _DATABASE_MIN <= database <= _DATABASE_MAX:
        return _DATABASE_OUT_OF_RANGE
    return OK if database == 0 else _ONE_DATABASE


def readonly(session: Session, args: list[bytes]) -> bytes:
    """READONLY: reads may be answered from a copy that is not the primary's"""
    session.connection.readonly = True
    return OK


def readwrite(session: Session, args: list[bytes]) -> bytes:
    """READWRITE"""
    session.connection.readonly = False
    return OK


def client_id(session: Session, args: list[bytes]) -> bytes:
    """CLIENT ID"""
    return integer(session.connection.id)


def client_set_name(session: Session, args: list[bytes]) -> bytes:
    """CLIENT SETNAME name"""
    if not _is_name(args[2]):
        return _BAD_NAME
    session.connection.name = args[2]
    return OK


def client_get_name(session: Session, args: list[bytes]) -> bytes:
    """CLIENT GETNAME"""
    name = session.connection.name
    return bulk(name) if name else null(session.connection.resp3)


def client_set_info(session: Session, args: list[bytes]) -> bytes:
    """CLIENT SETINFO LIB-NAME | LIB-VER text"""
    field = args[2].upper()
    if field not in (b"LIB-NAME", b"LIB-VER"):
        return error(b"ERR Unrecognized option '%b'" % until_nul(args[2]))
    if not _is_name(args[3]):
        field = b"lib-name" if field == b"LIB-NAME" else b"lib-ver"
        return error(b"ERR %b cannot contain spaces, newlines or special characters." % field)
    if field == b"LIB-NAME":
        session.connection.lib_name = args[3]
    else:
        session.connection.lib_version = args[3]
    return OK


def client_maintenance(session: Session, args: list[bytes]) -> bytes:
    """CLIENT MAINT_NOTIFICATIONS ON [MOVING-ENDPOINT-TYPE type] | OFF

    The endpoint type is checked but not used: there is one address per agent.
    """
    connection = session.connection
    word = args[2].upper()
    options = args[3:]
    if word == b"OFF" and not options:
        connection.maintenance = False
        return OK
    if word != b"ON" or len(options) not in (0, 2):
        return SYNTAX_ERROR
    if options and options[0].upper() != b"MOVING-ENDPOINT-TYPE":
        return SYNTAX_ERROR
    if options and options[1].lower() not in _ENDPOINT_TYPES:
        return error(b"ERR Unknown endpoint type '%b'" % until_nul(options[1]))
    if not connection.resp3:
        return _MAINTENANCE_IN_RESP2
    connection.maintenance = True
    return OK


def client_info(session: Session, args: list[bytes]) -> bytes:
    """CLIENT INFO"""
    connection = session.connection
    line = _client_line(connection, session.agent.now_us() // 1000)
    return verbatim(line, connection.resp3)


def client_list(session: Session, args: list[bytes]) -> bytes:
    """CLIENT LIST [TYPE type] | [ID id …]"""
    connections = sorted(session.agent.connections(), key=lambda connection: connection.id)
    if len(args) == 4 and args[2].upper() == b"TYPE":
        wanted = args[3].lower()
        if wanted not in _CLIENT_TYPES:
            return error(b"ERR Unknown client type '%b'" % until_nul(args[3]))
        if wanted == b"pubsub":
            connections = [connection for connection in connections if connection.subscribed]
        elif wanted == b"normal":
            connections = [connection for connection in connections if not connection.subscribed]
        else:
            connections = []
    elif len(args) > 3 and args[2].upper() == b"ID":
        by_id = {connection.id: connection for connection in connections}
        ids = [parse_integer(argument) for argument in args[3:]]
        if None in ids:
            return _BAD_CLIENT_ID
        connections = [by_id[id] for id in ids if id is not None and id in by_id]
    elif len(args) != 2:
        return SYNTAX_ERROR
    now_ms = session.agent.now_us() // 1000
    lines = [_client_line(connection, now_ms) for connection in connections]
    return verbatim(b"".join(lines), session.connection.resp3)


def _is_name(text: bytes) -> bool:
    return len(text) <= NAME_BYTES_MAX and all(33 <= char <= 126 for char in text)


def _client_line(connection: Connection, now_ms: int) -> bytes:
    transaction, mode = connection.transaction, connection.tracking
    flags = b"".join(
        (
            b"P" if connection.subscribed else b"",
            b"x" if transaction is not None else b"",
            b"t" if mode is not None else b"",
            b"R" if mode is not None and mode.is_broken else b"",
            b"B" if mode is not None and mode.broadcast else b"",
            b"r" if connection.readonly else b"",
        )
    )
    fields = (
        (b"id", connection.id),
        (b"addr", connection.addr),
        (b"laddr", connection.laddr),
        (b"fd", -1),
        (b"name", connection.name),
        (b"age", max(now_ms - connection.created_ms, 0) // 1000),
        (b"idle", max(now_ms - connection.last_ms, 0) // 1000),
        (b"flags", flags or b"N"),
        (b"db", 0),
        (b"sub", sum(not is_pattern for is_pattern, _ in connection.subscribed)),
        (b"psub", sum(is_pattern for is_pattern, _ in connection.subscribed)),
        (b"ssub", 0),
        (b"multi", -1 if transaction is None else len(transaction.commands)),
        (b"cmd", b"NULL"),  # as Redis shows it before the first command: the last is not kept
        (b"user", b"default"),
        (b"redir", -1 if mode is None else mode.redirect),
        (b"resp", 3 if connection.resp3 else 2),
        (b"lib-name", connection.lib_name),
        (b"lib-ver", connection.lib_version),
    )
    shown = [
        b"%b=%b" % (name, value if isinstance(value, bytes) else str(value).encode())
        for name, value in fields
    ]
    return b" ".join(shown) + b"\n"
