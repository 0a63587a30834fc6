"""What the CLUSTER commands answer, and how many keys a slot has."""

from quorate.facts.keyspace import SLOT_COUNT, key_slot
from quorate_agent.resp.integers import parse_integer
from quorate_agent.resp.replies import NOT_AN_INTEGER, bulk, error, integer
from quorate_agent.resp.session import Session

TABLES = (b"cluster|slots", b"cluster|shards", b"cluster|nodes")
"""Commands that say who serves which slots."""

_BAD_SLOT = error(b"ERR Invalid slot")


def slots(session: Session, args: list[bytes]) -> bytes:
    """CLUSTER SLOTS"""
    return session.agent.cluster().slots(session.connection.resp3)


def shards(session: Session, args: list[bytes]) -> bytes:
    """CLUSTER SHARDS"""
    return session.agent.cluster().shards(session.connection.resp3)


def nodes(session: Session, args: list[bytes]) -> bytes:
    """CLUSTER NODES"""
    return session.agent.cluster().node_lines(session.connection.resp3)


def info(session: Session, args: list[bytes]) -> bytes:
    """CLUSTER INFO"""
    return session.agent.cluster().info(session.connection.resp3)


def my_id(session: Session, args: list[bytes]) -> bytes:
    """CLUSTER MYID"""
    return bulk(session.agent.cluster().me.id)


def slot_of_key(session: Session, args: list[bytes]) -> bytes:
    """CLUSTER KEYSLOT key"""
    return integer(key_slot(args[2]))


def slot_key_count(session: Session, args: list[bytes]) -> bytes:
    """CLUSTER COUNTKEYSINSLOT slot"""
    slot = parse_integer(args[2])
    if slot is None:
        return NOT_AN_INTEGER
    if not 0 <= slot < SLOT_COUNT:
        return _BAD_SLOT
    return integer(session.agent.slot_key_count(slot))
