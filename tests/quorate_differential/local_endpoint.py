"""The agent's commands without agent: one node, all slots, rows in dicts, in this process."""

import time
from collections.abc import Iterable, Mapping, Sequence

from quorate.facts.keyspace import SLOT_COUNT, key_partition
from quorate_agent.resp.cluster_view import ClusterNode, ClusterView
from quorate_agent.resp.command import Scope, command_slot
from quorate_agent.resp.reading.parser import CommandParser
from quorate_agent.resp.replies import CROSSSLOT, OK, bulks, integer
from quorate_agent.resp.scan import ScanChunk, ScanPositions
from quorate_agent.resp.session import Connection, KeysRequest, Session
from quorate_agent.resp.slow_log import SlowLog
from quorate_agent.resp.stepped import Stepped
from quorate_agent.resp.tables.table import resolve
from quorate_agent.resp.transaction import Call
from quorate_differential.dict_view import DictView

PARTITIONS = 16


class LocalEndpoint:
    """What an endpoint does with commands, in the order in which Redis does it.  An `Agent`."""

    def __init__(self) -> None:
        self.view = DictView()
        self.slow_log = SlowLog()
        self.scan_positions = ScanPositions()
        self.scan_origin = 0
        self._open: list[Connection] = []
        me = ClusterNode("node-1", "127.0.0.1", 7000)
        self._cluster = ClusterView(me, (me,), (0,) * PARTITIONS)

    def connect(self) -> Session:
        """A new client connection."""
        number = len(self._open) + 1
        connection = Connection(number, f"127.0.0.1:{40000 + number}", "127.0.0.1:7000", 0)
        self._open.append(connection)
        return Session(connection, self)

    def answer(self, session: Session, args: list[bytes]) -> bytes:
        """The reply to one command."""
        command = resolve(args)
        if isinstance(command, bytes):
            return command
        transaction = session.connection.transaction
        if transaction is not None and not command.ends_queueing:
            return transaction.queue(command, args)
        self.view.now_ms = time.time_ns() // 1_000_000
        if command.scope is Scope.KEYED:
            if command_slot(command, args) < 0:
                return CROSSSLOT
            self.view.resp3 = session.connection.resp3
            reply = command.handler(self.view, args)
        else:
            reply = command.handler(session, args)
        if isinstance(reply, Call):
            self.view.resp3 = session.connection.resp3
            reply = reply.command.handler(self.view, reply.args)
        if isinstance(reply, bytes):
            return reply
        if isinstance(reply, KeysRequest):
            matches = reply.matches
            return bulks([key for key in self._live() if matches is None or matches(key)])
        while isinstance(reply, Stepped):
            if said := reply.step(1_000):
                return said
        if command.scope is Scope.FLUSH:
            self.view.rows.clear()
            return OK
        return integer(0)  # WAIT: there are no other copies

    def exchange(self, stream: bytes, chunk_bytes: int = 1 << 16) -> bytes:
        """What a connection that sends `stream` gets back before it is closed."""
        session = self.connect()
        parser = CommandParser()
        sent = []
        for at in range(0, len(stream), chunk_bytes):
            for args in parser.feed(stream[at : at + chunk_bytes]):
                sent.append(self.answer(session, args))
                if session.connection.closing:
                    return b"".join(sent)
            if parser.error is not None:
                sent.append(parser.error)
                break
        return b"".join(sent)

    # --- Agent -----------------------------------------------------------------------------------

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def thread_cpu_s(self) -> float:
        return time.thread_time()

    def cluster(self, external: bool) -> ClusterView:
        return self._cluster

    def slots_served(self, external: bool) -> int:
        return SLOT_COUNT

    def event_state(self) -> bytes:
        return b"{}"

    def connections(self) -> Iterable[Connection]:
        return self._open

    def tracks(self, connection: Connection) -> None:
        pass

    def may_broadcast(self, prefixes: Sequence[bytes]) -> bool:
        return True

    def key_count(self) -> int:
        return len(self._live())

    def expiring(self) -> tuple[int, int]:
        return 0, 0

    def info(self) -> Mapping[str, Mapping[str, str | int]]:
        return {}

    def primaries(self) -> Sequence[int]:
        return range(PARTITIONS)

    def is_persistent(self) -> bool:
        return False

    def partition_count(self) -> int:
        return PARTITIONS

    def is_primary(self, partition: int) -> bool:
        return True

    def is_here(self, partition: int) -> bool:
        return True

    def serves_all(self) -> bool:
        return True

    def scan_scope(self, since_s: int) -> Sequence[int]:
        return range(PARTITIONS)

    def uptime_s(self) -> int:
        return time.monotonic_ns() // 10**9

    def scan(
        self,
        partition: int,
        after: bytes | None,
        rows_max: int,
        bytes_max: int,
        *,
        with_expired: bool = False,
    ) -> ScanChunk:
        keys = sorted(
            key
            for key in self._live()
            if key_partition(key, PARTITIONS) == partition and (after is None or key > after)
        )
        page = keys[:rows_max]
        return ScanChunk(page, page, page[-1] if len(keys) > rows_max else None, 0)

    def value(self, key: bytes) -> bytes | None:
        row = self.view.get(key)
        return None if row is None else row.value

    def _live(self) -> list[bytes]:
        return [key for key in self.view.rows if self.view.get(key) is not None]
