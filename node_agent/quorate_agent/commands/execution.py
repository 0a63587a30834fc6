"""Decides which commands are executed now, wait, are redirected or parked.

This is the path from a parsed command to the replicas.  It awaits nothing: a command that has to
wait leaves a slot in its connection's queue.  The endpoint decides when commands are executed, and
sets the time they see.
"""

from __future__ import annotations

from binascii import crc_hqx
from functools import partial

from quorate.facts.keyspace import RESERVED, TAG, is_reserved, key_slot, slot_shift
from quorate.protocol.copies.primary import Primary
from quorate.protocol.storage import Operation
from quorate_agent.clients.connection import ClientConnection, Slot
from quorate_agent.clients.memory import WATCHED_BYTES
from quorate_agent.clients.meter import ERROR
from quorate_agent.clients.turn_share import LARGE_BYTES, TurnShare
from quorate_agent.commands.answers import Answers
from quorate_agent.commands.large_commands import LargeCommands, is_exec
from quorate_agent.commands.pipeline.joined_reads import join_reads
from quorate_agent.commands.pipeline.joined_writes import join_puts, join_writes
from quorate_agent.commands.routing.across import Across
from quorate_agent.commands.routing.parking import Parking
from quorate_agent.commands.routing.redirects import Redirects
from quorate_agent.commands.waits import Waits
from quorate_agent.commands.zone.flush import flush_all, may_flush
from quorate_agent.commands.zone.key_lists import KeyLists, may_list
from quorate_agent.commands.zone.overview import ZoneOverview
from quorate_agent.resp import replies
from quorate_agent.resp.command import (
    ABOUT_KEYS,
    CONNECTION,
    READ,
    TRANSACTION,
    UNKNOWN,
    Command,
    command_slot,
)
from quorate_agent.resp.commands.agent.cluster import TABLES
from quorate_agent.resp.commands.session.pubsub import refused_while_subscribed
from quorate_agent.resp.session import KeysRequest, WaitRequest
from quorate_agent.resp.stepped import Stepped
from quorate_agent.resp.tables.table import DISPATCH, resolve
from quorate_agent.resp.transaction import Call
from quorate_agent.resp.view import View

LONG_BYTES = 64 * 1024
"""After a reply longer than this, execution goes on only if the client reads."""


class CommandExecution:
    """Executes one zone's commands on this agent.

    `view` is what the commands see; the caller has set its time and protocol version.
    `large` says when a command that writes much is executed."""

    def __init__(
        self,
        answers: Answers,
        parking: Parking,
        across: Across,
        overview: ZoneOverview,
        view: View,
        redirects: Redirects,
        waits: Waits,
        key_lists: KeyLists,
        share: TurnShare,
        large: LargeCommands,
    ) -> None:
        replicas = answers.replicas
        self._replicas = replicas
        self._primaries = replicas.primaries
        self._surveys = replicas.surveys
        self._shift = slot_shift(replicas.record.partitions)
        self._answers = answers
        self._overview = overview
        self._tracking = overview.tracking
        self._parking = parking
        self._across = across
        self._say, self._unblock, self._meter = answers.say, answers.unblock, answers.meter
        self._tell_expired, self._full = answers.tell_expired, answers.full
        self._view = view
        self._redirects = redirects
        self._waits = waits
        self._key_lists = key_lists
        self._share = share
        self._large = large
        self._turn = answers.turn
        self._why_full = answers.why_full

    def execute_all(self, client: ClientConnection, commands: list[list[bytes]], now: int) -> None:
        """Execute commands from the end of the list, and remove them, until one blocks or ends the
        connection."""
        state, share = client.state, self._share
        is_close = share.slow_log.is_close
        while commands and not (client.blocked or state.closing):
            last: list[bytes] | None = None
            if state.in_mode:
                last = self._execute_in_mode(client, commands, now)
            elif is_close:
                last = self._execute_each(client, commands, now)
            elif (number := len(commands)) > 1 and (
                said := join_reads(
                    self._view, commands, self._primaries, self._surveys, self._shift, now
                )
            ):
                self._meter.at_once[READ] += number
                client.answer(said)
            elif number < 2 or not self._put_each(client, commands, now):
                last = self._execute_each(client, commands, now)
            if not share.goes_on() and not self.look(client, last):
                return

    def look(self, client: ClientConnection, args: list[bytes] | None) -> bool:
        """Log the command that has just been executed if it was slow.

        `args` is None if it is not to be logged.  Returns whether there is time for another."""
        took_s, state = self._share.command_took(), client.state
        if args is not None:
            self._share.slow_log.note(args, took_s, self._view.now_ms, state.addr, state.name)
        return self._share.has_time()

    def _execute_in_mode(
        self, client: ClientConnection, commands: list[list[bytes]], now: int
    ) -> list[bytes] | None:
        """Execute the next command of a connection that has subscribed, tracks, or has sent MULTI.

        Returns its words if it is to be timed."""
        state, refused, args = client.state, b"", commands.pop()
        if state.transaction is not None and is_exec(args):
            size = state.transaction.written_bytes(partial(self._stored_bytes, now))
            if not self._large.admits(client, args, size, now):
                commands.append(args)  # before it is executed: it could not be a second time
                return None
        if state.subscribed and not isinstance(command := resolve(args), bytes):
            refused = refused_while_subscribed(state, command)
        if refused:
            self._say(client, CONNECTION, None, refused)
            return None
        tracks = state.tracking is not None or state.transaction is not None
        if tracks:
            self._tracking.before(client, args, now)
        if state.transaction is None:
            alone = [args]
            last = self._execute_each(client, alone, now)
            commands.extend(alone)  # it is there if it has to wait in the backlog
        else:
            last = self._queue(client, args, now)
        if tracks:
            self._tracking.after(client, args)
        return last

    def execute(
        self,
        client: ClientConnection,
        args: list[bytes],
        now: int,
        slot: Slot | None,
        command: Command | None = None,
    ) -> None:
        """Execute one command; `slot` is its place in the queue if it has waited before."""
        self._share.begin_command()
        last = self._execute_each(client, [args], now, slot, command)
        self.look(client, last)

    def _execute_each(
        self,
        client: ClientConnection,
        commands: list[list[bytes]],
        now: int,
        slot: Slot | None = None,
        known: Command | None = None,
    ) -> list[bytes] | None:
        """Do as `execute_all`, but stop also when a command changes the connection's mode.

        For a single command, `slot` (its place in the queue) and `known` (which command it is) may
        be given.  Others that write much stay in the list when they have to wait for their turn.
        Returns the words of the last command; None if it was not executed."""
        view, primaries, shift = self._view, self._primaries, self._shift
        queue, out, at_once = client.queue, client.out, self._meter.at_once
        keys: tuple[bytes | None, ...]
        at = -1  # the partition that `role` and `view` show; -1 once that may have changed
        share, is_first = self._share, True
        large, may_wait = self._large, slot is None and known is None
        last: list[bytes] | None = None
        while commands:
            if is_first:
                is_first = False
            elif not share.goes_on() and not self.look(client, last):
                return None
            args = last = commands.pop()
            command = known or DISPATCH.get(args[0])
            if command is None or (command.usual_words != len(args) and command is not known):
                resolved = resolve(args)
                if isinstance(resolved, bytes):
                    if isinstance(args[0], replies.RefusedWatch):
                        client.state.unwatched.add(RESERVED)  # stands for keys that were dropped
                    self._say(client, UNKNOWN, None, resolved)
                    last = None
                    continue
                command = resolved
            if command.single_key:
                key = args[1]
                number = key_slot(key) if TAG in key else crc_hqx(key, 0) & 16383
                if key < b"\1" and is_reserved(key):
                    self._say(client, command.family, slot, replies.RESERVED_KEY)
                    continue
            elif not command.is_keyed:
                at = -1
                last = self._execute_other(client, command, args, now, slot)
                if client.blocked or client.state.closing or client.state.in_mode:
                    return last
                continue
            else:
                if any(map(is_reserved, command.keys(args))):
                    self._say(client, command.family, slot, replies.RESERVED_KEY)
                    continue
                number = command_slot(command, args)
                if number < 0:
                    at = -1
                    number = self._across.take_on(client, command, args, now, slot)
                    if number < 0:
                        if client.blocked:
                            return None
                        last = None
                        continue
            partition = number >> shift
            if partition != at:  # else nothing has changed since the last command
                at = -1
                found = primaries[partition]
                if found is None or found.lease.ms <= now or found.frozen:
                    copy = self._redirects.readable(client, command, partition)
                    if copy is None:
                        self._redirects.send_on(client, command, args, number, now, slot)
                        if client.blocked:
                            return None
                        last = None
                        continue
                    view.is_pending = None
                    view.copy = copy
                    try:
                        reply = command.handler(view, args)
                    except Exception as error:
                        self._failed(client, command, slot, error)
                        return None
                    view.operations.clear()
                    self._say(client, command.family, slot, reply)
                    if len(reply) > LONG_BYTES and not _is_read(client):
                        return last
                    continue
                role = found
                if role.locks and not role.locks.keys().isdisjoint(command.keys(args)):
                    # Until the transaction that holds the locks is decided.
                    self._parking.park(client, command, args, now, slot, role)
                    return None
                view.is_pending = role.is_pending if role.waiters else None
                view.copy = role.copy
                if not role.locks:
                    at = partition
            watches = known is not None and known.name == b"watch"
            if watches or role.changed is not None:
                show = self._answers.remove_expired if watches else self._tell_expired
                show(role, command.keys(args), view.now_ms)
                view.is_pending = role.is_pending if role.waiters else None
            if command.grows and self._why_full():
                self._say(client, command.family, slot, self._full())
                continue
            if (
                (large.running or large.waiting)
                and may_wait
                and command.may_rewrite(len(args))
                and not large.admits(client, args, self._stored_bytes(now, args[1]), now)
            ):
                commands.append(args)  # before a long value is unpacked and made anew in vain
                return None
            try:
                reply = command.handler(view, args)
            except Exception as error:
                self._failed(client, command, slot, error)
                return None
            if view.operations:
                if (
                    may_wait
                    and command.puts_each is None  # else it writes its own words
                    and not self._admits_write(client, args, now)
                ):
                    commands.append(args)
                    return None
                count, size = 1, 0
                if commands and command.joins and at >= 0 and not share.slow_log.is_close:
                    reply, count, size = join_writes(view, commands, command, reply, at, shift)
                operations = tuple(view.operations)
                view.operations.clear()
                keys = self._write(client, role, operations)
            elif view.waits:
                keys, count, size = (), 1, 0
                self._turn()
            elif slot is None:
                (queue or out).append(reply)  # `_say`, inlined: it is called very often
                at_once[command.family] += 1
                if reply[0] == ERROR:
                    self._meter.fail(command.family, reply)
                if len(reply) > LONG_BYTES and not _is_read(client):
                    return last
                continue
            else:
                self._say(client, command.family, slot, reply)
                continue
            view.waits = False
            if slot is None:
                waiter = Slot(client, command, args, reply, keys, now, count, size)
                queue.append(waiter)
            else:
                waiter = slot
                slot.keys, slot.reply = keys, reply
                self._unblock(slot)
            role.wait(waiter)
            view.is_pending = role.is_pending
        return last

    def _failed(
        self, client: ClientConnection, command: Command, slot: Slot | None, error: Exception
    ) -> None:
        """Answer a command whose handler has failed; nothing of it was written."""
        self._view.operations.clear()
        self._view.waits = False
        self._answers.failed(client, command, slot, error)

    def _stored_bytes(self, now: int, key: bytes) -> int:
        """Return the length of the key's value; 0 if this agent does not serve it."""
        role = self._primaries[key_slot(key) >> self._shift]
        row = role.copy.get(key) if role is not None and role.serves(now) else None
        return len(row.value or b"") if row is not None else 0

    def _admits_write(self, client: ClientConnection, args: list[bytes], now: int) -> bool:
        """Return whether what the command has gathered may be written now; if not, forget it."""
        view = self._view
        size = sum([len(value) for _, value, _ in view.operations if value])
        if size < LARGE_BYTES or self._large.admits(client, args, size, now):
            return True
        view.operations.clear()
        view.waits = False
        return False

    def _put_each(self, client: ClientConnection, commands: list[list[bytes]], now: int) -> bool:
        """Execute the first of these commands as joined puts; return False if they must run one by
        one."""
        puts = join_puts(commands, self._primaries, self._shift, now)
        if puts is None or self._why_full():
            return False
        command, number, size, updates, roles = puts
        first = commands[: -number - 1 : -1]
        del commands[-number:]
        for role, operations in updates:
            keys = self._write(client, role, operations)
        if not roles:
            reply = replies.OK * number
            slot = Slot(client, command, first[0], reply, keys, now, number, size)
            client.queue.append(slot)
            role.wait(slot)
            return True
        for role, args in zip(roles, first, strict=True):
            slot = Slot(client, command, args, replies.OK, (args[1],), now)
            client.queue.append(slot)
            role.wait(slot)
        return True

    def _write(
        self, client: ClientConnection, role: Primary, operations: tuple[Operation, ...]
    ) -> tuple[bytes | None, ...]:
        """Write the operations as one update; return the keys whose acknowledgement is due."""
        if not role.turn:
            self._replicas.commands_wrote(role)
            self._turn()
        role.write(operations)
        client.written |= 1 << role.copy.partition
        if len(operations) == 1:
            return (operations[0][0],)
        return tuple([key for key, _, _ in operations])

    def _queue(self, client: ClientConnection, args: list[bytes], now: int) -> list[bytes] | None:
        """Keep a command after MULTI for EXEC, unless it is wrong or belongs to another node.

        Returns its words if it was executed."""
        command = resolve(args)
        if isinstance(command, Command) and command.ends_queueing:
            return self._execute_each(client, [args], now, None, command)
        self._say(client, TRANSACTION, None, self._redirects.queue(client, command, args))
        return None

    def _execute_other(
        self,
        client: ClientConnection,
        command: Command,
        args: list[bytes],
        now: int,
        slot: Slot | None,
    ) -> list[bytes] | None:
        """Execute a command without keys.  Returns the words to be logged if it was slow."""
        # Clients follow a table that names a dead agent, and some give up then.
        names_dead = command.name in TABLES and self._overview.expects_primary(now)
        if names_dead or (command.name in ABOUT_KEYS and not may_list(self._replicas, now)):
            self._parking.park(client, command, args, now, slot)
            return None
        try:
            answer = command.handler(client.session, args)
        except Exception as error:
            self._failed(client, command, slot, error)
            return None
        if isinstance(answer, Call):
            last = self._execute_each(client, [answer.args], now, slot, answer.command)
            self._view.resp3 = client.state.resp3  # EXEC may have executed a HELLO
            if not client.charged and client.watched_key_bytes() > WATCHED_BYTES:
                client.endpoint.memory.watch(client)
            return last
        if isinstance(answer, bytes):
            self._view.resp3 = client.state.resp3
            self._say(client, command.family, slot, answer)
            return args
        if (answer is None and not may_flush(self._replicas, now)) or (
            isinstance(answer, KeysRequest) and not may_list(self._replicas, now)
        ):
            self._parking.park(client, command, args, now, slot)
            return None
        if slot is None:
            slot = Slot(client, command, args, replies.OK, (), now)
            client.queue.append(slot)
        else:
            slot.reply = replies.OK
            self._unblock(slot)
        if isinstance(answer, WaitRequest):
            slot.wait = answer
            self._waits.add(slot, now)
            self._turn()
            return args
        if isinstance(answer, KeysRequest | Stepped):
            self._key_lists.add(slot, answer)
            self._turn()
            return None  # it has only begun
        self._tracking.flushed()
        flush_all(self._replicas, slot, now)
        if slot.done:  # this agent serves no partition
            self._meter.ended(slot)
        self._answers.touched[client] = None
        self._turn()
        return args


def _is_read(client: ClientConnection) -> bool:
    """Send what is ready; return whether execution may go on.

    It may if the client reads, or, where the reply waits for an earlier one, if the queue has room.
    """
    if client.queue:
        return client.has_room()
    client.write()
    return not client.blocked
