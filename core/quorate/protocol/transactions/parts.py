"""A primary's part in transactions across partitions: lock, prepare, decide, finish.

A prepared part is a row of its partition, written by an ordinary update, and so are the decision
and its removal.  They are replicated, moved, taken over by the next primary and undone like any
other row.  So every step may be repeated, also at the next primary, and no activation waits for a
decision.  A part is committed only by a decision that names the very update that prepared it;
without such a decision it is aborted.  Source: docs/protocol.md, section 9.
"""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import msgspec

from quorate.facts.keyspace import RESERVED
from quorate.facts.time import Now
from quorate.facts.topology import Holder
from quorate.protocol.copies.open_part import OpenPart
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.waiters import Waiter
from quorate.protocol.copies.zone_copies import ZoneCopies
from quorate.protocol.messages.transactions import (
    BYTES_PER_MS,
    COORDINATOR,
    AskDecision,
    Decide,
    Decided,
    Decision,
    FinishPart,
    Part,
    PartFinished,
    PartPrepared,
    PreparePart,
    TransactionMessage,
)
from quorate.protocol.storage import ROW_OVERHEAD_BYTES, Operation
from quorate.protocol.transactions.lock_queue import LockQueue

INDEX_KEY = RESERVED + b"transactions"
"""The key of the row that lists the transactions with a part or a decision in the partition."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Part | Decision).decode
_decode_index = msgspec.msgpack.Decoder(tuple[bytes, ...]).decode


class Evaluated(NamedTuple):
    """The result of a part's commands: their writes and answers, or the reason of a refusal.

    For a PreparePart that only `looks`, the answers say how the rows of its keys are.
    """

    operations: tuple[Operation, ...]
    answers: tuple[bytes, ...]
    refusal: bytes = b""


Evaluate = Callable[[Primary, PreparePart], Evaluated]
Send = Callable[[str, TransactionMessage], None]
"""Sends to a node.  An empty node means that a partition has no primary: nothing is sent."""


class Telling(Waiter):
    """A message that is sent to `node` once everything written so far is acknowledged."""

    __slots__ = ("message", "node", "partition")

    has_client: ClassVar[bool] = False
    needs_quorum: ClassVar[bool] = True

    def __init__(
        self,
        keys: tuple[bytes | None, ...],
        partition: int,
        node: str,
        message: TransactionMessage | None,
    ) -> None:
        super().__init__(keys, None, 0)
        self.partition = partition
        self.node = node
        self.message = message


def part_key(transaction: bytes) -> bytes:
    """Return the key of the row that holds a transaction's part or its decision."""
    return RESERVED + b"transaction/" + transaction


def listed_transactions(index: bytes | None) -> tuple[bytes, ...]:
    """Return the transactions that the row of INDEX_KEY lists; None: it has no value."""
    return () if index is None else _decode_index(index)


def load(role: Primary, now_ms: int) -> None:
    """Load the role's parts and locks from its partition's rows.

    Called when the role begins to serve, and after a batch was refused.
    """
    role.parts.clear()
    role.locks.clear()
    index = role.copy.get(INDEX_KEY)
    for transaction in listed_transactions(None if index is None else index.value):
        row = role.copy.get(part_key(transaction))
        if row is not None and row.value is not None:
            state = _decode(row.value)
            _note(role, transaction, OpenPart(row.term, row.counter, state, now_ms))


def _note(role: Primary, transaction: bytes, part: OpenPart) -> None:
    role.parts[transaction] = part
    if isinstance(part.state, Part):
        role.locks.update(dict.fromkeys(part.state.keys, transaction))


class Parts:
    """The parts of transactions in the partitions whose primary is here.

    `evaluate` executes the commands of a part; `send` sends a message.
    """

    def __init__(self, zone: ZoneCopies, send: Send) -> None:
        self.evaluate: Evaluate | None = None
        self._zone = zone
        self._send = send
        self.waiting = LockQueue(zone)

    # --- preparing -------------------------------------------------------------------------------

    def prepare(self, node: str, ask: PreparePart) -> None:
        """Lock the keys and execute the commands, or queue the part until its locks are free."""
        role = self._serving(ask.partition)
        if role is None or self.evaluate is None or self._has_ended(ask.coordinator):
            return  # it is asked again; its process may be registered by then
        known = role.parts.get(ask.transaction)
        if known is not None:
            self._tell_prepared(role, node, ask.transaction, known)
        elif self.waiting.may_lock(role, ask):
            self.waiting.remove(ask.partition, ask.transaction)
            self._prepare(role, node, ask, self.evaluate(role, ask))
        else:
            self.waiting.add(node, ask)

    def _prepare(self, role: Primary, node: str, ask: PreparePart, found: Evaluated) -> None:
        zone, partition = self._zone, ask.partition
        if found.refusal or ask.looks:
            told = PartPrepared(
                zone.uid,
                ask.transaction,
                partition,
                ask.home,
                0,
                0,
                found.answers,
                found.refusal,
            )
            self._tell(role, ask.keys, node, told)
            return
        count = 0 if zone.record.persistent else len(found.operations)
        room = bytes(ROW_OVERHEAD_BYTES * count)
        state = Part(ask.home, ask.coordinator, ask.keys, found.operations, found.answers, room)
        term, counter = role.term, role.copy.lwm + 1
        part = OpenPart(term, counter, state, zone.now.boot_ms)
        part.told = (node, zone.now.boot_ms)
        _note(role, ask.transaction, part)
        prepared = PartPrepared(
            zone.uid, ask.transaction, partition, ask.home, term, counter, found.answers, b""
        )
        rows: tuple[Operation, ...] = ((part_key(ask.transaction), _encode(state), 0),)
        self._write(role, (*rows, _index(role)), node, prepared)
        if role.changed is not None:
            # The client may be answered after the decision, before these rows are written here.
            role.changed(found.operations)

    def _tell_prepared(self, role: Primary, node: str, transaction: bytes, part: OpenPart) -> None:
        if isinstance(part.state, Part):
            now_ms, (told, told_ms) = self._zone.now.boot_ms, part.told
            if (
                told == node
                and now_ms - told_ms < sum(map(len, part.state.answers)) // BYTES_PER_MS
            ):
                return  # the earlier reply may be in flight
            part.told = (node, now_ms)
            message = PartPrepared(
                self._zone.uid,
                transaction,
                role.copy.partition,
                part.state.home,
                part.term,
                part.counter,
                part.state.answers,
                b"",
            )
            self._tell(role, (part_key(transaction),), node, message)

    # --- deciding --------------------------------------------------------------------------------

    def decide(self, node: str, ask: Decide) -> None:
        """At the home: commit the transaction unless it was aborted."""
        role = self._serving(ask.partition)
        if role is None:
            return
        known = role.parts.get(ask.transaction)
        part = None if known is None else known.state
        key = part_key(ask.transaction)
        if known is not None and isinstance(part, Part) and known.is_named(ask):
            decision = Decision(part.coordinator, ask.others)
            self._unlock(role, part)
            known.decide(decision)
            decided = Decided(ask.zone, ask.transaction, ask.partition, True)
            self._write(role, (*part.operations, (key, _encode(decision), 0)), node, decided)
        else:
            committed = isinstance(part, Decision)
            said = Decided(ask.zone, ask.transaction, ask.partition, committed)
            self._tell(role, (key,), node, said)

    def finish(self, node: str, ask: FinishPart) -> None:
        """Write what the part kept, or discard it."""
        role = self._serving(ask.partition)
        if role is None:
            return
        if not ask.commit:
            self.waiting.remove(ask.partition, ask.transaction)
        known = role.parts.get(ask.transaction)
        done = PartFinished(ask.zone, ask.transaction, ask.partition, ask.home)
        whichever = not ask.commit and not ask.counter
        if (
            known is not None
            and isinstance(known.state, Part)
            and (whichever or known.is_named(ask))
        ):
            self._close(role, ask.transaction, ask.commit, node, done)
        else:
            # The named part is finished.  A part that is here was prepared by a duplicate request.
            self._tell(role, (part_key(ask.transaction),), node, done)

    def part_finished(self, message: PartFinished) -> None:
        """At the home: note that a part is finished, or that the coordinator knows the outcome."""
        role = self._serving(message.home)
        known = None if role is None else role.parts.get(message.transaction)
        if role is not None and known is not None and isinstance(known.state, Decision):
            self._strike_off(role, message.transaction, known, message.partition)

    def _strike_off(
        self, role: Primary, transaction: bytes, part: OpenPart, partition: int
    ) -> None:
        """Note that nothing is left to do for `partition`; after the last one, forget the
        decision."""
        part.left.pop(partition, None)
        if not part.left:
            self._close(role, transaction, False, "", None)

    def tell_decision(self, node: str, ask: AskDecision) -> None:
        """At the home: reply what became of the transaction, unless it is undecided."""
        role = self._serving(ask.home)
        if role is None or role.may_be_lost(part_key(ask.transaction)):
            return  # it is asked again
        known = role.parts.get(ask.transaction)
        commit = False
        if known is not None:
            if isinstance(known.state, Part):
                return
            commit = (ask.partition, ask.term, ask.counter) in known.state.others
        self._send(
            node,
            FinishPart(
                ask.zone,
                ask.transaction,
                ask.partition,
                ask.home,
                ask.term,
                ask.counter,
                commit,
            ),
        )

    # --- time ------------------------------------------------------------------------------------

    def tick(self, now: Now) -> None:
        """Have decided transactions finished, and ask about parts that stay undecided."""
        self.waiting.tick(now)
        self.waiting.remove_ended(self._has_ended)
        for role in self._zone.roles.values():
            if role.parts and role.serves(now.boot_ms):
                for transaction, part in list(role.parts.items()):
                    self._look_after(role, transaction, part, now)

    def _look_after(self, role: Primary, transaction: bytes, part: OpenPart, now: Now) -> None:
        settings, state = self._zone.settings, part.state
        if isinstance(state, Decision):
            self._drive(role, transaction, part, state)
            return
        age = now.boot_ms - part.since_ms
        abandoned = self._has_left(state.coordinator) or age >= settings.transaction_bound_ms
        is_home = state.home == role.copy.partition
        if is_home and abandoned:
            self._close(role, transaction, False, "", None)
        elif not abandoned and age < settings.retry_ms:
            pass  # most are decided in a few milliseconds
        elif not part.is_due(now.boot_ms, settings):
            pass
        elif is_home:
            # The coordinator sends Decide, or replies that it has given the transaction up.
            self._tell_prepared(role, state.coordinator.node, transaction, part)
        else:
            ask = AskDecision(
                self._zone.uid,
                transaction,
                state.home,
                role.copy.partition,
                part.term,
                part.counter,
            )
            self._send(self._zone.primary_of(state.home), ask)

    def _drive(self, role: Primary, transaction: bytes, part: OpenPart, decision: Decision) -> None:
        """At the home: have the remaining parts committed, once the decision is acknowledged."""
        zone = self._zone
        if role.may_be_lost(part_key(transaction)) or not part.is_due(
            zone.now.boot_ms, zone.settings
        ):
            return
        home = role.copy.partition
        for partition, (term, counter) in list(part.left.items()):
            if partition != COORDINATOR:
                message = FinishPart(zone.uid, transaction, partition, home, term, counter, True)
                self._send(zone.primary_of(partition), message)
            elif self._has_ended(decision.coordinator):
                self._strike_off(role, transaction, part, COORDINATOR)
            else:
                decided = Decided(zone.uid, transaction, home, True)
                self._send(decision.coordinator.node, decided)

    def _has_left(self, coordinator: Holder) -> bool:
        """Return whether the coordinator is known to be gone: its undecided parts are aborted."""
        return self._has_ended(coordinator) or coordinator.node not in self._zone.online

    def _has_ended(self, coordinator: Holder) -> bool:
        """Return whether the coordinator's process has ended, so that it never asks again.

        It was registered when its part was prepared.  If its node now has another store, that store
        has replaced it.
        """
        registered = self._zone.registered.get(coordinator.node)
        if registered is None or registered > coordinator.incarnation:
            return True
        return self._zone.stores.get(coordinator.node) != coordinator.store

    def told(self, waiter: Telling) -> None:
        """Send the message of `waiter`, because everything written before it is acknowledged."""
        message = waiter.message
        if isinstance(message, Decided) and message.committed:
            role = self._serving(waiter.partition)  # one that has frozen writes nothing more
            part = None if role is None else role.parts.get(message.transaction)
            if role is not None and part is not None and isinstance(part.state, Decision):
                self._drive(role, message.transaction, part, part.state)
                return  # `_drive` tells the coordinator
        if message is not None:
            self._send(waiter.node, message)

    def refused(self, waiter: Telling, why: bytes) -> None:
        """Refuse a part whose row found no room."""
        message, role = waiter.message, self._serving(waiter.partition)
        if (
            isinstance(message, PartPrepared)
            and role is not None
            and message.transaction not in role.parts
        ):
            none = msgspec.structs.replace(message, term=0, counter=0, answers=(), refusal=why)
            self._send(waiter.node, none)

    # --- writing ---------------------------------------------------------------------------------

    def _serving(self, partition: int) -> Primary | None:
        role = self._zone.primaries[partition]
        if role is None or not role.serves(self._zone.now.boot_ms):
            return None
        return role

    def _tell(
        self, role: Primary, keys: tuple[bytes, ...], node: str, message: TransactionMessage
    ) -> None:
        """Send what was read of `keys` once their last writes are acknowledged."""
        if any(map(role.may_be_lost, keys)):
            role.wait(Telling((), role.copy.partition, node, message))
        else:
            self._send(node, message)

    def _write(
        self,
        role: Primary,
        operations: tuple[Operation, ...],
        node: str,
        message: TransactionMessage | None,
    ) -> None:
        """Write one update, and send `message` once it is acknowledged."""
        role.write(operations)
        self._zone.commands_wrote(role)
        keys = tuple([key for key, _, _ in operations])
        role.wait(Telling(keys, role.copy.partition, node, message))

    def _unlock(self, role: Primary, part: Part) -> None:
        for key in part.keys:
            role.locks.pop(key, None)
        self.waiting.unlocked(role.copy.partition)

    def _close(
        self,
        role: Primary,
        transaction: bytes,
        commit: bool,
        node: str,
        message: TransactionMessage | None,
    ) -> None:
        """End a part: write what it kept (`commit`), or discard it."""
        part = role.parts.pop(transaction)
        operations: tuple[Operation, ...] = ()
        if isinstance(part.state, Part):
            self._unlock(role, part.state)
            operations = part.state.operations if commit else ()
        rows: tuple[Operation, ...] = ((part_key(transaction), None, 0),)
        self._write(role, (*operations, *rows, _index(role)), node, message)

    def go_on(self) -> None:
        """Retry parts whose locks may be free, in order of arrival.

        Called after the commands that wait for the same keys.
        """
        for node, ask in self.waiting.take_unlocked():
            self.prepare(node, ask)


def _index(role: Primary) -> Operation:
    return INDEX_KEY, _encode(tuple(role.parts)) if role.parts else None, 0
