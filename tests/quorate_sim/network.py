"""How messages get from one process to another: links that delay, stall, break and lose."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from quorate.protocol.messages.handshake import Hello
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.replication import Heartbeat, HeartbeatAck
from quorate_sim.world import MS, World

if TYPE_CHECKING:
    from quorate_sim.swarm import Swarm


class Process(Protocol):
    """Something with a name that hears messages while it lives."""

    name: str
    alive: bool
    is_master: bool

    def hello(self) -> Hello:
        """How it greets."""

    def link_up(self, link: Link) -> bool:
        """Another process greets over `link`; False refuses it."""

    def link_down(self, link: Link, gone: bool) -> None:
        """A link this process dialed was lost; `gone`: its host refuses a new one."""

    def heard(self, link: Link, message: Message) -> None:
        """A message over `link`."""

    def run(self, action: Callable[[], None]) -> None:
        """Do something in this process's turn."""


class Link:
    """One connection, dialed by `source`; messages go both ways, in order each way.

    Agents send only on the links they dialed; a master sends and hears on the one it dialed.
    """

    def __init__(self, network: Network, source: Process, target: Process) -> None:
        self.network = network
        self.source = source
        self.target = target
        self.up = True
        self._last_us = {source.name: 0, target.name: 0}
        self._greeted_us = dict(self._last_us)
        self._stalled: list[tuple[Process, Process, Message | None]] = []

    def send(self, sender: Process, message: Message | None) -> None:
        """Put a message on its way (None: the greeting)."""
        if not self.up:
            return
        receiver = self.target if sender is self.source else self.source
        judge = self.network.judge
        if judge is None or message is None:
            self.send_stalled(sender, receiver, message)
            return
        for _ in range(judge(self, sender, receiver, message)):
            self.send_stalled(sender, receiver, message)

    def _fly(self, sender: Process, receiver: Process, message: Message | None) -> None:
        network = self.network
        arrival = network.world.time_us + network.delay()
        if message is None:
            self._greeted_us[sender.name] = self._last_us[sender.name] = arrival
        elif network.harsh or (
            network.heartbeats_first and isinstance(message, Heartbeat | HeartbeatAck)
        ):
            arrival = max(arrival, self._greeted_us[sender.name] + 1)
        else:
            arrival = max(arrival, self._last_us[sender.name] + 1)
            self._last_us[sender.name] = arrival
        network.world.at(arrival, partial(self._arrive, sender, receiver, message))
        if message is not None and network.duplicates and network.world.chance(network.duplicates):
            again = arrival + network.delay() * network.world.random.choice((1, 10, 100))
            network.world.at(again, partial(self._arrive, sender, receiver, message))

    def _arrive(self, sender: Process, receiver: Process, message: Message | None) -> None:
        if not self.up or not receiver.alive:
            return
        if self.network.is_cut(sender.name, receiver.name):
            self._stalled.append((sender, receiver, message))
            return
        receiver.run(partial(self._hand_over, receiver, message))

    def _hand_over(self, receiver: Process, message: Message | None) -> None:
        if not self.up:
            return
        if message is None:
            if not receiver.link_up(self):
                self.network.lose(self)
            return
        receiver.heard(self, message)

    def flow_again(self) -> None:
        """A cut was healed: what was stalled goes on."""
        stalled, self._stalled = self._stalled, []
        for sender, receiver, message in stalled:
            self.send_stalled(sender, receiver, message)

    def send_stalled(self, sender: Process, receiver: Process, message: Message | None) -> None:
        """Put a message on its way, or keep it until its direction is healed."""
        if self.network.is_cut(sender.name, receiver.name):
            self._stalled.append((sender, receiver, message))
        else:
            self._fly(sender, receiver, message)


Judge = Callable[[Link, Process, Process, Message], int]
"""How often a message of a sender arrives at a receiver over this link."""


class Network:
    """All links, and which directions are cut."""

    def __init__(self, world: World, swarm: Swarm) -> None:
        self.world = world
        self.harsh = swarm.harsh
        self.duplicates = swarm.duplicates
        self.slow = swarm.slow_delay
        self.delay_us = swarm.delay_us
        self.links: list[Link] = []
        self.judge: Judge | None = None
        self.heartbeats_first = False
        """Whether they and their answers overtake others, also where nothing else does."""
        self._cuts: dict[tuple[str, str], int] = {}

    def calm(self) -> None:
        """No faults any more."""
        self.harsh, self.duplicates, self.slow = False, 0.0, 0.0
        self.delay_us = (100, 1500)
        self._cuts.clear()
        for link in list(self.links):
            link.flow_again()

    def delay(self) -> int:
        """How long one message is on its way, in microseconds."""
        low, high = self.delay_us
        delay = low + self.world.below(high - low)
        if self.slow and self.world.chance(self.slow):
            delay += self.world.random.randrange(50, 3000) * MS
        return delay

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing gets from `source` to `target` now."""
        return (source, target) in self._cuts

    def cut(self, source: str, target: str) -> None:
        """Let nothing through in this direction."""
        self._cuts[source, target] = self.world.time_us

    def heal(self, source: str, target: str) -> None:
        """Let everything through again; connections may have broken meanwhile."""
        if self._cuts.pop((source, target), None) is None:
            return
        for link in [k for k in self.links if {k.source.name, k.target.name} == {source, target}]:
            if self.world.chance(0.5):
                self.lose(link)
            else:
                link.flow_again()

    def connect(self, source: Process, target: Process) -> Link | None:
        """Dial; None when the host refuses or nothing gets through."""
        if not target.alive or self.is_cut(source.name, target.name):
            return None
        if self.is_cut(target.name, source.name):
            return None
        link = Link(self, source, target)
        self.links.append(link)
        link.send(source, None)
        return link

    def lose(self, link: Link, gone: bool = False) -> None:
        """The connection breaks: what is on its way is lost."""
        if not link.up:
            return
        link.up = False
        self.links.remove(link)
        if link.source.alive:
            link.source.run(lambda: link.source.link_down(link, gone))
