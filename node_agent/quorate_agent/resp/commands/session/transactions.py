"""MULTI, EXEC, DISCARD, WATCH and UNWATCH."""

from quorate.facts.keyspace import RESERVED, key_slot
from quorate_agent.resp.commands.keyspace.scan import InTransaction
from quorate_agent.resp.replies import OK, error
from quorate_agent.resp.session import Session
from quorate_agent.resp.transaction import Call, Execution, Transaction, Watching

WATCHED_BYTES_MAX = 1024 * 1024
"""Watched keys are sent along with the commands to the agent that executes them."""

_WATCHES_TOO_MUCH = error(b"ERR watched keys of more than %d bytes" % WATCHED_BYTES_MAX)
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
    first = next(iter(connection.watched), None)
    connection.transaction = Transaction(-1 if first is None else key_slot(first))
    return OK


def execute(session: Session, args: list[bytes]) -> bytes | Call:
    """EXEC: the queued commands, all or nothing"""
    connection = session.connection
    transaction, watched = connection.transaction, connection.watched
    if transaction is None:
        return _EXEC_ALONE
    is_refused = transaction.refused or bool(connection.unwatched)
    connection.end_transaction()
    if is_refused:
        return _ABORTED

    execution = Execution(transaction.commands, watched, InTransaction(session))
    call = execution.call()
    return call if len(call.args) > 1 else execution.without_keys()


def discard(session: Session, args: list[bytes]) -> bytes:
    """DISCARD"""
    connection = session.connection
    if connection.transaction is None:
        return _DISCARD_ALONE
    connection.end_transaction()
    return OK


def watch(session: Session, args: list[bytes]) -> bytes | Call:
    """WATCH key …: EXEC runs only if the rows of these keys have not changed"""
    connection = session.connection
    if connection.transaction is not None:
        return _WATCH_INSIDE
    watched, unwatched = connection.watched, connection.unwatched
    if sum(map(len, [*watched, *unwatched, *args])) > WATCHED_BYTES_MAX:
        unwatched.add(RESERVED)  # stands for all of them: it is short, and no WATCH can name it
        return _WATCHES_TOO_MUCH
    keys = args[1:]
    unwatched.update([key for key in keys if key not in watched])  # until it is executed
    return Watching(watched, unwatched).call(keys)


def unwatch(session: Session, args: list[bytes]) -> bytes:
    """UNWATCH"""
    session.connection.unwatch()
    return OK
