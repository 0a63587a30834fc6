"""The CLUSTER commands."""

from quorate.facts.keyspace import SLOT_COUNT, key_slot
from quorate_agent.resp.cluster_view import ClusterView
from quorate_agent.resp.reading.integers import parse_integer
from quorate_agent.resp.replies import NOT_AN_INTEGER, bulk, error, integer
from quorate_agent.resp.session import Session
from quorate_agent.resp.stepped import SlotCount, Stepped, begin

TABLES = (b"cluster|slots", b"cluster|shards", b"cluster|nodes")
"""Commands that say which node serves which slots."""

_BAD_SLOT = error(b"ERR Invalid slot")


def _view(session: Session) -> ClusterView:
    return session.agent.cluster(session.connection.external)


def slots(session: Session, args: list[bytes]) -> bytes:
    """CLUSTER SLOTS"""
    return _view(session).slots(session.connection.resp3)


def shards(session: Session, args: list[bytes]) -> bytes:
    """CLUSTER SHARDS"""
    return _view(session).shards(session.connection.resp3)


def nodes(session: Session, args: list[bytes]) -> bytes:
    """CLUSTER NODES"""
    return _view(session).node_lines(session.connection.resp3)


def info(session: Session, args: list[bytes]) -> bytes:
    """CLUSTER INFO"""
    slots_served = session.agent.slots_served(session.connection.external)
    return _view(session).info(slots_served, session.connection.resp3)


def my_id(session: Session, args: list[bytes]) -> bytes:
    """CLUSTER MYID"""
    return bulk(_view(session).me.id)


def slot_of_key(session: Session, args: list[bytes]) -> bytes:
    """CLUSTER KEYSLOT key"""
    return integer(key_slot(args[2]))


def slot_key_count(session: Session, args: list[bytes]) -> bytes | Stepped:
    """CLUSTER COUNTKEYSINSLOT slot"""
    slot = parse_integer(args[2])
    if slot is None:
        return NOT_AN_INTEGER
    if not 0 <= slot < SLOT_COUNT:
        return _BAD_SLOT
    return begin(SlotCount(session, slot))
