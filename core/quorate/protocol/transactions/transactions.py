"""The transactions across partitions of one zone on one agent.

These are the transactions of its clients, which it coordinates, and the parts in partitions whose
primary is here.  Source: docs/protocol.md, section 9.
"""

from collections import deque

from quorate.facts.time import Now
from quorate.protocol.copies.zone_copies import ZoneCopies
from quorate.protocol.messages.transactions import (
    COORDINATOR,
    AskDecision,
    Decide,
    Decided,
    FinishPart,
    PartFinished,
    PartPrepared,
    PreparePart,
    TransactionMessage,
)
from quorate.protocol.transactions.coordinator import Coordinator, Ended, Outcome, PartWanted
from quorate.protocol.transactions.parts import Parts, Telling


class Transactions:
    """The transactions of one zone.  The shell starts them with `begin`, passes each `Telling` that
    was answered to `told`, and takes results from `ended`."""

    def __init__(self, zone: ZoneCopies) -> None:
        self.parts = Parts(zone, self._send)
        self.ended: list[Ended] = []
        self._zone = zone
        self._coordinators: dict[bytes, Coordinator] = {}
        self._next = 1
        self._own: deque[TransactionMessage] = deque()  # messages from this agent to itself

    @property
    def coordinates(self) -> bool:
        """Whether a transaction of this agent's clients has not ended."""
        return bool(self._coordinators)

    @property
    def is_idle(self) -> bool:
        """Whether time alone changes nothing, apart from the open parts of roles."""
        return not (self._coordinators or self._own) and self.parts.waiting.is_idle

    @property
    def has_news(self) -> bool:
        """Whether the shell has a result to take, or parts that wait for locks may continue."""
        return bool(self.ended) or self.parts.waiting.has_unlocked

    def begin(
        self,
        wanted: tuple[PartWanted, ...],
        resp3: bool,
        cargo: object,
        deadline_ms: int,
        now: Now,
    ) -> None:
        """Execute all of `wanted`, in rising order of partition, or nothing of it.

        `now` is an argument because a process that was suspended since the last tick must not judge
        its leases by the time of that tick.
        """
        self._zone.now = now
        self._zone.wake()
        self._begin(wanted, resp3, cargo, deadline_ms)
        self._perform()

    def receive(self, node: str, message: TransactionMessage) -> None:
        """Take in a message of an agent."""
        self._take(node, message)
        self._perform()

    def told(self, waiter: Telling) -> None:
        """Send the message of `waiter`, because everything written before it is acknowledged."""
        self.parts.told(waiter)
        self._perform()

    def refused(self, waiter: Telling, why: bytes) -> None:
        """Handle that a part's write found no room."""
        self.parts.refused(waiter, why)
        self._perform()

    def go_on(self) -> None:
        """Let parts that wait for locks continue, after commands that wait for them."""
        if self.parts.waiting.has_unlocked:
            self.parts.go_on()
        if self._own:
            self._perform()

    def tick(self, now: Now) -> None:
        """Do what is due by time."""
        for coordinator in list(self._coordinators.values()):
            self._look(coordinator)
        self.parts.tick(now)
        self._perform()

    def _send(self, node: str, message: TransactionMessage) -> None:
        if node == self._zone.me.node:
            self._own.append(message)
        elif node:
            self._zone.out.send(node, message)

    def _perform(self) -> None:
        while self._own:
            self._take(self._zone.me.node, self._own.popleft())

    def _take(self, node: str, message: TransactionMessage) -> None:
        coordinator = self._coordinators.get(message.transaction)
        match message:
            case PreparePart():
                self.parts.prepare(node, message)
            case Decide():
                self.parts.decide(node, message)
            case FinishPart():
                self.parts.finish(node, message)
            case AskDecision():
                self.parts.tell_decision(node, message)
            case PartFinished():
                if coordinator is not None:
                    coordinator.finished(message)
                    self._look(coordinator)
                else:
                    self.parts.part_finished(message)
            case PartPrepared():
                self._prepared(node, coordinator, message)
            case Decided():
                self._decided(message)

    def _prepared(self, node: str, coordinator: Coordinator | None, message: PartPrepared) -> None:
        if coordinator is not None:
            self._end(coordinator.prepared(message))
            self._look(coordinator)
        elif message.partition == message.home and message.counter:
            # Our transaction, already given up: its home cannot commit it without our Decide.
            forget = FinishPart(
                message.zone,
                message.transaction,
                message.partition,
                message.home,
                message.term,
                message.counter,
                False,
            )
            self._send(node, forget)

    def _decided(self, message: Decided) -> None:
        coordinator = self._coordinators.pop(message.transaction, None)
        if message.committed:
            confirmed = PartFinished(message.zone, message.transaction, COORDINATOR, message.home)
            self._send(self._zone.primary_of(message.home), confirmed)
        if coordinator is None:
            return
        ended = coordinator.committed() if message.committed else coordinator.not_committed()
        if ended is not None:
            self.ended.append(ended)
        else:
            again = coordinator
            self._begin(again.wanted, again.resp3, again.cargo, again.deadline_ms)

    def _begin(
        self, wanted: tuple[PartWanted, ...], resp3: bool, cargo: object, deadline_ms: int
    ) -> None:
        me = self._zone.me
        name = f"{me.node}/{me.store}/{me.incarnation}/{self._next}".encode()
        self._next += 1
        coordinator = Coordinator(self._zone, name, wanted, resp3, cargo, deadline_ms)
        self._coordinators[name] = coordinator
        self._look(coordinator)

    def _look(self, coordinator: Coordinator) -> None:
        ended = coordinator.look(self._zone.now.boot_ms, self._send)
        self._end(ended)
        if coordinator.is_over or (ended is not None and ended.outcome is Outcome.UNKNOWN):
            self._coordinators.pop(coordinator.name, None)

    def _end(self, ended: Ended | None) -> None:
        if ended is not None:
            self.ended.append(ended)
