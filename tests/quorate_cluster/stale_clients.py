"""Clients whose table of primaries is old: a stock one, and one that follows redirections by hand.

Each runs calls of command_calls and notes what was not answered right.
"""

import time
from collections.abc import Sequence
from typing import Any

import hiredis
from redis.exceptions import ResponseError, WatchError

from quorate_cluster.command_calls import Call, agree
from quorate_differential.raw_replies import RawConnection

REDIRECTIONS_MAX = 5
ANSWER_S_MAX = 30.0
_POLL_S = 0.05


class FollowingClient:
    """Raw connections, one per agent, opened when they are needed.  A command goes to the agent
    that the table names; then wherever MOVED says, a few times; while that agent refuses
    connections, to another one, as stock clients do that look for a new table."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = list(ports)
        self._connections: dict[int, RawConnection] = {}
        self.redirections = 0

    def run(self, port: int, sent: Sequence[Sequence[bytes]]) -> list[bytes]:
        """The replies of the agent that executed it, asked at first at `port`."""
        deadline = time.monotonic() + ANSWER_S_MAX
        hops = 0
        while True:
            try:
                connection = self._connections.get(port)
                if connection is None:
                    connection = self._connections[port] = RawConnection("127.0.0.1", port)
            except ConnectionRefusedError:
                assert time.monotonic() < deadline, f"{port} refuses connections: {sent}"
                time.sleep(_POLL_S)
                at = self._ports.index(port)
                port, hops = self._ports[(at + 1) % len(self._ports)], 0
                continue
            replies = []
            for words in sent:
                replies.append(connection.ask(words))
                if replies[-1].startswith(b"-MOVED") and [b"UNWATCH"] in sent:
                    break  # without its guard the rest is a command of its own
            moved = next((reply for reply in replies if reply.startswith(b"-MOVED")), None)
            if moved is None:
                return replies
            hops += 1
            self.redirections += 1
            assert hops <= REDIRECTIONS_MAX, f"{hops} redirections of {sent}: {moved!r}"
            port = int(moved.rpartition(b":")[2])

    def close(self) -> None:
        for connection in self._connections.values():
            connection.__exit__()


def wrong_when_followed(client: FollowingClient, calls: Sequence[tuple[Call, int]]) -> list[str]:
    """Which calls (with the port that is asked first) were answered something else, and what."""
    wrong: list[str] = []
    for call, port in calls:
        right, _ = call.right_answers()
        said = client.run(port, call.sent)
        if not agree(right, said):
            wrong.append(f"{call.sent}: {said!r} instead of {right!r}")
    return wrong


def wrong_at_stock_client(client: Any, calls: Sequence[Call]) -> list[str]:
    """The same for a stock client, a RedisCluster; an exception is what it said."""
    callbacks = client.get_redis_connection(client.get_default_node()).response_callbacks
    wrong: list[str] = []
    for call in calls:
        replies, _ = call.right_answers()
        right = _python(replies[-1])
        name = call.name.upper().replace("|", " ")
        if call.sent[0][0] not in (b"MULTI", b"WATCH") and not isinstance(right, Exception):
            right = callbacks.get(name, _unchanged)(right)
        said: object
        try:
            said = _ask(client, call)
        except Exception as error:  # whatever it is, this client must not see it
            said = error
        if not _same(right, said):
            wrong.append(f"{call.sent}: {said!r} instead of {right!r}")
    return wrong


def _ask(client: Any, call: Call) -> object:
    if call.sent[0][0] in (b"MULTI", b"WATCH"):
        for _ in range(REDIRECTIONS_MAX):
            try:
                return _transaction(client, call)
            except WatchError:  # it was somewhere else: begin again
                continue
    words = [word.decode() for word in call.sent[0]]
    if "|" in call.name and not call.name.startswith("object"):
        words = [" ".join(words[:2]), *words[2:]]
    return client.execute_command(*words)


def _transaction(client: Any, call: Call) -> object:
    said: object = None
    queues = False
    with client.pipeline(transaction=True) as pipe:
        for words in call.sent:
            match words[0]:
                case b"WATCH":
                    pipe.watch(*words[1:])
                case b"UNWATCH":
                    pipe.unwatch()
                case b"MULTI":
                    pipe.multi()
                    queues = True
                case b"EXEC":
                    said = pipe.execute()
                case b"DISCARD":
                    pipe.reset()
                    queues = False
                case _:
                    where = pipe if queues else client
                    said = where.execute_command(words[0].decode(), *words[1:])
    return said


def _python(reply: bytes) -> Any:
    reader = hiredis.Reader()
    reader.feed(reply)
    return reader.gets()


def _unchanged(reply: Any) -> Any:
    return reply


def _same(right: object, said: object) -> bool:
    if isinstance(right, hiredis.ReplyError):
        return isinstance(said, ResponseError) and str(said) in str(right)
    if isinstance(right, int) and isinstance(said, int):
        return agree([b":%d\r\n" % right], [b":%d\r\n" % said])
    return right == said
