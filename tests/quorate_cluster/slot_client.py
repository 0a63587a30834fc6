"""A client that finds the primary of a key and says of each request whether it may have been done.

Stock clients repeat requests, or hide what they were told; here nothing is sent twice.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import hiredis

from quorate.facts.keyspace import SLOT_COUNT, key_slot
from quorate_cluster.processes import HOST
from quorate_differential.raw_replies import RawConnection

Exchange = Callable[[Sequence[Sequence[str]]], list[object]]

_CONNECT_S = 0.4


class NothingDone(Exception):
    """The request was certainly not executed, and why: the first word tells kinds apart."""


class Unknown(Exception):
    """The request may have been executed, or yet be."""


class SlotClient:
    """Connections to agents, one each, opened when they are needed; it asks any of `ports` who has
    which slots, and again when it was told or felt that this is not so."""

    def __init__(self, ports: Sequence[int], timeout_s: float) -> None:
        self._ports = list(ports)
        self._timeout_s = timeout_s
        self._connections: dict[int, RawConnection] = {}
        self._table: list[int] = []

    def ask(self, key: str, commands: Sequence[Sequence[str]]) -> list[object]:
        """Replies to commands sent in one go to the primary of `key`; NothingDone or Unknown when
        the last reply is an error, or there is none."""
        port = self._port(key)
        return self._exchange(port, self._connected(port), commands)

    @contextmanager
    def watching(self, keys: Sequence[str]) -> Iterator[Exchange]:
        """`with client.watching(keys) as exchange:` WATCH each at the primary of the first; what is
        to be guarded goes through `exchange`, over the same connection whatever happened since."""
        port = self._port(keys[0])
        connection = self._connected(port)
        try:
            for key in keys:
                self._exchange(port, connection, [("WATCH", key)])
        except Unknown as error:
            raise NothingDone(f"unreachable: {error}") from error
        try:
            yield partial(self._exchange, port, connection)
        finally:
            if self._connections.get(port) is connection:  # EXEC may never have come
                self._end_watching(port, connection)

    def close(self) -> None:
        """Close every connection."""
        for port in [*self._connections]:
            self._drop(port)

    def _exchange(
        self, port: int, connection: RawConnection, commands: Sequence[Sequence[str]]
    ) -> list[object]:
        encoded = [[word.encode() for word in words] for words in commands]
        try:
            replies = [_decoded(reply) for reply in connection.ask_all(encoded)]
        except OSError as error:
            self._drop(port)
            self._look_elsewhere(port)
            raise Unknown(str(error)) from error
        if any(isinstance(each, hiredis.ReplyError) for each in replies):
            self._table = []
        if isinstance(replies[-1], hiredis.ReplyError):
            self._drop(port)  # nothing is left behind, such as a WATCH
            said = str(replies[-1])
            raise Unknown(said) if said.startswith("UNKNOWN") else NothingDone(said)
        return replies

    def _end_watching(self, port: int, connection: RawConnection) -> None:
        try:
            connection.ask([b"UNWATCH"])
        except OSError:
            self._drop(port)

    def _connected(self, port: int) -> RawConnection:
        connection = self._connections.get(port)
        if connection is None:
            try:
                connection = RawConnection(HOST, port, self._timeout_s)
            except OSError as error:
                self._look_elsewhere(port)
                raise NothingDone(f"unreachable: {error}") from error
            self._connections[port] = connection
        return connection

    def _drop(self, port: int) -> None:
        connection = self._connections.pop(port, None)
        if connection is not None:
            connection.__exit__()

    # -- who has which slots -----------------------------------------------------------------------

    def _look_elsewhere(self, port: int) -> None:
        self._table = []
        if port in self._ports:
            self._ports.remove(port)
            self._ports.append(port)

    def _port(self, key: str) -> int:
        if not self._table:
            self._table = self._read_table()
        return self._table[key_slot(key.encode())]

    def _read_table(self) -> list[int]:
        for port in list(self._ports):
            try:
                with RawConnection(HOST, port, _CONNECT_S) as connection:
                    said: Any = _decoded(connection.ask([b"CLUSTER", b"SLOTS"]))
            except OSError:
                self._look_elsewhere(port)
                continue
            if isinstance(said, list):
                table = [0] * SLOT_COUNT
                for first, last, primary, *_ in said:
                    table[first : last + 1] = [primary[1]] * (last + 1 - first)
                self._ports += sorted({*table} - {*self._ports})
                return table
        raise NothingDone("unreachable: no agent says who has which slots")


def _decoded(reply: bytes) -> object:
    reader = hiredis.Reader()
    reader.feed(reply)
    return reader.gets()
