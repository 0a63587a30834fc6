"""SCAN: a page of the keys that were this agent's when the scan began.

A scan that began at an earlier process continues with all keys from its cursor on.  A partition
that another agent has taken over since is scanned there: that part of the scan becomes a command of
the partition, which is forwarded, or waits for a primary, like any other.  Source:
docs/protocol.md, section 8.
"""

from collections.abc import Sequence
from functools import cache
from itertools import count
from typing import Any

from quorate.facts.keyspace import key_partition
from quorate_agent.resp.command import ABOUT_KEYS, Command, Scope
from quorate_agent.resp.reading.scan_arguments import ScanArguments, parse_cursor, parse_scan
from quorate_agent.resp.replies import CLUSTERDOWN, INVALID_CURSOR, array, bulk, bulks
from quorate_agent.resp.scan import BYTES_MAX, OVERLAP_S, Place, place_of, scan_page
from quorate_agent.resp.session import AgentServices, Session
from quorate_agent.resp.stepped import NOT_AT_ONCE, Stepped
from quorate_agent.resp.transaction import Call
from quorate_agent.resp.values.value import Damaged, kind_of


def scan(session: Session, args: list[bytes]) -> bytes | Call:
    """SCAN cursor [MATCH pattern] [COUNT rows] [TYPE type]"""
    cursor = parse_cursor(args[1])
    if cursor is None:
        return INVALID_CURSOR
    asked = parse_scan(args[2:], with_type=True)
    if isinstance(asked, bytes):
        return asked
    agent = session.agent
    now_s = agent.uptime_s()
    place = place_of(cursor, agent.scan_origin, now_s)
    if session.connection.is_agents:  # it asks for one partition
        if place.partition >= agent.partition_count():
            return _page(agent, place, None, [], asked)
        if agent.is_here(place.partition):
            return _part(agent, place, asked)
        return PartOfScan(agent, place, asked, args).call()
    # It is unknown which partitions an earlier process had.
    scope: Sequence[int] = range(agent.partition_count())
    if place.origin == agent.scan_origin:
        scope = agent.scan_scope(place.begun_s(now_s) - OVERLAP_S)
    positions, bytes_max = agent.scan_positions, asked.names_bytes_max()
    to, keys = scan_page(place, asked.count, scope, agent.scan, positions, agent.is_here, bytes_max)
    if to is not None and not keys and not agent.is_here(to.partition):
        return PartOfScan(agent, to, asked, args).call()
    return _page(agent, place, to, keys, asked)


class PartOfScan:
    """The handler of a SCAN at a place whose partition is not, or not yet, served here."""

    __slots__ = ("_agent", "_asked", "_place", "words")

    def __init__(
        self, agent: AgentServices, place: Place, asked: ScanArguments, args: list[bytes]
    ) -> None:
        self._agent = agent
        self._asked = asked
        self._place = place
        self.words = [args[0], b"%d" % place.cursor, *args[2:]]  # for the agent that serves it

    def __call__(self, view: Any, args: list[bytes]) -> bytes:
        """Return the page if the partition is served here after all."""
        return _part(self._agent, self._place, self._asked)

    def nothing(self) -> bytes:
        """Return an empty page whose cursor leads here again."""
        return _page(self._agent, self._place, self._place, [], self._asked)

    def call(self) -> Call:
        """Return the scan as a command of the partition."""
        key = _key_in(self._place.partition, self._agent.partition_count())
        return Call(
            Command(
                b"scan", Scope.KEYED, self, 2, "", "", "", ("readonly",),
                first_key=1, last_key=1, step=1,
            ),
            [b"scan", key],
        )  # fmt: skip


class InTransaction:
    """Executes the commands without keys of a connection's transaction, where nothing may wait."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def resp3(self) -> bool:
        """Whether the connection speaks RESP3 by now."""
        return self._session.connection.resp3

    def thread_cpu_s(self) -> float:
        """Return the seconds of CPU that commands have taken."""
        return self._session.agent.thread_cpu_s()

    def __call__(self, command: Command, args: list[bytes]) -> bytes:
        """Return the reply."""
        if command.name in ABOUT_KEYS and not self._session.agent.serves_all():
            return CLUSTERDOWN
        answer: bytes | Call | Stepped = command.handler(self._session, args)
        if isinstance(answer, bytes):
            return answer
        if isinstance(answer, Stepped):
            return NOT_AT_ONCE
        part = answer.command.handler
        assert isinstance(part, PartOfScan)  # no other command that can be queued makes one
        return part.nothing()


def _part(agent: AgentServices, place: Place, asked: ScanArguments) -> bytes:
    """Return a page of one partition; at its end the cursor leads to the next."""
    only = (place.partition,)
    positions, bytes_max = agent.scan_positions, asked.names_bytes_max()
    to, keys = scan_page(place, asked.count, only, agent.scan, positions, bytes_max=bytes_max)
    if to is None and place.partition + 1 < agent.partition_count():
        to = place.start_of(place.partition + 1)
    return _page(agent, place, to, keys, asked)


def _page(
    agent: AgentServices, place: Place, to: Place | None, keys: list[bytes], asked: ScanArguments
) -> bytes:
    """Return those of `keys`, found from `place` on, that match; the scan goes on at `to`.

    It goes on earlier if the values that TYPE needs are long."""
    if (matches := asked.matcher()) is not None:
        keys = [key for key in keys if matches(key)]
    if asked.type_name is not None:
        keys, last = _of_type(agent, keys, asked.type_name)
        if last is not None:
            partition = key_partition(last, agent.partition_count())
            token = agent.scan_positions.token(partition, last)
            to = place._replace(partition=partition, token=token)
    return array((bulk(b"%d" % (0 if to is None else to.cursor)), bulks(keys)))


def _of_type(
    agent: AgentServices, keys: list[bytes], type_name: bytes
) -> tuple[list[bytes], bytes | None]:
    """Return the keys of that type, and the last key looked at if values are so long that the page
    ends behind it; else None."""
    found: list[bytes] = []
    left_bytes = BYTES_MAX
    for number, key in enumerate(keys, 1):
        value = agent.value(key)
        if _type_name(value) == type_name:
            found.append(key)
        left_bytes -= len(value or b"")
        if left_bytes <= 0 and number < len(keys):
            return found, key
    return found, None


def _type_name(value: bytes | None) -> bytes:
    try:
        return b"none" if value is None else kind_of(value).value
    except Damaged:
        return b"damaged"


@cache
def _key_in(partition: int, partitions: int) -> bytes:
    """Return some key of the partition, because commands are routed by their keys."""
    names = (b"%d" % number for number in count())
    return next(name for name in names if key_partition(name, partitions) == partition)
