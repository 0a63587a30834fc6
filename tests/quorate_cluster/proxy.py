"""A network that a test can hurt: every link between processes goes through here, frame by frame.

A road is a port on which one process dials another.  What passes is cut into frames, and judges are
asked of each of them: let it pass, lose it, send it twice, or hold everything behind it, so that a
fault strikes at exactly that moment.  Directions can be cut as well: bytes wait, as TCP would send
them again once the network is back, and new connections come to nothing meanwhile.

Agents find each other through here because `Members` is changed on its way to them: each is told
the ports of its own roads.  A process that is gone is gone for its dialers, too: a road is closed
for as long as nobody listens at its end, so that dialing it is refused.
"""

import asyncio
import enum
import socket
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from functools import cached_property
from typing import Any, TypeVar, cast, get_args

import msgspec

from quorate.protocol.messages.handshake import FRAME_BYTES_MAX, Challenge, Proof
from quorate.protocol.messages.master import Members
from quorate.protocol.messages.message import Message
from quorate.wire.frames import decode_message, encode_frame
from quorate.wire.long_frames import HEADER_BYTES, LongFrames
from quorate_control_plane.ports import free_ports

HOST = "127.0.0.1"
OPERATOR = "operator"
_POLL_S = 0.03
_ASK_S_MAX = 10.0

T = TypeVar("T")

Passing = Message | Challenge | Proof
_TYPES: dict[int, type[Passing]] = {each.__struct_config__.tag: each for each in get_args(Passing)}
_ARRAY_16 = 0xDC


class Verdict(enum.Enum):
    """What becomes of one frame."""

    PASS = "pass"
    LOSE = "lose"
    TWICE = "twice"
    HOLD = "hold"
    """It and all behind it in this direction wait for `Proxy.release`."""


class Frame:
    """One frame on its way; decoded only when somebody looks."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    @cached_property
    def kind(self) -> type[Passing]:
        """Which message it is, without decoding it."""
        return _TYPES[self.body[3 if self.body[0] == _ARRAY_16 else 1]]

    @cached_property
    def message(self) -> Message:
        return decode_message(self.body)


Judge = Callable[[str, str, Frame], Verdict]
"""(who sends, who is to receive, the frame), asked on the proxy's own thread."""


class _Road:
    """One process's way to another: a port, open while somebody listens at the other end."""

    def __init__(self, proxy: "Proxy", source: str, target: str, target_port: int) -> None:
        self.source = source
        self.target = target
        self.port = next(proxy.ports)
        self.target_port = target_port
        self._proxy = proxy
        self._server: asyncio.Server | None = None
        self._reopening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _End(_Connection(self._proxy, self), dialed=False), HOST, self.port
        )

    def close(self) -> None:
        """Refuse connections from now on."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def close_while_nobody_listens(self) -> None:
        """Dialing the target was refused: so is dialing this road, until it is not."""
        if self._server is not None:
            self.close()
            self._reopening = asyncio.get_running_loop().create_task(self._reopen())

    def leads_to_somebody(self) -> bool:
        """Whether the target listens (one that is frozen does)."""
        with socket.socket() as probe:
            return probe.connect_ex((HOST, self.target_port)) == 0

    async def _reopen(self) -> None:
        while not self.leads_to_somebody():  # noqa: ASYNC110  another process decides
            await asyncio.sleep(_POLL_S)
        await self.open()


class _Flow:
    """One direction of one connection."""

    def __init__(self, proxy: "Proxy", source: str, target: str) -> None:
        self.source = source
        self.target = target
        self.exit: asyncio.Transport | None = None
        self.is_held = False
        self._is_judged = False  # the first frame was held and may pass now
        self._proxy = proxy
        self._bytes = bytearray()
        self._long = LongFrames()
        self._frames: deque[Frame] = deque()
        self._has_ended = False

    def take(self, data: bytes) -> None:
        """Bytes of the sender."""
        self._bytes += data
        at = 0
        while len(self._bytes) - at >= HEADER_BYTES:
            start = at + HEADER_BYTES
            header = length = int.from_bytes(self._bytes[at:start], "big")
            if header > FRAME_BYTES_MAX:
                length = self._long.length(header, FRAME_BYTES_MAX)
            if start + length > len(self._bytes):
                break
            at = start + length
            body: bytes | bytearray | None = self._bytes[start:at]
            if header > FRAME_BYTES_MAX:  # a piece: a long message passes as one frame, or not
                body = self._long.take(header, memoryview(body or b""))
            if body is not None:
                self._frames.append(Frame(bytes(body)))
        del self._bytes[:at]
        self.pump()

    def end(self) -> None:
        """The sender has hung up: so does this end, after all that was sent before."""
        self._has_ended = True
        self.pump()

    def forget(self) -> None:
        """The sender died with what is still here."""
        self._frames.clear()

    def pump(self) -> None:
        """Write what may go out."""
        if self.exit is None or (self.source, self.target) in self._proxy.cuts:
            return
        while self._frames and not self.is_held:
            frame = self._frames.popleft()
            verdict = Verdict.PASS
            if not self._is_judged:
                verdict = self._proxy.judge(self.source, self.target, frame)
            self._is_judged = False
            if verdict is Verdict.HOLD:
                self.is_held = True
                self._frames.appendleft(frame)
                return
            self._write(frame, {Verdict.LOSE: 0, Verdict.TWICE: 2}.get(verdict, 1))
        if self._has_ended and not self.is_held:
            self.exit.close()

    def let_go(self) -> None:
        """The frame that was held passes."""
        self.is_held = False
        self._is_judged = bool(self._frames)
        self.pump()

    def _write(self, frame: Frame, times: int) -> None:
        assert self.exit is not None
        for _ in range(times):
            self.exit.write(len(frame.body).to_bytes(HEADER_BYTES, "big") + frame.body)


class _Connection:
    """What a dialer made, and its continuation to the target."""

    def __init__(self, proxy: "Proxy", road: _Road) -> None:
        self.road = road
        self.there = _Flow(proxy, road.source, road.target)
        self.back = _Flow(proxy, road.target, road.source)
        self._proxy = proxy
        self._has_dialer = True
        self._going_on: asyncio.Task[None] | None = None

    def begun(self) -> None:
        """The dialer is here."""
        self._proxy.connections[self] = None
        self._going_on = asyncio.get_running_loop().create_task(self._go_on())

    async def _go_on(self) -> None:
        road = self.road
        both = {(road.source, road.target), (road.target, road.source)}
        while both & self._proxy.cuts:  # noqa: ASYNC110  no handshake of TCP gets through
            await asyncio.sleep(_POLL_S)
        if not self._has_dialer:
            self._over()
            return
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: _End(self, dialed=True), HOST, road.target_port
            )
        except OSError:
            road.close_while_nobody_listens()
            self.back.end()
            self._over()

    def lost(self, *, dialed: bool) -> None:
        """One of the two ends is gone."""
        if dialed:
            if not self.road.leads_to_somebody():
                self.road.close_while_nobody_listens()
            self.there.exit = None
            self.back.end()
        else:
            self._has_dialer = False
            self.back.exit = None
            self.there.end()
        if self.there.exit is None and self.back.exit is None:
            self._over()

    def _over(self) -> None:
        self._proxy.connections.pop(self, None)


class _End(asyncio.Protocol):
    """One of a connection's two sockets; `dialed`: the one to the target."""

    def __init__(self, connection: _Connection, *, dialed: bool) -> None:
        self._connection = connection
        self._dialed = dialed
        self._in = connection.back if dialed else connection.there
        self._out = connection.there if dialed else connection.back

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._out.exit = cast(asyncio.Transport, transport)
        if self._dialed:
            self._out.pump()
        else:
            self._connection.begun()

    def data_received(self, data: bytes) -> None:
        self._in.take(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.lost(dialed=self._dialed)


class Proxy:
    """All roads of one cluster, on a thread of its own.  Methods without _ are for the test's
    thread; `judge` and what is below it belong to the proxy's."""

    def __init__(self) -> None:
        self.ports = free_ports()
        self.cuts: frozenset[tuple[str, str]] = frozenset()
        self.connections: dict[_Connection, None] = {}
        self.judges: list[Judge] = []
        """Asked in this order of every frame; the first that does not say PASS decides."""
        self.failures: list[BaseException] = []
        """What judges have raised."""
        self._roads: dict[tuple[str, str], _Road] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End every connection; a second time does nothing."""
        if not self._loop.is_closed():
            self._ask(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    # -- the test's thread -------------------------------------------------------------------------

    def road(self, source: str, target: str, target_port: int) -> int:
        """The port on which `source` dials `target`, which listens at `target_port`."""
        road = self._roads.get((source, target))
        if road is None:
            road = self._roads[source, target] = _Road(self, source, target, target_port)
            self._ask(road.open())
        return road.port

    def cut(self, directions: Iterable[tuple[str, str]]) -> None:
        """Nothing passes in these directions (sender, receiver), and in all others it does."""
        self._ask(self._cut(frozenset(directions)))

    def release(self, dead: str = "") -> None:
        """What is held passes, except what `dead` sent: it died before that."""
        self._ask(self._release(dead))

    def set_judges(self, *judges: Judge) -> None:
        """Ask these from now on."""
        self._ask(self._set_judges(judges))

    def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        asked: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return asked.result(_ASK_S_MAX)

    # -- the proxy's thread ------------------------------------------------------------------------

    def judge(self, source: str, target: str, frame: Frame) -> Verdict:
        """What becomes of a frame; `Members` is changed on the way."""
        if frame.kind is Members:
            frame.body = self._through_roads(target, cast(Members, frame.message))
        decided = Verdict.PASS
        for judge in self.judges:
            try:
                verdict = judge(source, target, frame)
            except Exception as error:
                self.failures.append(error)
                continue
            if decided is Verdict.PASS:
                decided = verdict
        return decided

    def _through_roads(self, reader: str, members: Members) -> bytes:
        nodes = tuple(
            node
            if node.name == reader
            else msgspec.structs.replace(node, peer_port=self._roads[reader, node.name].port)
            for node in members.nodes
        )
        return encode_frame(msgspec.structs.replace(members, nodes=nodes))[HEADER_BYTES:]

    def _flows(self) -> list[_Flow]:
        return [flow for each in self.connections for flow in (each.there, each.back)]

    async def _cut(self, directions: frozenset[tuple[str, str]]) -> None:
        self.cuts = directions
        for flow in self._flows():
            flow.pump()

    async def _release(self, dead: str) -> None:
        for flow in self._flows():
            if flow.is_held:
                if flow.source == dead:
                    flow.forget()
                flow.let_go()

    async def _set_judges(self, judges: tuple[Judge, ...]) -> None:
        self.judges = list(judges)

    async def _end(self) -> None:
        for road in self._roads.values():
            road.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        for flow in self._flows():
            if flow.exit is not None:
                flow.exit.abort()
        await asyncio.sleep(0)  # aborted transports report their end
