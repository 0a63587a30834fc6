"""The two ends of a link: what each said and heard."""

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Any

from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello, Refused
from quorate.protocol.messages.message import Message
from quorate_link import (
    BaseHandler,
    ClusterSecret,
    DialedPeer,
    Endpoint,
    Link,
    LinkSettings,
    RoleKeys,
)
from quorate_link.handshake import Handshake
from quorate_loopback.waiting import until

HOST = "127.0.0.1"
SECRET = ClusterSecret("cluster-of-tests", bytes(range(32)))
OPENED: list[Endpoint] = []
"""What a test has opened; who runs it closes them."""


async def close_opened() -> None:
    """Close what a test has opened."""
    for endpoint in OPENED:
        await endpoint.close()
    OPENED.clear()


def reset(accepted: socket.socket) -> None:
    """Close a connection so that its peer reads a reset, as from a host without its process."""
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    accepted.close()


Scenario = Callable[[], Coroutine[object, object, None]]
RunScenario = Callable[[Scenario], None]
Accept = Callable[[Hello], Refused | None]


class Side(BaseHandler):
    """One endpoint and everything it heard."""

    def __init__(self, node: str, role: str = "agent", **hello: Any) -> None:
        self.heard: list[tuple[object, ...]] = []
        self.messages: list[Message] = []
        self.answer: Message | None = None
        words: dict[str, Any] = {"format_version": FORMAT_VERSION, "cluster": "demo", **hello}
        self._hello = Hello(role=role, node=node, **words)

    def open(
        self,
        settings: LinkSettings | None = None,
        accept: Accept | None = None,
        keys: RoleKeys | None = None,
    ) -> Endpoint:
        keys = keys or SECRET.keys()
        self.endpoint = Endpoint(lambda: self._hello, self, keys, settings, accept)
        OPENED.append(self.endpoint)
        return self.endpoint

    async def listen(self, port: int = 0, settings: LinkSettings | None = None) -> int:
        return await self.open(settings).listen(HOST, port)

    def on_up(self, link: Link, hello: Hello) -> None:
        assert link.up
        self.heard.append(("up", hello.node))

    def on_message(self, link: Link, message: Message) -> None:
        self.messages.append(message)
        if self.answer is not None:
            link.send(self.answer)

    def on_down(self, link: Link, refused: Refused | None) -> None:
        assert not link.up
        self.heard.append(("down", refused.code if refused else None))

    def on_gone(self, link: Link) -> None:
        self.heard.append(("gone", link.peer_name))

    def on_refused(self, link: Link, refused: Refused) -> None:
        self.heard.append(("refused", refused.code))

    def count(self, *what: object) -> int:
        return sum(event == what for event in self.heard)


async def linked(server: Side, client: Side, **settings: Any) -> tuple[DialedPeer, Link]:
    """Two open sides; the client's peer and its link."""
    port = await server.listen()
    peer = client.open(LinkSettings(**settings)).dial(HOST, port)
    await until(lambda: peer.link and server.endpoint.links)
    assert peer.link is not None
    return peer, peer.link


async def raw_peer(port: int, hello: Hello) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that is up and does nothing more, not even read much."""
    reader, writer = await asyncio.open_connection(HOST, port, limit=1024)
    await shake_hands(reader, writer, hello)
    return reader, writer


async def shake_hands(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    hello: Hello,
    keys: RoleKeys | None = None,
    behind: bytes = b"",
) -> bytes:
    """Prove and greet as the dialing side, `behind` in one piece with the proof; what came behind
    the other side's proof."""
    handshake = Handshake(keys or SECRET.keys(), lambda: hello, dialed=True)
    writer.write(handshake.take_outgoing())
    rest: bytes | None = None
    while rest is None:
        data = await reader.read(1024)
        assert data, "the connection was closed"
        rest = handshake.feed(data)
        if proof := handshake.take_outgoing():
            writer.write(proof + behind)
    assert handshake.hello is not None, handshake.refused
    return rest


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the other side has closed (or reset) the connection."""
    try:
        return await reader.read(1 << 20) == b"" or await ended(reader)
    except ConnectionError:
        return True
