"""Executes EXEC over several partitions: for clients here, and this agent's parts for others.

The protocol is in the core (quorate.protocol.transactions).  This module turns commands into its
parts, and the parts' answers into one reply.  The connection waits meanwhile, as for a forwarded
command.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from quorate.facts.keyspace import key_slot, slot_shift
from quorate.protocol.copies.primary import Primary
from quorate.protocol.messages.transactions import PreparePart, Watched
from quorate.protocol.storage import ROW_OVERHEAD_BYTES
from quorate.protocol.transactions.coordinator import Ended, Outcome, PartWanted
from quorate.protocol.transactions.parts import Evaluated
from quorate_agent.clients.connection import ClientConnection, Slot
from quorate_agent.commands.answers import Answers, failure
from quorate_agent.commands.routing.parking import Parking
from quorate_agent.metrics import AgentMetrics
from quorate_agent.resp import replies
from quorate_agent.resp.command import Command
from quorate_agent.resp.tables.table import resolve_all
from quorate_agent.resp.transaction import TOO_LARGE, Execution, NoPlain, Room, Watching, seen
from quorate_agent.resp.view import View

PART_BYTES_MAX = 72 * 1024 * 1024
"""Bound on what is asked of a part, and on what its row holds: both fit into a frame between
agents."""

WORD_BYTES = 8
"""Overhead of a word, in bytes."""

_PLAIN_REFUSED = replies.error(
    b"ERR not executed: the replies of this transaction, or its commands without keys, take too"
    b" much; use smaller ones"
)
_HELLO_REFUSED = replies.error(
    b"ERR HELLO is not allowed in a transaction over several partitions: send it before MULTI"
)


class Across:
    """The transactions over several partitions of one zone's endpoint."""

    def __init__(self, answers: Answers, parking: Parking, metrics: AgentMetrics) -> None:
        self._answers = answers
        self._parking = parking
        self._transactions = answers.replicas.transactions
        self._transactions.parts.evaluate = self._evaluate
        record = answers.replicas.record
        self._shift = slot_shift(record.partitions)
        self._row_overhead = 0 if record.persistent else ROW_OVERHEAD_BYTES
        self._view = View()
        self._metrics = metrics

    def take_on(
        self,
        client: ClientConnection,
        command: Command,
        args: list[bytes],
        now: int,
        slot: Slot | None,
    ) -> int:
        """Begin a command whose keys are of several slots; only EXEC may have them.

        Returns a slot of its keys if they are all of one partition, for the caller to execute it as
        usual.  Returns -1 if nothing is left to be done: it has begun, or was answered."""
        execution = command.handler
        # A forwarded EXEC has another handler: the one that remembers its reply.
        if command.name == b"exec" and len({key_slot(key) >> self._shift for key in args[1:]}) == 1:
            return key_slot(args[1])
        if not isinstance(execution, Execution):
            self._answers.say(client, command.family, slot, replies.CROSSSLOT)
            return -1
        if any(queued.name == b"hello" for queued, _ in execution.queued):
            self._answers.say(client, command.family, slot, _HELLO_REFUSED)
            return -1
        wanted = _wanted(execution, self._shift)
        if any(part.byte_count > PART_BYTES_MAX for part in wanted):
            self._answers.say(client, command.family, slot, TOO_LARGE)
            return -1
        slot = self._parking.place(client, command, args, now, slot)
        if slot is not None:
            self._begin(wanted, slot)
        return -1

    def _begin(self, wanted: tuple[PartWanted, ...], slot: Slot) -> None:
        resp3, now = slot.connection.state.resp3, self._answers.clock.now()
        self._transactions.begin(wanted, resp3, slot, slot.deadline_ms, now)
        self._answers.turn()

    def may_look(self, command: Command, slot: int) -> bool:
        """Return whether `command` is a WATCH that this agent may execute for keys it does not
        serve.

        It may when keys of another slot than `slot` were watched here before: then this agent
        coordinates the transaction."""
        watching = command.handler
        if not isinstance(watching, Watching) or not watching.watched:
            return False
        return key_slot(next(iter(watching.watched))) != slot

    def look(self, slot: Slot, partition: int) -> None:
        """Execute a WATCH for keys whose primary is another agent."""
        self._begin((part_wanted(partition, tuple(slot.args[1:]), (), ()),), slot)

    def settle(self) -> None:
        """Answer the transactions that have ended, and let parts go on that waited for locks."""
        self._transactions.go_on()
        ended = self._transactions.ended
        if not ended:
            return
        self._transactions.ended = []
        for each in ended:
            slot = each.cargo
            assert isinstance(slot, Slot)
            client = slot.connection
            watching = slot.command.handler
            if isinstance(watching, Watching):
                self._answers.fulfil(client, slot, _watched(watching, slot, each))
                continue
            self._metrics.transactions.labels(each.outcome.value).inc()
            if each.outcome is Outcome.COMMITTED:
                execution = slot.command.handler
                assert isinstance(execution, Execution)
                for key in execution.keys_to_write():
                    client.written |= 1 << (key_slot(key) >> self._shift)
            self._answers.fulfil(client, slot, self._reply(slot, each))

    def _reply(self, slot: Slot, ended: Ended) -> bytes:
        match ended.outcome:
            case Outcome.COMMITTED:
                execution = slot.command.handler
                assert isinstance(execution, Execution)
                return _reply(execution, ended.answers, self._shift)
            case Outcome.REFUSED:
                return ended.refusal
            case Outcome.TOO_LARGE:
                return TOO_LARGE
            case Outcome.NOT_EXECUTED:
                return replies.CLUSTERDOWN
            case Outcome.UNKNOWN:
                return replies.UNKNOWN_OUTCOME

    def _evaluate(self, role: Primary, ask: PreparePart) -> Evaluated:
        """Return what a part's commands would write and answer."""
        view = self._view
        view.now_ms = self._answers.clock.wall_ms()
        view.resp3 = ask.resp3
        view.copy = role.copy
        show = self._answers.remove_expired if ask.looks else self._answers.tell_expired
        show(role, ask.keys, view.now_ms)
        view.is_pending, view.waits = role.is_pending if role.waiters else None, False
        if ask.looks:
            looked = tuple([b"%d %d" % seen(view, key) for key in ask.keys])
            view.waits = False  # the core's Parts does the waiting
            return Evaluated((), looked)
        found = resolve_all(ask.commands)
        if isinstance(found, bytes):
            return Evaluated((), (), found)
        if any(command.grows for command, _ in found) and (problem := self._answers.no_room()):
            return Evaluated((), (), problem)
        watched = {key: (term, counter) for key, term, counter in ask.watched}
        execution = Execution(found, watched, NoPlain(self._answers.clock.thread_cpu_s))
        try:
            answers = execution.answers(view)
        except Exception as error:
            view.operations.clear()
            answers = failure(b"exec", error)
        operations = tuple(view.operations)
        view.operations.clear()
        view.waits = False
        if isinstance(answers, bytes):
            return Evaluated((), (), answers)
        rows = [word or b"" for key, value, _ in operations for word in (key, value)]
        room = len(operations) * self._row_overhead
        if _packed(ask.keys) + _packed(rows) + _packed(answers) + room > PART_BYTES_MAX:
            return Evaluated((), (), TOO_LARGE)
        return Evaluated(operations, tuple(answers))


def _watched(watching: Watching, slot: Slot, ended: Ended) -> bytes:
    """Note the rows that WATCH has seen, and return its reply."""
    if ended.outcome is not Outcome.COMMITTED:
        return replies.CLUSTERDOWN
    (answers,) = ended.answers.values()
    for key, answer in zip(slot.args[1:], answers, strict=True):
        term, counter = answer.split()
        watching.note(key, (int(term), int(counter)))
    return replies.OK


def _packed(words: Iterable[bytes]) -> int:
    """Return how many bytes the words take in a message or a row, estimated slightly too high."""
    return sum(len(word) + WORD_BYTES for word in words)


def part_wanted(
    partition: int,
    keys: tuple[bytes, ...],
    commands: tuple[tuple[bytes, ...], ...],
    watched: tuple[Watched, ...],
) -> PartWanted:
    """Return one part, with the number of bytes that its PreparePart takes."""
    words = [word for command in commands for word in command]
    byte_count = _packed(words) + _packed(keys) + _packed([key for key, _, _ in watched])
    return PartWanted(partition, keys, commands, watched, byte_count + 16 * len(watched))


def _wanted(execution: Execution, shift: int) -> tuple[PartWanted, ...]:
    """Return the parts of a transaction, in rising order of partition."""
    keys: dict[int, dict[bytes, None]] = {}
    commands: dict[int, list[tuple[bytes, ...]]] = {}
    watched: dict[int, list[Watched]] = {}
    for command, words in execution.queued:
        if command.is_keyed:
            touched = command.keys(words)
            partition = key_slot(touched[0]) >> shift
            keys.setdefault(partition, {}).update(dict.fromkeys(touched))
            commands.setdefault(partition, []).append(tuple(words))
    for key, row in execution.watched.items():
        partition = key_slot(key) >> shift
        keys.setdefault(partition, {})[key] = None
        watched.setdefault(partition, []).append((key, *row))
    return tuple(
        [
            part_wanted(
                partition,
                tuple(keys[partition]),
                tuple(commands.get(partition, ())),
                tuple(watched.get(partition, ())),
            )
            for partition in sorted(keys)
        ]
    )


def _reply(execution: Execution, answers: Mapping[int, tuple[bytes, ...]], shift: int) -> bytes:
    """Return the reply to EXEC: the answers of the parts, in the order of the commands.

    The parts are written by now, so commands without keys that take too much are refused alone."""
    left = {partition: iter(each) for partition, each in answers.items()}
    room = Room(execution.plain)
    room.left_bytes -= sum(len(answer) for each in answers.values() for answer in each)
    found: list[bytes] = []
    for command, words in execution.queued:
        if command.is_keyed:
            found.append(next(left[key_slot(command.keys(words)[0]) >> shift]))
            continue
        found.append(_PLAIN_REFUSED if room.problem() else _plain(execution, command, words))
        room.count(found[-1])
    return replies.array(found)


def _plain(execution: Execution, command: Command, words: list[bytes]) -> bytes:
    try:
        return execution.plain(command, words)
    except Exception as error:
        return failure(command.name, error)
