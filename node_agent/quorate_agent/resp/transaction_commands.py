"""What MULTI, EXEC, DISCARD, WATCH and UNWATCH do."""

from functools import partial

from quorate_agent.resp.replies import OK, array, error
from quorate_agent.resp.scan_command import run_inside
from quorate_agent.resp.session import Session
from quorate_agent.resp.transaction import Call, Execution, Transaction, watch_call

_NESTED = error(b"ERR MULTI calls can not be nested")
_EXEC_ALONE = error(b"ERR EXEC without MULTI")
_DISCARD_ALONE = error(b"ERR DISCARD without MULTI")
_WATCH_INSIDE = error(b"ERR WATCH inside MULTI is not allowed")
_ABORTED = error(b"EXECABORT Transaction discarded because of previous errors.")


def multi(session: Session, args: list[bytes]) -> bytes:
    """MULTI"""
    connection = session.connection
    if connection.transaction is not None:
        return _NESTED
    connection.transaction = Transaction()
    return OK


def execute(session: Session, args: list[bytes]) -> bytes | Call:
    """EXEC: the queued commands of one slot as one update"""
    connection = session.connection
    transaction, watched = connection.transaction, connection.watched
    if transaction is None:
        return _EXEC_ALONE
    connection.transaction, connection.watched = None, {}
    connection.watch_moved = False
    if transaction.refused:
        return _ABORTED

    run_plain = partial(run_inside, session)
    call = Execution(transaction.commands, watched, run_plain).call()
    if len(call.args) > 1:
        return call
    return array([run_plain(command, words) for command, words in transaction.commands])


def discard(session: Session, args: list[bytes]) -> bytes:
    """DISCARD"""
    connection = session.connection
    if connection.transaction is None:
        return _DISCARD_ALONE
    connection.transaction, connection.watched = None, {}
    connection.watch_moved = False
    return OK


def watch(session: Session, args: list[bytes]) -> bytes | Call:
    """WATCH key …: EXEC runs only if their rows are still the same"""
    connection = session.connection
    if connection.transaction is not None:
        return _WATCH_INSIDE
    return watch_call(args[1:], connection.watched)


def unwatch(session: Session, args: list[bytes]) -> bytes:
    """UNWATCH"""
    session.connection.watched = {}
    session.connection.watch_moved = False
    return OK
