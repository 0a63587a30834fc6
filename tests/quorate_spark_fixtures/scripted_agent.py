"""A peer port that answers tools from a dict and misbehaves where told to.

Only for how readers take errors and for comparisons that no real agent can be brought to show;
that real agents are read is tested against real agents.
"""

import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import EllipsisType
from typing import Self

from quorate.facts.errors import WireError
from quorate.facts.lineage import Entry, Lineage
from quorate.protocol.copies.totals import DIGEST_BYTES, buckets_of, key_bucket, row_digest
from quorate.protocol.messages.formats import SPOKEN
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello, Refused
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.tools import (
    AskBuckets,
    AskColumns,
    AskCopies,
    AskDigests,
    AskPaced,
    AskRows,
    Buckets,
    Copies,
    CopyColumns,
    CopyDigest,
    CopyRows,
    CopyState,
    Digests,
    Paced,
)
from quorate.protocol.storage import ROW_HEAD
from quorate.protocol.storage import Row as StorageRow
from quorate.wire.frames import FrameReader, encode_frame
from quorate_link.blocking import shake_hands
from quorate_link.handshake import Handshake, Unproven
from quorate_link.secret import draw_secret

Row = tuple[int, int, int, bytes | None]
"""(counter, term, expires_at, value)"""


@dataclass
class ScriptedCopy:
    """One copy; change its fields while a test runs."""

    replica_index: int = 0
    version: int = 3
    term: int = 3
    adopted: bool = True
    lwm: int = 0
    hwm: int | None = None
    above: tuple[tuple[int, int], ...] = ()
    lineage: Lineage = field(default_factory=lambda: Lineage(0, 0, (Entry(3, 1),)))
    rows: dict[bytes, Row] = field(default_factory=dict)
    mark_at: int = 0
    mark: tuple[int, bytes] = (0, b"")
    majority: int | None = None

    def advance(self, counter: int) -> None:
        """LWM is `counter` now; tell the digest later if that was asked for."""
        self.lwm = counter
        if counter == self.mark_at:
            self.mark, self.mark_at = (counter, self.row_sum()), 0

    def row_sum(self) -> bytes:
        """The digest."""
        total = sum(row_digest(key, StorageRow(*row)) for key, row in self.rows.items())
        return (total % (1 << 128)).to_bytes(DIGEST_BYTES)

    def digest(self, partition: int, mark: int) -> CopyDigest:
        """The copy as the agent tells its digest."""
        if mark > self.lwm:
            self.mark_at = mark
        live = sum(row[3] is not None for row in self.rows.values())
        return CopyDigest(
            partition, self.term, self.adopted, self.lwm, live, self.row_sum(), *self.mark
        )

    def state(self, partition: int) -> CopyState:
        """The copy as the agent lists it."""
        return CopyState(
            partition,
            self.replica_index,
            self.version,
            self.term,
            self.adopted,
            self.lwm,
            self.lwm if self.hwm is None else self.hwm,
            self.above,
            self.lineage,
            len(self.rows),
            sum(len(key) + len(row[3] or b"") for key, row in self.rows.items()),
            0,
            majority=self.lwm if self.majority is None else self.majority,
        )


StoredRow = tuple[bytes, int, int, int, bytes | None]


def columns_told(
    ask: AskColumns,
    rows: Sequence[StoredRow],
    lwm: int,
    following: bytes | None,
    problem: str = "",
) -> CopyColumns:
    """The answer with these rows (key, counter, term, expires_at, value)."""
    keys = [row[0] for row in rows]
    values = [row[4] or b"" for row in rows] if ask.values else []
    return CopyColumns(
        ask.zone_name,
        ask.partition,
        following,
        lwm,
        len(rows),
        b"".join(keys),
        b"".join(len(key).to_bytes(4, "little") for key in keys),
        b"".join(ROW_HEAD.pack(*row[1:4], row[4] is None) for row in rows),
        b"".join(values),
        b"".join(len(value).to_bytes(4, "little") for value in values),
        problem,
    )


Answer = Message | bytes | None
"""A message, raw bytes to send as they are, or None: hang up."""


class ScriptedAgent:
    """Listens on a free loopback port between `with` and its end.

    `on_ask`, when set, sees each question first and may answer it (`...`: answer as usual).
    `answered`: bytes of all answers."""

    def __init__(self, name: str, zone: str = "z", incarnation: int = 1) -> None:
        self.name = name
        self.zone = zone
        self.hello = Hello(FORMAT_VERSION, "agent", "c", name, f"store-{name}", incarnation)
        self.formats = SPOKEN
        self.secret = draw_secret()
        self.copies: dict[int, ScriptedCopy] = {}
        self.partitions = 0  # as an agent of an earlier version tells it
        self.uid = ""
        self.asked: list[Message] = []
        self.answered = 0
        self.times: tuple[tuple[tuple[int, int], ...], ...] = ()
        self.on_ask: Callable[[Message], Answer | EllipsisType] | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._closing = False

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def end(self) -> None:
        """Be gone; more than once is fine."""
        if self._closing:
            return
        self._closing = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            connection.close()
        for thread in self._threads:
            thread.join(5)

    def _start(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closing:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._start(partial(self._serve, connection))

    def _serve(self, connection: socket.socket) -> None:
        frames = FrameReader()
        with connection:
            data = self._greet(connection)
            while data is not None:
                try:
                    data = data or connection.recv(65536)
                    if not data:
                        return
                    received, data = data, b""
                    for message in frames.feed(received):
                        answer = self._answer(message)
                        if answer is None:
                            return
                        frame = answer if isinstance(answer, bytes) else encode_frame(answer)
                        self.answered += len(frame)
                        connection.sendall(frame)
                except OSError:
                    return

    def _greet(self, connection: socket.socket) -> bytes | None:
        """Go through the handshake, with what the script says to a Hello; what came behind it, None
        when the connection is over."""

        def judge(hello: Hello) -> Refused | None:
            self.asked.append(hello)
            answer = self.on_ask(hello) if self.on_ask is not None else ...
            if isinstance(answer, Hello):
                self.hello = answer
            return answer if isinstance(answer, Refused) else None

        keys, hello, formats = self.secret.keys(), lambda: self.hello, self.formats
        handshake = Handshake(keys, hello, dialed=False, judge=judge, formats=formats)
        try:
            rest = shake_hands(connection, handshake, time.monotonic() + 10)
            connection.sendall(handshake.take_outgoing())
            connection.settimeout(None)
        except Unproven as error:
            connection.sendall(encode_frame(Refused(str(error), error.code)))
            return None
        except (OSError, WireError):
            return None
        return rest if handshake.hello is not None else None

    def _answer(self, message: Message) -> Answer:
        self.asked.append(message)
        if self.on_ask is not None:
            answer = self.on_ask(message)
            if not isinstance(answer, EllipsisType):
                return answer
        match message:
            case AskCopies(zone_name=zone, partition=only):
                if zone != self.zone:
                    return Copies(zone, self.name, (), f"the zones here are {self.zone}")
                states = tuple(
                    c.state(p) for p, c in sorted(self.copies.items()) if only in (None, p)
                )
                return Copies(zone, self.name, states, "", self.partitions, self.uid, self.times)
            case AskPaced():
                return Paced(message.bytes_per_s)
            case AskRows():
                return self._rows(message)
            case AskColumns():
                return self._columns(message)
            case AskDigests():
                return self.answer_digests(message)
            case AskBuckets():
                return self._buckets(message)
            case _:
                return None

    def _rows(self, ask: AskRows) -> CopyRows:
        copy = self.copies.get(ask.partition)
        if copy is None:
            return CopyRows(ask.zone_name, ask.partition, None, 0, (), "no such copy")
        rows: list[tuple[bytes, int, int, int, bytes | None]] = []
        size = 0
        for key in sorted(copy.rows):
            if ask.after is not None and key <= ask.after:
                continue
            if size >= ask.bytes_max:
                return CopyRows(ask.zone_name, ask.partition, rows[-1][0], copy.lwm, tuple(rows))
            row = copy.rows[key]
            if ask.buckets and key_bucket(key) not in ask.buckets:
                continue
            rows.append((key, *row))
            size += len(key) + len(row[3] or b"")
        return CopyRows(ask.zone_name, ask.partition, None, copy.lwm, tuple(rows))

    def _columns(self, ask: AskColumns) -> CopyColumns:
        copy = self.copies.get(ask.partition)
        if copy is None:
            return columns_told(ask, (), 0, None, "no such copy")
        rows: list[StoredRow] = []
        size = 0
        for key in sorted(copy.rows):
            if key < ask.first or (ask.before is not None and key >= ask.before):
                continue
            if size >= ask.bytes_max:
                return columns_told(ask, rows, copy.lwm, rows[-1][0] + b"\0")
            row = copy.rows[key]
            rows.append((key, *row))
            size += len(key) + len(row[3] or b"")
        return columns_told(ask, rows, copy.lwm, None)

    def answer_digests(self, ask: AskDigests) -> Digests:
        """The usual answer, for scripts that change it."""
        marks = ask.marks or (0,) * len(ask.partitions)
        told = tuple(
            self.copies[partition].digest(partition, mark)
            for partition, mark in zip(ask.partitions, marks, strict=True)
            if partition in self.copies
        )
        return Digests(ask.zone_name, self.name, told)

    def _buckets(self, ask: AskBuckets) -> Buckets:
        """Three rows at a time."""
        copy = self.copies[ask.partition]
        keys = [key for key in sorted(copy.rows) if ask.after is None or key > ask.after][:3]
        shares = buckets_of([(key, StorageRow(*copy.rows[key])) for key in keys], ask.upto)
        return Buckets(
            ask.zone_name,
            ask.partition,
            keys[-1] if keys else None,
            copy.lwm,
            tuple((b, n, d.to_bytes(DIGEST_BYTES)) for b, (n, d) in sorted(shares.items())),
        )
